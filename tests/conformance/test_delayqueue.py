"""What the delay queue promises, on each server."""

from __future__ import annotations

import asyncio
import dataclasses

import msgspec
import pytest

from duepoint import errors
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages, sharding
from duepoint.delayqueue.claims import settling
from duepoint.schedules import definition, points
from tests.support import queueing
from tests.support.queueing import BLOB, EPOCH, a_planned, a_retry, members, moved

Settlement = messages.Settlement


# -- arming -----------------------------------------------------------------------------------


async def test_a_due_schedule_is_claimed_by_one_worker_only(harness):
    assert await harness.arm() is messages.Armed.APPLIED
    first = await harness.claim_all(worker="w1")
    assert members(first) == [harness.definition().id + harness.definition().timing_version]
    assert await harness.claim_all(worker="w2") == []


async def test_what_is_not_due_is_not_claimed_and_the_wait_says_when(harness):
    await harness.arm(due_in=30.0)
    answers = await harness.look()
    assert [answer.claim for answer in answers] == [None] * 4
    (wait,) = [a.wait_seconds for a in answers if a.wait_seconds is not None]
    assert 29.0 < wait <= 30.0


async def test_a_point_is_never_claimed_before_its_due(harness):
    due = harness.now_us() + 50_000
    await harness.arm(due_us=due)
    claim = await harness.claim_one()
    assert harness.now_us() >= due
    assert claim.now_us >= due


async def test_arming_the_same_generation_again_changes_nothing(harness):
    await harness.arm(due_in=60.0)
    assert await harness.arm(due_in=-1.0) is messages.Armed.UNCHANGED
    assert await harness.claim_all() == []


async def test_an_older_generation_that_arrives_late_is_refused(harness):
    await harness.arm(generation=2, due_in=60.0)
    assert await harness.arm(generation=1, due_in=-1.0) is messages.Armed.UNCHANGED
    assert await harness.claim_all() == []


async def test_another_uid_under_the_same_id_is_a_collision_and_is_not_written(
    harness, monkeypatch
):
    monkeypatch.setattr(points, "schedule_id", lambda *_, **__: points.ScheduleId(b"same id!"))
    await harness.arm(name="first")
    assert await harness.arm(name="second", uid="another") is messages.Armed.COLLISION
    (claim,) = await harness.claim_all()
    read = await harness.queue.definitions.read_definitions(
        claim.shard, [points.ScheduleId(b"same id!")]
    )
    assert [found.name for found in read.values()] == ["first"]


async def test_a_timing_edit_replaces_the_point(harness):
    await harness.arm(generation=1, due_in=-1.0)
    await harness.arm(generation=2, due_in=-1.0)
    newest = harness.definition(generation=2)
    assert members(await harness.claim_all()) == [newest.id + newest.timing_version]


async def test_a_timing_edit_takes_the_point_from_the_worker_that_holds_it(harness):
    await harness.arm(generation=1)
    (claim,) = await harness.claim_all()
    await harness.arm(generation=2, due_in=60.0)
    settled = await harness.queue.settlements.settle(
        claim, Settlement(chains=(moved(claim.points[0], 1),))
    )
    assert (settled.lost, settled.applied) == (False, 0)
    assert (await harness.total()).points == 1


@pytest.mark.parametrize("is_claimed", [False, True], ids=["waiting", "claimed"])
async def test_a_new_timing_waits_until_its_edit_counts_after_what_the_old_one_ran(
    harness, is_claimed
):
    """A chain that stands later than the first slot after the edit has run that one."""
    await harness.arm(generation=1, due_in=-1.0 if is_claimed else 60.0)
    if is_claimed:
        await harness.claim_all()
    since_us = harness.now_us() - 2_000_000
    edited = msgspec.structs.replace(harness.arming(generation=2, due_in=30.0), after_us=since_us)
    wanted = messages.Armed.APPLIED if is_claimed else messages.Armed.HELD
    assert await _upsert(harness, edited) is wanted
    later = msgspec.structs.replace(edited, after_us=harness.now_us() + 60_000_000)
    wanted = messages.Armed.UNCHANGED if is_claimed else messages.Armed.APPLIED
    assert await _upsert(harness, later) is wanted


OLD, NEW = b"old ", b"new "


def _replacing(harness, *, due_in=-1.0, replaces=OLD, **changes):
    """Return an arming of the same schedule with other content that keeps its chain."""
    due_us = harness.now_us() + int(due_in * 1_000_000)
    arming = harness.arming(due_us=due_us, keep_chain=True, fingerprint=NEW, **changes)
    return msgspec.structs.replace(arming, replaces=replaces)


async def _upsert(harness, arming):
    (armed,) = await harness.queue.writer.upsert([(arming, BLOB)], EPOCH)
    return armed


