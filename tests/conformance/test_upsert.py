"""Arming many at once ends as arming one after the other, on every queue."""

from __future__ import annotations

import asyncio
import uuid

import msgspec
import pytest

from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages
from duepoint.schedules import points
from duepoint.schedules import rule as rules
from tests.support import queueing
from tests.support.queueing import BLOB, EPOCH, members

APPLIED, UNCHANGED = messages.Armed.APPLIED, messages.Armed.UNCHANGED


def _many(harness, count, **changes):
    """Return armings of distinct schedules, in two namespaces."""
    return [
        (
            harness.arming(
                name=f"s{n}", uid=str(uuid.uuid4()), namespace=f"team-{n % 2}", **changes
            ),
            BLOB,
        )
        for n in range(count)
    ]


async def _stored(harness):
    return [
        one
        for shard in await harness.shards()
        async for one in queueing.stored(harness.queue, shard)
    ]


async def test_every_one_is_stored_with_its_chain_and_what_it_does(harness):
    wanted = _many(harness, 700)
    assert await harness.queue.writer.upsert(wanted, EPOCH) == [APPLIED] * 700
    claims = await harness.claim_all()
    assert sorted(members(claims)) == sorted(
        one.definition.id + one.definition.timing_version for one, _ in wanted
    )
    by_id = {one.definition.id: one.definition for one, _ in wanted}
    for claim in claims:
        found = await harness.queue.definitions.read_definitions(
            claim.shard, [point.schedule_id for point in claim.points]
        )
        assert found == {key: by_id[key] for key in found}
        assert len(found) == len(claim.points)
        known = next(iter(found.values()))
        blob = await harness.queue.definitions.blob(known.namespace, known.target, claim.shard)
        assert blob == BLOB


async def test_suspended_ones_have_no_chain_and_private_rules_stand_inline(harness):
    private = rules.Rule(timing=rules.Timing(schedules=("@at 2030-01-01T00:00:00Z",)))
    wanted = _many(harness, 3, due_in=None, rule=private)
    assert await harness.queue.writer.upsert(wanted, EPOCH) == [APPLIED] * 3
    stored = await _stored(harness)
    assert [one.due_us for one in stored] == [None] * 3
    assert await harness.queue.definitions.definition(stored[0].id) in [
        one.definition for one, _ in wanted
    ]


async def test_what_stands_already_is_compared_and_its_neighbours_are_stored(harness):
    wanted = _many(harness, 300)
    (same, newer) = (wanted[7], wanted[130])
    await harness.queue.writer.upsert([same], EPOCH)
    await harness.queue.writer.upsert([newer], EPOCH)
    edited = msgspec.structs.replace(newer[0].definition, generation=2, timing_generation=2)
    wanted[130] = (msgspec.structs.replace(newer[0], definition=edited), BLOB)
    answers = await harness.queue.writer.upsert(wanted, EPOCH)
    assert answers == [UNCHANGED if n == 7 else APPLIED for n in range(300)]
    assert len(members(await harness.claim_all())) == 300


async def test_two_callers_at_once_store_each_one_once(harness):
    wanted = _many(harness, 200)
    answers = await asyncio.gather(
        harness.queue.writer.upsert(wanted, EPOCH),
        harness.queue.writer.upsert(wanted[::-1], EPOCH),
    )
    both = zip(answers[0], answers[1][::-1], strict=True)
    assert {tuple(sorted(pair)) for pair in both} == {(APPLIED, UNCHANGED)}
    assert len(members(await harness.claim_all())) == 200


async def test_a_sleeper_learns_of_the_earliest(harness):
    wakeups = harness.queue.wakeups()
    await wakeups.start()
    async with asyncio.timeout(60):
        for _ in range(3):  # each subscription begins with a wake-up
            await wakeups.wait_until_due(0.3)
            for answer in await harness.look():
                wakeups.note(answer)
        sleeping = asyncio.create_task(wakeups.wait_until_due(60.0))
        await asyncio.sleep(0)
        await harness.queue.writer.upsert(_many(harness, 50), EPOCH)
        assert await sleeping
    await wakeups.close()


async def test_an_older_term_is_fenced(harness):
    await harness.queue.membership.open(4, messages.Epoch(EPOCH + 1))
    with pytest.raises(queue_errors.Fenced):
        await harness.queue.writer.upsert(_many(harness, 5), EPOCH)
    assert await _stored(harness) == []


async def test_in_the_middle_of_a_new_layout_everything_goes_to_its_place(harness):
    wanted = _many(harness, 60)
    assert await harness.queue.writer.upsert(wanted[:30], EPOCH) == [APPLIED] * 30
    await harness.queue.resharding.announce(8, EPOCH)
    assert await harness.queue.writer.upsert(wanted, EPOCH) == [UNCHANGED] * 30 + [APPLIED] * 30
    layout = await harness.queue.layouts.read()
    assert layout.shards == 8


# -- open slots ----------------------------------------------------------------------------------


def _open_slots(harness, definition, count):
    """Return occurrences of slots that were open when an index was lost."""
    return tuple(
        messages.Occurrence(
            point=points.DuePoint(
                schedule_id=definition.id,
                timing_version=definition.timing_version,
                kind=points.PointKind.RETRY if number % 2 else points.PointKind.PLANNED,
                due_us=harness.now_us() - 1_000 + number,
                slot_us=1_700_000_000_000_000 + number,
            ),
            record=messages.OccurrenceRecord(attempt=number % 2, first_try_us=number),
        )
        for number in range(count)
    )


def _with_open_slots(harness, wanted, count):
    return [
        (
            msgspec.structs.replace(one, open=_open_slots(harness, one.definition, count)),
            blob,
        )
        for one, blob in wanted
    ]


@pytest.mark.parametrize("count", [1, 3, 200], ids=["one", "a-few", "as-many-as-a-status-lists"])
async def test_open_slots_are_stored_with_their_schedules(harness, count):
    wanted = _with_open_slots(harness, _many(harness, 20), count)
    assert await harness.queue.writer.upsert(wanted, EPOCH) == [APPLIED] * 20
    stored = {
        (point.schedule_id, point.kind, point.slot_us): record
        for shard in await harness.shards()
        async for point, record in harness.queue.occurrences.all_occurrences(shard)
    }
    assert stored == {
        (one.definition.id, slot.point.kind, slot.point.slot_us): slot.record
        for one, _ in wanted
        for slot in one.open
    }


async def test_open_slots_are_due_beside_their_chain(harness):
    ((arming, blob),) = _with_open_slots(harness, _many(harness, 1), 3)
    assert await harness.queue.writer.upsert([(arming, blob)], EPOCH) == [APPLIED]
    claims = await harness.claim_all()
    known = arming.definition
    wanted = {known.id + known.timing_version, *(one.point.member for one in arming.open)}
    assert set(members(claims)) == wanted
    records = {member: record for claim in claims for member, record in claim.records.items()}
    assert records == {one.point.member: one.record for one in arming.open}
