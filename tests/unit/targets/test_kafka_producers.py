"""Which producer sends, and for how long it is kept; no broker is asked."""

from __future__ import annotations

import asyncio

import pytest

from duepoint.targets.kafka import brokersettings, producers
from tests.support import othertargets, vaults

pytest.importorskip("aiokafka")


async def brokers(send_to="*", namespace="default", name="it", **values):
    secret = vaults.a_secret(
        name,
        namespace,
        send_to=send_to,
        bootstrap__servers="one.example:9092",
        **({"username": "u", "password": "p"} | values),
    )
    reader = othertargets.a_reader(await vaults.api_with(secret))
    found = await reader.read(
        brokersettings.PATH, namespace, name, brokersettings.KEYS, "bootstrap.servers"
    )
    return brokersettings.brokers(found)


class Library:
    """Stands for aiokafka: what was started and stopped, and what is being sent.

    Attributes:
        answer: a send ends when it is set.
        failures: so many starts fail, once ``failing`` is set.
    """

    def __init__(self):
        self.started = []
        self.stopped = []
        self.answer = asyncio.Event()
        self.starts = asyncio.Queue()
        self.failures = 0
        self.failing = asyncio.Event()

    def made(self, of):
        library, loop = self, asyncio.get_running_loop()

        class Client:
            async def close(self):
                pass

        class Producer:
            client = Client()

            async def start(self):
                if library.failures:
                    library.failures -= 1
                    failing = asyncio.run_coroutine_threadsafe(library.failing.wait(), caller)
                    await asyncio.wrap_future(failing)
                    raise OSError("the broker is being restarted")
                library.started.append(of.connection)
                caller.call_soon_threadsafe(library.starts.put_nowait, of.connection)

            async def send_and_wait(self, topic, **_):
                answer = asyncio.run_coroutine_threadsafe(library.answer.wait(), caller)
                await asyncio.wrap_future(answer)
                return Sent()

            async def stop(self):
                library.stopped.append(of.connection)

        caller = self.loop
        assert loop is not caller
        return Producer()


class Sent:
    partition = 0
    offset = 7


@pytest.fixture
async def library(monkeypatch):
    made = Library()
    made.loop = asyncio.get_running_loop()
    monkeypatch.setattr(producers, "_made", made.made)
    return made


@pytest.fixture
async def held(library):
    made = producers.Producers()
    yield made
    library.answer.set()
    await made.close()


async def send(held, to):
    return await held.send(to, None, topic="ticks", key=b"k", value=b"v", headers=[], denied=[])


async def test_a_narrowed_consent_takes_the_producer_that_was_made_under_the_old(held, library):
    library.answer.set()
    wide, narrow = await brokers("*"), await brokers("one.example")
    assert wide.connection.digest == narrow.connection.digest
    assert await send(held, wide) == await send(held, wide) == "partition 0 offset 7 of ticks"
    assert library.started == [wide.connection]
    await send(held, narrow)
    assert library.started == [wide.connection, narrow.connection]
    await asyncio.gather(*held._closing)
    assert library.stopped == [wide.connection]