@pytest.mark.parametrize("generation", [5, 4], ids=["the-same", "a-lower-one"])
async def test_a_generation_that_is_no_newer_replaces_the_content_it_names(harness, generation):
    await harness.arm(generation=5, fingerprint=OLD)
    edited = harness.arming(generation=generation, timing_generation=6, fingerprint=NEW)
    assert await _upsert(harness, edited) is messages.Armed.UNCHANGED
    of_another = msgspec.structs.replace(edited, replaces=b"else")
    assert await _upsert(harness, of_another) is messages.Armed.UNCHANGED
    right = msgspec.structs.replace(edited, replaces=OLD)
    assert await _upsert(harness, right) is messages.Armed.APPLIED
    (claim,) = await harness.claim_all()
    known = right.definition
    assert [point.timing_version for point in claim.points] == [known.timing_version]
    found = await harness.queue.definitions.read_definitions(claim.shard, [known.id])
    assert (found[known.id].generation, found[known.id].fingerprint) == (generation, NEW)
    # repeated, because the reply was lost
    assert await _upsert(harness, right) is messages.Armed.UNCHANGED


async def test_a_chain_is_not_put_back_to_a_due_that_has_come(harness):
    """The chain may have moved past that due time since the caller computed it."""
    arming = harness.arming(due_in=3_600, fingerprint=OLD)
    await _upsert(harness, arming)
    assert await _upsert(harness, _replacing(harness, due_in=-0.5)) is messages.Armed.HELD
    (stored,) = [one async for one in _stored(harness)]
    assert stored.due_us == arming.due_us
    again = await _upsert(harness, _replacing(harness, due_in=600))
    assert again is messages.Armed.APPLIED  # so the version that it replaces was still there


async def test_a_chain_that_is_due_keeps_its_due_when_its_content_is_replaced(harness):
    """Its slot has not run yet."""
    arming = harness.arming(due_in=-1, fingerprint=OLD)
    await _upsert(harness, arming)
    assert await _upsert(harness, _replacing(harness, due_in=3_600)) is messages.Armed.APPLIED
    (stored,) = [one async for one in _stored(harness)]
    assert stored.due_us == arming.due_us


async def test_nothing_is_written_while_a_worker_holds_a_chain_that_is_to_get_another_due(harness):
    await harness.arm(fingerprint=OLD)
    (claim,) = await harness.claim_all()
    later = _replacing(harness, due_in=3_600)
    assert await _upsert(harness, later) is messages.Armed.HELD
    await harness.queue.settlements.settle(claim, Settlement(chains=(moved(claim.points[0], 60),)))
    assert await _upsert(harness, later) is messages.Armed.APPLIED
    (stored,) = [one async for one in _stored(harness)]
    assert stored.due_us == later.due_us


async def test_another_edit_leaves_a_claimed_point_with_its_worker(harness):
    await harness.arm(generation=1)
    (claim,) = await harness.claim_all()
    await harness.arm(keep_chain=True, generation=2, timing_generation=1)
    settled = await harness.queue.settlements.settle(
        claim, Settlement(chains=(moved(claim.points[0], 60),))
    )
    assert settled.applied == 1


def _tried_once(harness, point) -> Settlement:
    """Settle a chain's slot with a retry, and move the chain on."""
    retry = a_retry(point, due_us=harness.now_us() + 60_000_000)
    following = dataclasses.replace(retry, source=point.member)
    return Settlement(occurrences=(following,), chains=(moved(point, 60),))


async def _open_slots(harness, schedule_id) -> list[int]:
    shard = sharding.shard_of(schedule_id, 4)
    stored = harness.queue.occurrences.all_occurrences(shard, of=schedule_id)
    return [point.slot_us async for point, _ in stored]


async def test_a_slot_that_was_tried_when_its_timing_was_edited_is_tried_again(harness):
    await harness.arm(generation=1)
    (claim,) = await harness.claim_all()
    await harness.arm(generation=2, due_in=3_600)
    (tried,) = claim.points
    settled = await harness.queue.settlements.settle(claim, _tried_once(harness, tried))
    assert (settled.lost, settled.remaining) == (False, 0)
    assert await _open_slots(harness, tried.schedule_id) == [tried.slot_us]
    (stored,) = [one async for one in _stored(harness)]
    assert stored.due_us >= harness.now_us() + 3_000_000_000  # the new chain stays where it is
    await harness.pass_time(61)
    (again,) = await harness.claim_all()
    assert [point.kind for point in again.points] == [points.PointKind.RETRY]


async def test_a_slot_that_was_tried_when_its_schedule_was_removed_is_not_tried_again(harness):
    await harness.arm()
    (claim,) = await harness.claim_all()
    (tried,) = claim.points
    known = harness.definition()
    await harness.queue.writer.remove(known.id, known.uid, known.namespace, messages.Epoch(7))
    await harness.queue.settlements.settle(claim, _tried_once(harness, tried))
    assert await _open_slots(harness, tried.schedule_id) == []


# -- removing ---------------------------------------------------------------------------------


async def test_a_removed_schedule_is_never_claimed(harness):
    await harness.arm()
    stored = harness.definition()
    assert await _remove(harness, stored) is messages.Armed.APPLIED
    assert await harness.claim_all() == []
    assert await _remove(harness, stored) is messages.Armed.UNCHANGED


