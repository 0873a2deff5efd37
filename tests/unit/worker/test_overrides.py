"""What a ScheduleRun wants otherwise than its Schedule, and what is made of it."""

from __future__ import annotations

import msgspec
import pytest

from duepoint.delayqueue import messages
from duepoint.delayqueue.definitions import records
from duepoint.runs.run import RunState
from duepoint.schedules import actions, definition, points
from duepoint.schedules.conditions import Reason
from duepoint.targets import target
from duepoint.targets.stream import target as streamtarget
from tests.support.builders import a_definition, at
from tests.support.workplace import EPOCH, a_workplace

NOON = at("2026-03-01 12:00:00")
SLOT = at("2026-02-01 12:00:00")
PAYLOAD = b'{"report":"monthly"}'


@pytest.fixture
async def place():
    return await a_workplace()


async def wanted(place, *, payload=PAYLOAD, signature=None, state=definition.State.SUSPENDED):
    """A slot that a ScheduleRun asks for, of a suspended Schedule."""
    known = a_definition("@every 1h", created_us=NOON, not_before_us=NOON)
    known = await place.arm(msgspec.structs.replace(known, state=state))
    record = messages.OccurrenceRecord(trigger="Manual", run_uid="run", payload=payload)
    if signature is None:
        signed = records.signed_content(record, known.uid, SLOT, payload)
        signature = place.queue.signed_blobs.digest(known.namespace, signed)
    point = points.manual(known.id, SLOT, "run", points.PointKind.MANUAL)
    await place.queue.occurrences.enqueue(
        known, point, msgspec.structs.replace(record, signature=signature), EPOCH
    )
    return known


async def test_a_payload_that_no_operator_of_ours_wrote_is_never_handed_on(place):
    await wanted(place, signature="forged")
    async with place.working(place.a_worker()):
        await place.clock.advance(100)
    assert place.target.fired == []


async def test_an_entry_whose_slot_was_withdrawn_is_not_added_and_its_scheduled_run_is_told(
    place, monkeypatch
):
    streams = streamtarget.StreamTarget(place.clock)
    place.target = target.Targets(job=place.target, webhook=place.target, stream=streams)
    known = a_definition("@every 1h", created_us=NOON, not_before_us=NOON)
    ticks = actions.Action(target=actions.StreamAction(name="ticks"))
    known = await place.arm(known, ticks)
    point = points.manual(known.id, SLOT, "run", points.PointKind.MANUAL)
    record = messages.OccurrenceRecord(trigger="Manual", run_uid="run")
    await place.queue.occurrences.enqueue(known, point, record, EPOCH)
    deliver = place.queue.settlements.deliver

    async def too_late(claim, settlement, *entries):
        assert await place.queue.occurrences.withdraw(known, point, EPOCH) is messages.Armed.HELD
        return await deliver(claim, settlement, *entries)

    monkeypatch.setattr(place.queue.settlements, "deliver", too_late)
    async with place.working(place.a_worker()):
        await place.clock.advance(5)
    (event,) = await place.events()
    assert (event.state, event.reason, event.attempts) == (RunState.PENDING, Reason.DELETED, 1)
    assert (event.slot_us, event.run_uid) == (SLOT, "run")
    assert place.queue.stream_entries == {}
