"""Quotas of users' streams in Duepoint's own Redis: their number per namespace, and their bytes."""

from __future__ import annotations

import pytest

from duepoint.delayqueue import quotas
from tests.support import queueing

#: Two streams of 64 KB.
QUOTAS = quotas.Quotas(streams=2, stream_bytes=131_072)
ENTRY = 2_000
UNTRIMMED = 1_000_000


@pytest.fixture
def queue_options():
    return {"shards": 1, "quotas": QUOTAS}


async def payloads(harness, namespace: str, name: str) -> list[bytes]:
    """Return the payloads in the stream, oldest first."""
    key = harness.server.keys.stream(namespace, name)
    found = await harness.server.redis.xrange(key)
    fields = [dict(raw) if isinstance(raw, dict) else _paired(raw) for _, raw in found]
    return [each[b"payload"] for each in fields]


def _paired(raw):
    return dict(zip(raw[::2], raw[1::2], strict=True))


def a_payload(number: int, size: int = ENTRY) -> bytes:
    return f"{number:05} ".encode().ljust(size, b"x")


async def test_a_stream_keeps_a_bounded_number_of_bytes_however_long_it_may_be(harness):
    for number in range(100):  # 200 KB
        await harness.queue.streams.append(
            queueing.an_entry("team", "ticks", max_length=UNTRIMMED, payload=a_payload(number))
        )
    kept = await payloads(harness, "team", "ticks")
    assert kept == [a_payload(number) for number in range(100 - len(kept), 100)]
    assert 50_000 < sum(map(len, kept)) <= QUOTAS.of_stream + ENTRY


async def test_large_entries_of_one_schedule_leave_no_more_room_to_small_ones_of_another(harness):
    for number in range(200):
        size = 8_000 if number % 10 == 0 else 400
        await harness.queue.streams.append(
            queueing.an_entry(
                "team", "ticks", max_length=UNTRIMMED, payload=a_payload(number, size)
            )
        )
    kept = await payloads(harness, "team", "ticks")
    assert sum(map(len, kept)) <= QUOTAS.of_stream + 8_000


async def test_a_full_stream_takes_nothing_from_that_of_another_namespace(harness):
    await harness.queue.streams.append(
        queueing.an_entry("quiet", "ticks", max_length=UNTRIMMED, payload=a_payload(0))
    )
    for number in range(100):
        await harness.queue.streams.append(
            queueing.an_entry("noisy", "ticks", max_length=UNTRIMMED, payload=a_payload(number))
        )
    assert await payloads(harness, "quiet", "ticks") == [a_payload(0)]


async def test_a_namespace_has_a_bounded_number_of_streams(harness):
    assert await harness.queue.streams.enlist("team", "one")
    assert await harness.queue.streams.enlist("team", "two")
    assert not await harness.queue.streams.enlist("team", "three")
    assert await harness.queue.streams.enlist("team", "two")  # it is one of them
    assert await harness.queue.streams.enlist("other", "three")


async def test_a_deleted_stream_gives_its_place_to_another(harness):
    for name in ("one", "two"):
        await harness.queue.streams.enlist("team", name)
    await harness.server.redis.unlink(harness.server.keys.stream("team", "one"))
    assert await harness.queue.streams.enlist("team", "three")
    assert not await harness.queue.streams.enlist("team", "four")


async def test_a_stream_of_an_accepted_schedule_has_a_place_however_many_there_are(harness):
    for name in ("one", "two", "three"):
        assert await harness.queue.streams.enlist("team", name, anyhow=True)
    assert not await harness.queue.streams.enlist("team", "four")