async def test_a_removed_schedule_takes_its_claimed_point_along(harness):
    await harness.arm()
    (claim,) = await harness.claim_all()
    await _remove(harness, harness.definition())
    settled = await harness.queue.settlements.settle(
        claim,
        Settlement(chains=(moved(claim.points[0], 60),), occurrences=(a_retry(claim.points[0]),)),
    )
    assert settled.applied == 0
    assert (await harness.total()).points == 0


async def test_a_removed_schedule_takes_its_retries_along(harness):
    await harness.arm()
    (claim,) = await harness.claim_all()
    (point,) = claim.points
    await harness.queue.settlements.settle(
        claim, Settlement(chains=(moved(point, 60),), occurrences=(a_retry(point),))
    )
    await _remove(harness, harness.definition())
    assert (await harness.total()).points == 0
    assert await harness.claim_all() == []


# -- settling ---------------------------------------------------------------------------------


async def test_a_settled_chain_goes_on_at_its_next_due(harness):
    await harness.arm()
    (claim,) = await harness.claim_all()
    following = moved(claim.points[0], 0.5)
    settled = await harness.queue.settlements.settle(claim, Settlement(chains=(following,)))
    assert settled == messages.Settled(lost=False, applied=1, remaining=0)
    (again,) = await harness.claim_all() or [await harness.claim_one()]
    assert [point.due_us for point in again.points] == [following[1]]


async def test_a_retry_stands_beside_the_chain_and_carries_its_record(harness):
    await harness.arm()
    (claim,) = await harness.claim_all()
    (point,) = claim.points
    retry = a_retry(point, attempt=2, first_try_us=point.due_us, last_error="Timeout")
    await harness.queue.settlements.settle(
        claim, Settlement(chains=(moved(point, 3600),), occurrences=(retry,))
    )
    (again,) = await harness.claim_all()
    assert again.points == (retry.point,)
    assert again.records == {retry.point.member: retry.record}
    assert (await harness.total()).points == 2


async def test_of_too_many_open_retries_the_oldest_that_waits_becomes_a_dead_letter(harness):
    await harness.arm()
    first_us = harness.now_us() + 60_000_000
    settled = []
    for number in range(messages.OPEN_RETRIES + 2):
        claim = await harness.claim_one()
        (chain,) = claim.points
        retry = a_retry(chain, due_us=first_us, last_error="Network")
        retry = dataclasses.replace(
            retry,
            point=dataclasses.replace(retry.point, slot_us=chain.slot_us + number),
            origin={"name": "report"},
        )
        settled.append(
            await harness.queue.settlements.settle(
                claim, Settlement(occurrences=(retry,), chains=(moved(chain, 0),))
            )
        )
    buried = [member for one in settled for member in one.buried]
    assert [points.slot_of(member) - chain.slot_us for member in buried] == [0, 1]
    assert (await harness.total()).points == messages.OPEN_RETRIES + 1
    newest, _ = [letter async for letter in harness.queue.dead_letters.newest()]
    assert (newest.entry["name"], newest.entry["reason"]) == ("report", "Network")
    assert newest.entry["slot_us"] == str(chain.slot_us + 1)


async def test_as_many_retries_are_open_as_the_catch_up_policy_runs(harness, monkeypatch):
    monkeypatch.setattr(messages, "OPEN_RETRIES", 1)
    await harness.arm()
    buried = []
    for number in range(4):
        claim = await harness.claim_one()
        (chain,) = claim.points
        retry = a_retry(chain, due_us=harness.now_us() + 60_000_000)
        point = dataclasses.replace(retry.point, slot_us=chain.slot_us + number)
        retry = dataclasses.replace(retry, point=point, open_limit=3)
        settled = await harness.queue.settlements.settle(
            claim, Settlement(occurrences=(retry,), chains=(moved(chain, 0),))
        )
        buried.append(len(settled.buried))
    assert buried == [0, 0, 0, 1]


async def test_an_ended_schedule_is_completed_and_has_no_point(harness):
    await harness.arm()
    (claim,) = await harness.claim_all()
    (point,) = claim.points
    await harness.queue.settlements.settle(
        claim, Settlement(finished=(point.member,), ended=(point.member,))
    )
    stored = await harness.queue.definitions.definition(point.schedule_id)
    assert stored is not None
    assert stored.state is definition.State.COMPLETED
    assert (await harness.total()).points == 0


async def test_a_schedule_edited_in_flight_is_not_completed_by_its_old_point(harness):
    await harness.arm(generation=1)
    (claim,) = await harness.claim_all()
    (point,) = claim.points
    await harness.arm(generation=2, due_in=60.0)
    await harness.queue.settlements.settle(
        claim, Settlement(finished=(point.member,), ended=(point.member,))
    )
    stored = await harness.queue.definitions.definition(point.schedule_id)
    assert stored is not None
    assert stored.state is definition.State.ARMED
    assert (await harness.total()).points == 1


async def test_a_dead_letter_carries_what_is_needed_to_replay_it(harness):
    await harness.arm()
    (claim,) = await harness.claim_all()
    letter = messages.DeadLetter(
        member=claim.points[0].member, entry={"reason": "InternalError", "name": "report"}
    )
    await harness.queue.settlements.settle(claim, Settlement(dead=(letter,)))
    (entry,) = [letter async for letter in harness.queue.dead_letters.newest()]
    assert (entry.member, entry.entry) == (letter.member, letter.entry)
    assert (await harness.total()).points == 0


