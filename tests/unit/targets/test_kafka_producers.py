"""Which producer sends: one that was made under another consent does not; no broker is asked."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from duepoint.targets.kafka import producers
from duepoint.targets.kafka import target as kafkatarget
from tests.support import othertargets, vaults

pytest.importorskip("aiokafka")


async def brokers(send_to):
    secret = vaults.a_secret(
        *("it", "default"),
        send_to=send_to,
        bootstrap__servers="one.example:9092",
        username="u",
        password="p",
    )
    reader = othertargets.a_reader(await vaults.api_with(secret))
    found = await reader.read(
        kafkatarget.PATH, "default", "it", kafkatarget.KEYS, "bootstrap.servers"
    )
    return kafkatarget.brokers(found)


class Producer:
    """Stands for the library's; notes who was started and stopped."""

    def __init__(self, of, started, stopped):
        self._of, self._started, self._stopped = of.connection, started, stopped

    async def start(self):
        self._started.append(self._of)

    async def send_and_wait(self, _topic, **_record):
        return SimpleNamespace(partition=0, offset=7)

    async def stop(self):
        self._stopped.append(self._of)


async def test_a_narrowed_consent_takes_the_producer_that_was_made_under_the_old(monkeypatch):
    started, stopped = [], []
    monkeypatch.setattr(producers, "_made", lambda of: Producer(of, started, stopped))
    held = producers.Producers(None)
    wide, narrow = await brokers("*"), await brokers("one.example")
    assert wide.connection.digest == narrow.connection.digest
    for to in (wide, wide, narrow):
        sent = held.send(to, topic="ticks", key=b"k", value=b"v", headers=[], seconds=60)
        assert await sent == "partition 0 offset 7 of ticks"
    assert started == [wide.connection, narrow.connection]
    await held.close()
    assert stopped == started
