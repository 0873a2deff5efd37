"""An entry's fields, and what Redis's troubles become."""

from __future__ import annotations

import asyncio

import pytest

from duepoint import clock, errors
from duepoint.delayqueue.wire import scripting
from duepoint.runs import outcome
from duepoint.schedules import ownstreams
from duepoint.schedules.conditions import Reason
from duepoint.targets import stream
from tests.support import builders, firings


class Streams:
    settles_entries = True

    def __init__(self, trouble=None):
        self.trouble = trouble
        self.appended = []

    async def append_stream(self, namespace, name, fields, max_length):
        if self.trouble is not None:
            raise self.trouble
        self.appended.append((namespace, name, dict(fields), max_length))
        return "1-1"


async def fire(streams, action=None, *, own=ownstreams.USUAL, **changes):
    target = stream.StreamTarget(streams, clock.SystemClock(), own=own)
    return await target.fire(firings.a_firing(action or firings.a_stream(), **changes))


async def test_an_entry_holds_exactly_these_fields():
    streams = Streams()
    given = await fire(
        streams, firings.a_stream("ticks", 500), payload=[1], attempt=2, trigger="Manual"
    )
    assert isinstance(given, outcome.Delivered)
    ((namespace, name, fields, max_length),) = streams.appended
    assert (namespace, name, max_length) == ("default", "ticks", 500)
    assert fields.pop("generated_at").endswith("Z")
    assert fields == {
        "id": f"{builders.UID}-1772366400",
        "schedule_id": builders.UID,
        "payload": b"[1]",
        "slot": "1772366400",
        "scheduled_time": "2026-03-01T12:00:00Z",
        "attempt": "2",
        "version": "3",
        "trigger": "Manual",
    }


async def test_without_a_payload_the_field_is_empty():
    streams = Streams()
    await fire(streams)
    assert streams.appended[0][2]["payload"] == b""


@pytest.mark.parametrize(
    ("asked", "kept"),
    [(None, 20), (7, 7), (30, 30), (31, 30)],
    ids=["unset", "less", "most", "more"],
)
async def test_a_stream_keeps_what_is_asked_for_up_to_what_the_installation_allows(asked, kept):
    streams = Streams()
    rule = ownstreams.OwnStreams(default_length=20, max_length=30)
    await fire(streams, firings.a_stream("ticks", asked), own=rule)
    assert streams.appended[0][3] == kept


async def test_a_default_beyond_the_most_is_the_most():
    assert ownstreams.OwnStreams(default_length=50, max_length=30).length(None) == 30


async def test_a_worker_appends_nothing_where_streams_of_our_own_are_off():
    streams = Streams()
    off = ownstreams.OwnStreams(enabled=False)
    given = await fire(streams, own=off)
    assert isinstance(given, outcome.Rejected)
    assert given.reason is Reason.OWN_STREAMS_OFF
    assert "connectionSecretRef" in given.message
    assert streams.appended == []


async def test_neither_bursts_nor_settlements_append_where_streams_of_our_own_are_off():
    target = stream.StreamTarget(
        Streams(), clock.SystemClock(), own=ownstreams.OwnStreams(enabled=False)
    )
    action = firings.a_firing(firings.a_stream()).action
    assert not target.settles(action)
    assert not target.takes_batches(action)


async def test_a_key_of_another_type_is_not_repeated():
    given = await fire(Streams(scripting.WrongType("it is a list")))
    assert isinstance(given, outcome.Rejected)
    assert given.reason is Reason.WRONG_TYPE


@pytest.mark.parametrize("after", [None, 2.0])
async def test_a_redis_that_is_away_or_full_is_asked_again(after):
    trouble = errors.QueueUnavailable("OOM", retry_after_seconds=after)
    given = await fire(Streams(trouble))
    assert isinstance(given, outcome.Retry)
    assert given.reason is Reason.QUEUE_UNAVAILABLE
    assert given.after_us == (None if after is None else 2_000_000)


async def test_a_redis_that_hangs_is_asked_again():
    class Hanging(Streams):
        async def append_stream(self, *_):
            await asyncio.Event().wait()

    given = await fire(Hanging(), seconds_left=0.05)
    assert isinstance(given, outcome.Retry)
    assert given.reason is Reason.QUEUE_UNAVAILABLE


async def test_nothing_is_appended_after_the_claims_end():
    streams = Streams()
    given = await fire(streams, seconds_left=-1)
    assert isinstance(given, outcome.Retry)
    assert not given.started
    assert streams.appended == []