async def test_a_record_is_stored_in_the_step_that_removes_what_it_counts(harness):
    await harness.arm()
    (claim,) = await harness.claim_all()
    for number, outcomes in enumerate((b"one", b"two", b"three"), start=1):
        await harness.queue.settlements.settle(claim, Settlement(outcomes=outcomes, number=number))
    ledger = harness.queue.ledger()
    _, second, third = await ledger.read_outcomes()
    await ledger.store(claim.shard, {"a": b"1", "b": b"2"}, through=second.id, epoch=EPOCH)
    assert await ledger.records() == {"a": [(claim.shard, b"1")], "b": [(claim.shard, b"2")]}
    assert await ledger.read_outcomes() == [third]
    await ledger.store(claim.shard, {}, shown=["a"], epoch=EPOCH)
    assert list(await ledger.records()) == ["b"]
    with pytest.raises(queue_errors.Fenced):
        await ledger.store(claim.shard, {"b": b"3"}, through=third.id, epoch=EPOCH - 1)
    assert await ledger.records() == {"b": [(claim.shard, b"2")]}
    assert await ledger.read_outcomes() == [third]


async def test_outcomes_that_were_counted_are_read_no_more(harness):
    await harness.arm()
    (claim,) = await harness.claim_all()
    await harness.queue.settlements.settle(
        claim, Settlement(chains=(moved(claim.points[0], 60),), outcomes=b"ran")
    )
    assert await harness.outcomes() == [b"ran"]
    assert await harness.outcomes() == []


async def test_a_settlement_number_seen_before_changes_nothing(harness):
    claim, second = await _two_in_one_claim(harness)
    part = Settlement(chains=(moved(second, 60),), outcomes=b"once", number=1)
    await harness.queue.settlements.settle(claim, part)
    repeated = await harness.queue.settlements.settle(claim, part)
    assert repeated == messages.Settled(lost=False, applied=0, remaining=1)
    assert await harness.outcomes() == [b"once"]


# -- leases -----------------------------------------------------------------------------------


async def test_an_expired_claim_is_reclaimed_with_its_dues(harness):
    await harness.arm()
    first = await harness.claim_one(worker="dead", lease_seconds=0.05)
    again = await harness.claim_one(worker="heir")
    assert again.points == first.points
    assert again.reclaimed == 1
    assert again.id != first.id


async def test_points_taken_over_again_and_again_keep_the_time_of_their_first_claim(harness):
    for number in range(10):
        await harness.arm(name=f"s{number}", uid=_uid_in_shard(harness, 0, number))
    first = await harness.claim_one(lease_seconds=0.01)
    assert (len(first.points), first.first_us) == (10, first.now_us)
    await harness.pass_time(0.02)
    second = await harness.claim_one(batch=9, lease_seconds=0.01)
    rest = await harness.claim_one(batch=9, lease_seconds=0.01)
    await harness.pass_time(0.02)
    third = await harness.claim_one(batch=9)
    assert [len(claim.points) for claim in (second, rest, third)] == [9, 1, 2]
    for claim in (second, rest, third):
        assert claim.first_us == first.now_us < claim.now_us


async def test_a_slow_owner_settles_nothing_after_a_reclaim_but_its_outcomes_count(harness):
    await harness.arm()
    slow = await harness.claim_one(worker="slow", lease_seconds=0.05)
    heir = await harness.claim_one(worker="heir")
    late = await harness.queue.settlements.settle(
        slow, Settlement(finished=(slow.points[0].member,), outcomes=b"late")
    )
    assert late.lost
    assert await harness.outcomes() == [b"late"]
    settled = await harness.queue.settlements.settle(
        heir, Settlement(chains=(moved(heir.points[0], 60),))
    )
    assert settled.applied == 1


async def test_a_poisonous_point_is_soon_alone_and_its_neighbours_are_settled(harness):
    for number in range(100):
        await harness.arm(name=f"s{number}", uid=_uid_in_shard(harness, 0, number))
    poison = points.schedule_id(_uid_in_shard(harness, 0, 42), "default")
    deadly, settled = [], 0
    while not (deadly and deadly[-1].is_poison):
        claim = await harness.claim_one(batch=100, lease_seconds=0.02)
        if poison in {point.schedule_id for point in claim.points}:
            deadly.append(claim)  # the worker dies of it
            if len(claim.points) == 1:
                await harness.queue.claims.count_crash(claim)
            continue
        finished = tuple(point.member for point in claim.points)
        settled += (
            await harness.queue.settlements.settle(claim, Settlement(finished=finished))
        ).applied
    assert [len(claim.points) for claim in deadly] == [100, 100, 13, 2, 1, 1, 1, 1]
    assert [claim.alone for claim in deadly] == [0, 0, 0, 0, 0, 1, 2, 3]
    assert settled <= 99
    assert (await harness.total()).points == 100 - settled


