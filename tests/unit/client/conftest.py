"""Both clients against a real HTTP server that keeps a set in memory."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from duepoint.client import AsyncClient, Client, Retries
from tests.fakes.memoryapi import MemoryApi

QUICK = Retries(attempts=4, first_seconds=0.01, longest_seconds=0.02, total_seconds=5.0)


class InALoop:
    """An asynchronous object, used as the blocking one is: both must do the same."""

    def __init__(self, loop: asyncio.AbstractEventLoop, inner: object) -> None:
        self._loop = loop
        self.inner = inner

    def __getattr__(self, name: str):
        found = getattr(self.inner, name)
        if not callable(found):
            return found

        def call(*given, **named):
            result = found(*given, **named)
            if inspect.iscoroutine(result):
                return self._loop.run_until_complete(result)
            if inspect.isasyncgen(result):
                return self._listed(result)
            return InALoop(self._loop, result)

        return call

    def _listed(self, generator):
        try:
            while True:
                try:
                    yield self._loop.run_until_complete(anext(generator))
                except StopAsyncIteration:
                    return
        finally:
            self._loop.run_until_complete(generator.aclose())


@pytest.fixture
def api():
    memory = MemoryApi()
    with memory.serving():
        yield memory


@pytest.fixture(params=["blocking", "asyncio"])
def connect(request, api):
    """Makes a client of the kind, with any arguments."""
    opened = []
    loop = asyncio.new_event_loop() if request.param == "asyncio" else None

    def make(server=None, **given):
        given = {"token": "good", "retries": QUICK, **given}
        kind = Client if loop is None else AsyncClient
        made = kind(server or api.url, **given)
        opened.append(made)
        return made if loop is None else InALoop(loop, made)

    yield make
    for client in opened:
        if loop is None:
            client.close()
        else:
            loop.run_until_complete(client.aclose())
    if loop is not None:
        loop.close()


@pytest.fixture
def reminders(connect):
    return connect().schedule_set("shop", "reminders")
