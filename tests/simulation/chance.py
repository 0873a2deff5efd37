"""Every source of chance and time of the product, replaced for as long as a history runs."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import secrets
import uuid
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import structlog

from duepoint import clock as clocks
from duepoint import errors, telemetry
from duepoint.delayqueue.wire import servers
from duepoint.net import dialling
from tests.simulation.loop import Process, SimulatedLoop, running_process

#: 2026-03-01T12:00:00Z. It must lie before the machine's own time: stream entries have ages.
BASE_US = 1_772_366_400_000_000


class ProcessClock:
    """The clocks that one process reads; its wall clock may be wrong."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._process: Process = running_process.get()

    def now_us(self) -> int:
        return BASE_US + self._loop.now_us + self._process.clock_offset_us

    def monotonic(self) -> float:
        return self._loop.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@contextlib.contextmanager
def controlled(
    seed: int,
    loop: SimulatedLoop,
    open_servers: Callable[..., Any],
    dialler: Callable[..., Any],
    leave: Callable[[int], object],
) -> Iterator[None]:
    """Give the product the time, chance and network of the history.

    Args:
        leave: ends the running process of the history instead of this one.
    """
    dice = random.Random(f"chance of {seed}")
    seeded = random.Random

    def a_random(given: Any = None) -> random.Random:
        return seeded(dice.getrandbits(64) if given is None else given)

    state = random.getstate()
    random.seed(dice.getrandbits(64))
    was_enabled = gc.isenabled()
    gc.disable()
    with contextlib.ExitStack() as stack:
        for owner, name, value in (
            (os, "urandom", dice.randbytes),
            (os, "_exit", leave),
            (secrets, "token_hex", lambda count=32: dice.randbytes(count).hex()),
            (secrets, "token_bytes", dice.randbytes),
            (secrets, "randbits", dice.getrandbits),
            (uuid, "uuid4", lambda: uuid.UUID(bytes=dice.randbytes(16), version=4)),
            (random, "Random", a_random),
            # a killed process leaves its gauges here, and each keeps a whole history alive
            (telemetry, "before_scrape", set()),
            (clocks, "SystemClock", lambda: ProcessClock(loop)),
            (servers, "open_servers", open_servers),
            (dialling, "Dialler", dialler),
        ):
            stack.enter_context(mock.patch.object(owner, name, value))
        try:
            yield
        finally:
            random.setstate(state)
            if was_enabled:
                gc.enable()


#: What no part of the product should meet, of the errors that it has logged since the last play.
bugs: list[str] = []


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Silence the product's log: a million lines say less than the trace. Keep its bugs."""
    before = structlog.get_config()
    structlog.configure(processors=[_drop])
    try:
        yield
    finally:
        structlog.configure(**before)


def _drop(_logger: object, _name: str, event: Any) -> Any:
    bugs.extend(f"{event['event']}: {one!r}" for one in _leaves(event.get("exc_info")))
    raise structlog.DropEvent


def _leaves(error: Any) -> Iterator[BaseException]:
    """Return the bugs in a logged error, which may be a group."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _leaves(one)
    elif isinstance(error, errors.Bug) or (
        isinstance(error, Exception) and not isinstance(error, errors.DuepointError)
    ):
        yield error