async def test_an_owner_that_was_cut_off_and_lives_does_not_make_its_point_poison(harness):
    await harness.arm()
    owner = await harness.claim_one(lease_seconds=0.02)
    await harness.queue.claims.count_crash(owner)
    for _ in range(messages.POISON_RECLAIMS + 1):
        heir = await harness.claim_one(worker="heir", lease_seconds=0.02)
        await harness.queue.claims.count_crash(heir)
        assert heir.alone <= 1
        assert not heir.is_poison
        await harness.queue.claims.survive(owner)  # it came back: it did not die of the point
        owner = heir


async def test_a_claim_from_before_the_server_clock_was_put_back_is_not_believed_in_for_an_hour(
    harness,
):
    await harness.arm()
    claim = await harness.claim_one(lease_seconds=10.0)
    await _put_back(harness, claim, hours=1)
    began = claim.held_until - 10.0
    longer = await harness.queue.claims.extend(claim, 10.0)
    assert longer.held_until - began < 60.0
    (chain,) = longer.points
    settled = await harness.queue.settlements.settle(longer, Settlement(finished=(chain.member,)))
    assert (settled.applied, settled.remaining) == (1, 0)


async def test_a_claim_of_a_clock_that_was_far_ahead_is_over(harness):
    await harness.arm()
    dead = await harness.claim_one(lease_seconds=0.3)
    await _put_back(harness, dead, hours=1)
    (heir,) = await harness.claim_all(worker="heir")
    assert (heir.points, heir.reclaimed) == (dead.points, 1)
    settled = await harness.queue.settlements.settle(dead, Settlement(finished=()))
    assert settled.lost


async def _put_back(harness, claim, *, hours):
    """Make the claim's stored times lie this far ahead of the server's clock."""
    later_us = claim.token_us + int(hours * 3_600_000_000)
    names = harness.server.shard(claim.shard)
    commands = [("ZADD", names.claims, later_us, claim.id)] + [
        ("ZADD", names.lane(claim.lanes[point.schedule_id]), 2**52 + later_us, point.member)
        for point in claim.points
    ]
    for command in commands:
        await harness.server.redis.execute_command(*command)


async def test_extending_keeps_the_points_and_their_dues(harness):
    await harness.arm()
    claim = await harness.claim_one(lease_seconds=0.2)
    longer = await harness.queue.claims.extend(claim, 30.0)
    assert longer is not None
    assert longer.held_until > claim.held_until
    await harness.pass_time(0.25)
    assert await harness.claim_all(worker="other") == []
    assert await harness.queue.claims.release(longer) == 1
    (again,) = await harness.claim_all()
    assert again.points == claim.points


async def test_extending_never_shortens_a_lease(harness):
    await harness.arm()
    (claim,) = await harness.claim_all(lease_seconds=30.0)
    same = await harness.queue.claims.extend(claim, 0.001)
    assert same is not None
    assert same.token_us == claim.token_us


async def test_released_points_are_due_at_once_for_others(harness):
    await harness.arm()
    (claim,) = await harness.claim_all(worker="leaving")
    assert await harness.queue.claims.release(claim) == 1
    (again,) = await harness.claim_all(worker="staying")
    assert (again.points, again.reclaimed) == (claim.points, 0)
    assert (await harness.queue.settlements.settle(claim, Settlement(finished=()))).lost


# -- plan, split ------------------------------------------------------------------------------


async def test_planned_slots_belong_to_the_claim_while_the_chain_goes_on(harness):
    await harness.arm()
    (claim,) = await harness.claim_all()
    (chain,) = claim.points
    slots = [a_planned(chain, chain.due_us - n * 1_000_000) for n in (3, 2, 1)]
    split = Settlement(planned=slots, chains=[moved(chain, 60)], outcomes=b"missed")
    for _ in range(2):  # the first reply was lost
        assert (await harness.queue.settlements.settle(claim, split)).not_held == frozenset()
    assert await harness.claim_all(worker="w2") == []
    done = tuple(slot.point.member for slot in slots)
    settled = await harness.queue.settlements.settle(claim, Settlement(finished=done, number=2))
    assert settled == messages.Settled(lost=False, applied=3, remaining=0)
    assert await harness.outcomes() == [b"missed"]
    assert (await harness.total()).points == 1


async def test_a_split_lets_the_next_slot_be_claimed_while_the_first_runs(harness):
    await harness.arm()
    (claim,) = await harness.claim_all()
    (chain,) = claim.points
    slot = a_planned(chain, chain.due_us)
    split = Settlement(planned=[slot], chains=[(chain.member, chain.due_us + 1)])
    assert (await harness.queue.settlements.settle(claim, split)).not_held == frozenset()
    (following,) = await harness.claim_all(worker="w2")
    assert [point.kind for point in following.points] == [points.PointKind.CHAIN]
    settled = await harness.queue.settlements.settle(
        claim, Settlement(finished=(slot.point.member,), number=2)
    )
    assert settled.applied == 1


# -- fairness, limits -------------------------------------------------------------------------


