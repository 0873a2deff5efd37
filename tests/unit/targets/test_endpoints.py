"""What is believed of a Service, and for how long."""

from __future__ import annotations

import asyncio

import pytest

from duepoint.kube import errors, services
from duepoint.targets import endpoints
from tests.fakes import fakeclock
from tests.support import webhooktargets

FOUND = webhooktargets.a_service(("10.0.0.1", 80))
MOVED = webhooktargets.a_service(("10.0.0.2", 80))
GONE = services.ServiceUnresolved(message="gone")
AWAY = errors.Unavailable("no answer")


class Server:
    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = 0

    async def resolve(self, api, namespace, name, port):
        self.asked += 1
        await asyncio.sleep(0)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def clock():
    return fakeclock.FakeClock()


def a_cache(server, clock, monkeypatch):
    monkeypatch.setattr(services, "resolve", server.resolve)
    return endpoints.service_cache(None, clock)


def ask(cache, name="billing", port=80):
    return cache.get("shop", (name, port))


async def test_an_answer_is_believed_for_a_minute(clock, monkeypatch):
    server = Server(FOUND, MOVED)
    cache = a_cache(server, clock, monkeypatch)
    assert await ask(cache) is FOUND
    await clock.advance(59)
    assert await ask(cache) is FOUND
    await clock.advance(2)
    assert await ask(cache) is MOVED
    assert server.asked == 2


async def test_an_outage_of_the_api_server_is_bridged_for_an_hour(clock, monkeypatch):
    server = Server(FOUND, AWAY)
    cache = a_cache(server, clock, monkeypatch)
    await ask(cache)
    await clock.advance(3590)
    assert await ask(cache) is FOUND
    await clock.advance(20)
    with pytest.raises(errors.Unavailable):
        await ask(cache)


async def test_a_service_that_was_deleted_is_not_remembered(clock, monkeypatch):
    server = Server(FOUND, GONE, AWAY)
    cache = a_cache(server, clock, monkeypatch)
    await ask(cache)
    await clock.advance(61)
    assert await ask(cache) is GONE
    with pytest.raises(errors.Unavailable):
        await ask(cache)
