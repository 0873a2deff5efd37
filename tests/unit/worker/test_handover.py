"""A burst of stream entries: fired together, once each, and tried alone where that failed."""

from __future__ import annotations

import msgspec
import pytest

from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import quotas
from duepoint.runs.run import RunState
from duepoint.schedules import actions
from duepoint.targets.stream import target as streamtarget
from tests.support.builders import a_definition, a_rule, at
from tests.support.workplace import a_workplace

NOON = at("2026-03-01 12:00:00")
SECOND = 1_000_000
TICKS = actions.Action(target=actions.StreamAction(name="ticks"))
COUNT = 400


@pytest.fixture
async def place():
    return await _place(COUNT, TICKS)


async def _place(count, action):
    made = await a_workplace()
    made.streams = streamtarget.StreamTarget(made.clock, external=None)
    for number in range(count):
        known = a_definition(
            "@every 1m", created_us=NOON, not_before_us=NOON, name=f"s-{number}",
            uid=f"6f1c9a34-0000-4000-8000-{number:012}",
        )  # fmt: skip
        await made.arm(known, action)
    return made


def _entries(place):
    (entries,) = place.queue.stream_entries.values()
    return entries


async def test_the_entry_of_a_batch_says_what_the_entry_of_one_says(place):
    async with place.working(place.a_worker(concurrency=200)):
        await place.clock.advance(61)
    (one, *_) = _entries(place)
    uid = one["schedule_id"]
    assert one == {
        "id": f"{uid}-{NOON // SECOND + 60}",
        "generated_at": one["generated_at"],
        "schedule_id": uid,
        "payload": "",
        "slot": str(NOON // SECOND + 60),
        "scheduled_time": "2026-03-01T12:01:00Z",
        "attempt": "1",
        "version": "1",
        "trigger": "Schedule",
    }


FEW = 100


BEHIND = 20


async def _behind(monkeypatch, *, count=FEW, payload=b"null", **policy):
    """Every chain has so many slots overdue, and all of them are to run."""
    place = await _place(0, TICKS)
    monkeypatch.setattr(place.queue.streams, "quotas", quotas.Quotas(streams=1))
    action = actions.Action(target=TICKS.target, payload=msgspec.Raw(payload))
    for number in range(count):
        known = a_definition(
            created_us=NOON, not_before_us=NOON, name=f"s-{number}",
            uid=f"6f1c9a34-0000-4000-8000-{number:012}",
            rule=a_rule("@every 1s", policy={"catch_up_policy": "All", **policy}),
        )  # fmt: skip
        await place.arm(known, action)
    await place.clock.advance(BEHIND + 0.5)
    return place


async def test_overdue_slots_that_a_stream_refuses_are_tried_again_one_by_one(monkeypatch):
    place = await _behind(monkeypatch)
    deliver, is_full = place.queue.settlements.deliver, True

    async def refusing(claim, settlement, *entries):
        if is_full:
            raise queue_errors.WriteRefused("full")
        return await deliver(claim, settlement, *entries)

    monkeypatch.setattr(place.queue.settlements, "deliver", refusing)
    async with place.working(place.a_worker(concurrency=200)):
        await place.clock.advance(0.4)
        waiting = [event for event in await place.events() if event.state is not RunState.SUCCEEDED]
        assert waiting  # the oldest slots, which wait for their second try
        is_full = False
        await place.clock.advance(60)
    slots = [(entry["schedule_id"], int(entry["slot"])) for entry in _entries(place)]
    first = NOON // SECOND + 1
    assert len(slots) == len(set(slots))
    assert set(slots) >= {
        (f"6f1c9a34-0000-4000-8000-{number:012}", first + slot)
        for number in range(FEW)
        for slot in range(BEHIND + 59)
    }


async def test_on_a_cluster_entries_go_in_before_their_points_are_settled(place, monkeypatch):
    monkeypatch.setattr(type(place.queue.settlements), "settles_entries", False)
    async with place.working(place.a_worker(concurrency=200)):
        await place.clock.advance(61)
    ids = [entry["id"] for entry in _entries(place)]
    assert len(ids) == len(set(ids)) == COUNT
    events = await place.events()
    assert {event.message.partition(" ")[0] for event in events} == {"entry"}