async def test_a_quiet_namespace_is_in_the_first_claim_beside_a_backlog(harness):
    quiet, noisy = _two_namespaces_of_a_shard()
    for number in range(60):
        uid = _uid_in_shard(harness, 0, number, namespace=noisy)
        await harness.arm(name=f"n{number}", namespace=noisy, uid=uid, due_in=-50.0)
    uid = _uid_in_shard(harness, 0, 0, namespace=quiet)
    await harness.arm(name="quiet", namespace=quiet, uid=uid, due_in=-1.0)
    (answer,) = await harness.queue.claims.claim([messages.ShardId(0)], worker="w1", batch=10)
    assert answer.claim is not None
    assert answer.more
    ids = {point.schedule_id for point in answer.claim.points}
    assert points.schedule_id(uid, quiet) in ids
    assert len(ids) <= 10


async def test_a_claim_takes_no_more_than_its_batch_and_says_that_more_is_due(harness):
    for number in range(5):
        await harness.arm(name=f"s{number}", uid=_uid_in_shard(harness, 0, number))
    (answer,) = await harness.queue.claims.claim([messages.ShardId(0)], worker="w1", batch=3)
    assert answer.claim is not None
    assert (len(answer.claim.points), answer.more) == (3, 2)


# -- reading ----------------------------------------------------------------------------------


async def test_a_definition_is_read_as_it_was_written(harness):
    written = harness.definition(name="a" * 200, created_us=1_700_000_000_000_000)
    await harness.queue.writer.upsert(
        [(messages.Arming(definition=written, due_us=1), BLOB)], EPOCH
    )
    (claim,) = await harness.claim_all()
    read = await harness.queue.definitions.read_definitions(claim.shard, [written.id])
    assert read == {written.id: written}
    assert await harness.queue.definitions.blob("default", written.target, claim.shard) == BLOB


async def test_every_definition_is_listed_once_with_its_due(harness):
    due = harness.now_us() + 3_600_000_000
    for number in range(40):
        namespace = f"ns-{number % 3}"
        await harness.arm(name=f"s{number}", namespace=namespace, due_us=due + number)
    await harness.arm(name="suspended", due_in=None, state=definition.State.SUSPENDED)
    listed = [s async for s in _stored(harness)]
    assert len(listed) == 41
    by_name = {stored.name: stored for stored in listed}
    assert by_name["s7"].due_us == due + 7
    assert by_name["s7"].namespace == "ns-1"
    assert by_name["s7"].uid == "uid-of-s7"
    assert by_name["suspended"].due_us is None
    assert by_name["suspended"].state is definition.State.SUSPENDED


async def test_a_namespace_cannot_read_the_blob_of_another(harness):
    await harness.arm(namespace="team-a")
    new = harness.definition(namespace="team-a")
    shard = sharding.shard_of(new.id, 4)
    with pytest.raises(queue_errors.BlobForged):
        await harness.queue.definitions.blob("team-b", new.target, shard)


async def test_outcomes_that_nobody_reads_take_a_bounded_number_of_bytes(harness, monkeypatch):
    monkeypatch.setattr(settling, "LEAST_RUNS_BYTES", 16_000)
    monkeypatch.setattr(settling, "MOST_RUNS_BYTES", 16_000)
    await harness.arm()
    (claim,) = await harness.claim_all()
    written = [f"{number:04}".encode() * 60 for number in range(200)]  # 48 KB
    for number, outcomes in enumerate(written, start=1):
        await harness.queue.settlements.settle(claim, Settlement(outcomes=outcomes, number=number))
    ledger = harness.queue.ledger()
    dropped = await ledger.dropped()
    entries = await ledger.read_outcomes(count=1000)
    kept = [entry.outcomes for entry in entries]
    assert kept == written[-len(kept) :]  # the newest
    assert 8_000 < sum(map(len, kept)) <= 16_000
    assert dropped == {claim.shard: len(written) - len(kept)}
    await ledger.forget_dropped(dropped)
    assert await ledger.dropped() == {}


async def test_outcomes_that_are_read_are_never_dropped(harness, monkeypatch):
    monkeypatch.setattr(settling, "LEAST_RUNS_BYTES", 16_000)
    monkeypatch.setattr(settling, "MOST_RUNS_BYTES", 16_000)
    await harness.arm()
    (claim,) = await harness.claim_all()
    for number in range(1, 200):
        await harness.queue.settlements.settle(
            claim, Settlement(outcomes=b"x" * 240, number=number)
        )
        assert await harness.outcomes() == [b"x" * 240]
    assert await harness.queue.ledger().dropped() == {}


# -- layout and membership --------------------------------------------------------------------


async def test_another_installation_does_not_open_the_index_of_one_that_lives(harness):
    await harness.queue.membership.open(4, EPOCH, by="a/operator")
    with pytest.raises(queue_errors.Foreign, match="a/operator"):
        await harness.queue.membership.open(4, EPOCH, by="b/operator")
    assert await harness.queue.membership.stay("b/operator") is None
    assert await harness.queue.membership.stay("a/operator") == harness.queue.layouts.known()
    await harness.queue.membership.open(4, EPOCH, by="a/operator")


@pytest.mark.parametrize("operation", ["open", "upsert", "remove", "sweep"])
async def test_an_older_term_is_fenced(harness, operation):
    await harness.arm(name="lost", due_in=None)
    await harness.queue.membership.open(4, messages.Epoch(EPOCH + 1))
    stored = harness.definition()
    attempts = {
        "open": lambda: harness.queue.membership.open(4, EPOCH),
        "upsert": harness.arm,
        "remove": lambda: _remove(harness, stored),
        "sweep": lambda: harness.rearm(1),
    }
    with pytest.raises(queue_errors.Fenced):
        await attempts[operation]()


async def test_a_beat_tells_who_lives(harness):
    await harness.queue.membership.beat("w1")
    beat = await harness.queue.membership.beat("w2")
    assert beat.workers == ("w1", "w2")
    assert beat.layout == messages.Layout(number=1, shards=4)
    await harness.queue.membership.goodbye("w1")
    assert (await harness.queue.membership.beat("w2")).workers == ("w2",)
    assert abs(beat.time_us - harness.now_us()) < 5_000_000


# -- waking -----------------------------------------------------------------------------------


async def test_an_insert_before_the_known_head_wakes_the_sleeper(harness):
    await harness.arm(name="tomorrow", uid=_uid_in_shard(harness, 2, 0), due_in=86_400.0)
    wakeups = await _asleep(harness)
    sleeping = asyncio.create_task(wakeups.wait_until_due(60.0))
    await harness.arm(name="now", uid=_uid_in_shard(harness, 2, 1), due_in=-1.0)
    async with asyncio.timeout(60):
        assert await sleeping == (2,)
    await wakeups.close()


async def test_a_settled_chain_wakes_the_sleeper_at_its_next_due(harness):
    wakeups = await _asleep(harness)
    await harness.arm(uid=_uid_in_shard(harness, 1, 0))
    (claim,) = await harness.claim_all()
    await wakeups.wait_until_due(0.2)
    following = moved(claim.points[0], 1.2)
    await harness.queue.settlements.settle(claim, Settlement(chains=(following,)))
    sleeping = asyncio.create_task(wakeups.wait_until_due(60.0))
    async with asyncio.timeout(60):
        assert await sleeping == (1,)
    # The age of a wake-up is only known to half a round trip, which is long on a busy machine. A
    # worker that comes too early by that is told to wait.
    assert harness.now_us() >= following[1] - 600_000
    await wakeups.close()


# -- repair -----------------------------------------------------------------------------------


async def test_an_armed_definition_without_a_chain_gets_one_where_the_caller_says(harness):
    await harness.arm(due_in=None)  # armed, and its chain was lost
    stored = harness.definition()
    assert await harness.rearm(None) == 0
    due = harness.now_us() - 1
    assert await harness.rearm(due) == 1
    (claim,) = await harness.claim_all()
    assert claim.points == (points.chain(stored.id, stored.timing_version, due),)


# -- steps ------------------------------------------------------------------------------------


async def _stored(harness):
    for shard in await harness.shards():
        async for stored in queueing.stored(harness.queue, shard):
            yield stored


async def _remove(harness, stored):
    return await harness.queue.writer.remove(stored.id, stored.uid, stored.namespace, EPOCH)


def _uid_in_shard(harness, shard, number, namespace="default"):
    """Return the n-th uid whose schedule lives in this shard of four."""
    found = (
        f"uid-{n}"
        for n in range(100_000)
        if sharding.shard_of(points.schedule_id(f"uid-{n}", namespace), 4) == shard
    )
    return next(uid for index, uid in enumerate(found) if index == number)


def _two_namespaces_of_a_shard():
    return "quiet", "noisy"


async def _two_in_one_claim(harness):
    for number in range(2):
        await harness.arm(name=f"s{number}", uid=_uid_in_shard(harness, 0, number))
    (claim,) = await harness.claim_all()
    assert len(claim.points) == 2
    return claim, claim.points[1]


async def _asleep(harness):
    """Return wake-ups that have checked every shard once."""
    wakeups = harness.queue.wakeups()
    await wakeups.start()
    async with asyncio.timeout(60):
        seen = await wakeups.wait_until_due(5.0)
    for answer in await harness.queue.claims.claim(seen, worker="sleeper"):
        wakeups.note(answer)
    # a subscription confirmed later rings once more
    while again := await _soon(wakeups, 0.5):
        for answer in await harness.queue.claims.claim(again, worker="sleeper"):
            wakeups.note(answer)
    return wakeups


async def _soon(wakeups, seconds=0.1):
    try:
        return await asyncio.wait_for(wakeups.wait_until_due(seconds), 2 * seconds)
    except TimeoutError:
        return ()


# -- enqueueing ---------------------------------------------------------------------------------


def a_check(definition_, *, generation=1):
    return points.check(definition_.id, definition_.timing_version, generation)


async def test_an_enqueued_occurrence_is_due_at_once_and_leaves_the_chain_alone(harness):
    await harness.arm(due_in=60.0)
    known = harness.definition()
    record = messages.OccurrenceRecord(trigger="Check")
    armed = await harness.queue.occurrences.enqueue(known, a_check(known), record, EPOCH)
    assert armed is messages.Armed.APPLIED
    claim = await harness.claim_one()
    assert [point.member for point in claim.points] == [a_check(known).member]
    assert claim.records[a_check(known).member] == record
    assert 0 < claim.points[0].due_us <= claim.now_us


async def test_an_occurrence_that_waits_or_is_held_is_not_enqueued_again(harness):
    await harness.arm(due_in=60.0)
    known = harness.definition()
    record = messages.OccurrenceRecord(trigger="Check")
    await harness.queue.occurrences.enqueue(known, a_check(known), record, EPOCH)
    again = await harness.queue.occurrences.enqueue(known, a_check(known), record, EPOCH)
    assert again is messages.Armed.UNCHANGED
    await harness.claim_one()
    held = await harness.queue.occurrences.enqueue(known, a_check(known), record, EPOCH)
    assert held is messages.Armed.UNCHANGED
    assert await harness.claim_all() == []


async def test_a_record_is_stored_with_the_occurrences_or_not_at_all(harness):
    await harness.arm(due_in=60.0)
    known, record = harness.definition(), messages.OccurrenceRecord(trigger="Manual")
    wanted = [(a_manual(known), record)]
    enqueue = harness.queue.occurrences.enqueue_many
    await enqueue(known, wanted, EPOCH, ledger=("run r", b"one"))
    await enqueue(known, wanted, EPOCH, ledger=("run r", b"two"))  # the answer was lost
    gone = msgspec.structs.replace(known, uid="00000000-0000-4000-8000-00000000dead")
    with pytest.raises(errors.WorldChanged):
        await enqueue(gone, wanted, EPOCH, ledger=("run r", b"three"))
    ((_, kept),) = (await harness.queue.ledger().records())["run r"]
    assert kept == b"two"


async def test_nothing_is_enqueued_for_a_schedule_that_is_gone(harness):
    await harness.arm(due_in=60.0)
    known = harness.definition()
    await harness.queue.writer.remove(known.id, known.uid, known.namespace, EPOCH)
    with pytest.raises(errors.WorldChanged):
        await harness.queue.occurrences.enqueue(
            known, a_check(known), messages.OccurrenceRecord(), EPOCH
        )
    assert await harness.claim_all() == []


def a_manual(definition_, *, run_uid="run", slot_us=1_700_000_000_000_000):
    return points.manual(definition_.id, slot_us, run_uid, points.PointKind.MANUAL)


async def test_what_a_scheduled_run_overrides_comes_back_with_the_claim(harness):
    await harness.arm(due_in=60.0)
    known = harness.definition()
    record = messages.OccurrenceRecord(
        trigger="Manual", run_uid="run", concurrency="Forbid", payload=b'{"a":1}', signature="kept"
    )
    await harness.queue.occurrences.enqueue(known, a_manual(known), record, EPOCH)
    claim = await harness.claim_one()
    assert claim.records == {a_manual(known).member: record}


async def test_a_withdrawn_occurrence_is_gone_and_the_others_stay(harness):
    await harness.arm(due_in=60.0)
    known = harness.definition()
    record = messages.OccurrenceRecord(trigger="Manual", run_uid="run")
    other = a_manual(known, run_uid="other")
    await harness.queue.occurrences.enqueue(known, a_manual(known), record, EPOCH)
    await harness.queue.occurrences.enqueue(known, other, record, EPOCH)
    assert (
        await harness.queue.occurrences.withdraw(known, a_manual(known), EPOCH)
        is messages.Armed.APPLIED
    )
    again = await harness.queue.occurrences.withdraw(known, a_manual(known), EPOCH)
    assert again is messages.Armed.UNCHANGED
    claim = await harness.claim_one()
    assert [point.member for point in claim.points] == [other.member]


async def test_a_withdrawn_occurrence_disappears_under_the_worker_that_holds_it(harness):
    await harness.arm(due_in=60.0)
    known = harness.definition()
    record = messages.OccurrenceRecord(trigger="Manual", run_uid="run")
    point = a_manual(known)
    await harness.queue.occurrences.enqueue(known, point, record, EPOCH)
    claim = await harness.claim_one()
    assert await harness.queue.occurrences.withdraw(known, point, EPOCH) is messages.Armed.HELD
    retry = messages.Occurrence(
        point=dataclasses.replace(point, due_us=harness.now_us()),
        record=record,
        source=point.member,
    )
    await harness.queue.settlements.settle(claim, Settlement(occurrences=(retry,)))
    assert await harness.claim_all() == []


async def test_a_due_point_does_not_wait_behind_expired_claims_of_deleted_namespaces(harness):
    for number in range(12):
        gone = {"name": "gone", "namespace": f"gone-{number}"}
        gone["uid"] = _uid_in_shard(harness, 0, 0, gone["namespace"])
        await harness.arm(**gone)
        await harness.claim_one(worker="dead", lease_seconds=2.0)
        await _remove(harness, harness.definition(**gone))
    await harness.pass_time(2.1)
    await harness.arm(name="here", uid=_uid_in_shard(harness, 0, 0))
    waited = 0.0
    while not (answer := (await harness.look())[0]).claim:
        waited += answer.wait_seconds
        await harness.pass_time(answer.wait_seconds)
    assert len(answer.claim.points) == 1
    assert waited < 0.5
