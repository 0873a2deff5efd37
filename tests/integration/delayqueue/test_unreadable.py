"""What this version cannot read is told, buried once, and holds up nobody."""

from __future__ import annotations

import msgspec
import pytest

from duepoint import telemetry
from duepoint.clock import SystemClock
from duepoint.delayqueue import errors, messages, sharding
from duepoint.delayqueue.definitions import codec
from duepoint.delayqueue.wire import scripting
from duepoint.schedules import actions, points
from duepoint.worker import firing
from tests.conformance.test_members import BLOB, ONCE, a_set, a_write
from tests.fakes import recordingtarget
from tests.support import queueing, workplace

BROKEN = {
    "of another format": lambda record: b"\x63" + record[1:],
    "cut at its end": lambda record: record[:-1],
    "cut at its beginning": lambda record: record[:5],
    "empty": lambda record: b"",
}


@pytest.fixture(params=BROKEN.values(), ids=BROKEN.keys())
async def broken(request, harness):
    """A due schedule called ``report`` whose definition was damaged."""
    await harness.arm()
    bucket, stored = _place(harness)
    client = harness.server.redis
    record = await client.hget(bucket, stored.id)
    await client.hset(bucket, stored.id, request.param(record))
    return stored


async def test_a_definition_that_cannot_be_read_is_not_taken_for_a_deleted_one(harness, broken):
    before = telemetry.unreadable_total.labels("definition")._value.get()
    shard = sharding.shard_of(broken.id, 4)
    found = await harness.queue.definitions.read_definitions(shard, [broken.id])
    assert (dict(found), found.unreadable) == ({}, {broken.id})
    assert telemetry.unreadable_total.labels("definition")._value.get() == before + 1


async def test_a_text_that_is_forgotten_while_a_set_is_read_is_not_taken_for_lost(
    harness, monkeypatch
):
    """Another connection may find out just then that the server is another."""
    made = a_set(harness.queue)
    await harness.queue.sets.store(made, BLOB, queueing.EPOCH)
    row = a_write(at_us=harness.now_us() + 60_000_000, rule=ONCE)
    await harness.queue.members.put(made, [row])
    member = points.member_id(made.identity, row.id)
    shard = sharding.home(member, harness.queue.index.known_layout())
    reader = harness.queue.definitions
    usual = reader.set_entries

    async def forgetting(*args):
        found = await usual(*args)
        reader.interned.forget_all()
        return found

    with monkeypatch.context() as patched:
        patched.setattr(reader, "set_entries", forgetting)
        with pytest.raises(errors.LayoutChanged):
            await reader.read_definitions(shard, [member])
    found = await reader.read_definitions(shard, [member])
    assert (set(found), found.unreadable) == ({member}, frozenset())


async def test_its_point_is_a_dead_letter_once_and_the_neighbours_fire(harness, broken):
    sound = actions.encode(
        actions.Action(target=actions.WebhookAction(url="https://hooks.example.com/x"))
    )
    digest = harness.queue.signed_blobs.digest("default", sound)
    arming = harness.arming(name="sound", due_in=-0.5, target=digest)
    await harness.queue.writer.upsert([(arming, sound)], queueing.EPOCH)
    target = recordingtarget.RecordingTarget(SystemClock())
    worker = _worker(harness, target)
    for claim in await harness.claim_all():
        await workplace.carry_out(worker, claim)
    assert [firing.name for firing in target.fired] == ["sound"]
    again = queueing.members(await harness.claim_all())  # the sound one, if its minute is over
    assert not any(member.startswith(broken.id) for member in again)
    (letter,) = await _letters(harness)
    assert letter.member == broken.id + broken.timing_version
    assert letter.entry["message"].startswith("the definition of its schedule cannot be read")


async def test_the_objects_truth_replaces_it_at_the_same_generation(harness, broken):
    assert await harness.arm(due_in=-2.0) is messages.Armed.APPLIED
    assert (await harness.queue.definitions.definition(broken.id)).name == "report"
    (claim,) = await harness.claim_all()
    assert len(claim.points) == 1


async def test_it_can_be_removed(harness, broken):
    removed = await harness.queue.writer.remove(broken.id, broken.uid, "default", queueing.EPOCH)
    assert removed is messages.Armed.APPLIED
    bucket, _ = _place(harness)
    assert await harness.server.redis.hexists(bucket, broken.id) == 0


async def test_an_occurrence_whose_record_cannot_be_read_is_a_dead_letter_once(harness):
    await harness.arm()
    (claim,) = await harness.claim_all()
    (chain,) = claim.points
    retry = queueing.a_retry(chain)
    await harness.queue.settlements.settle(
        claim, messages.Settlement(occurrences=(retry,), chains=(queueing.moved(chain, 3600),))
    )
    names = harness.server.shard(claim.shard)
    await harness.server.redis.hset(names.occrec, retry.point.member, b"\x96\x63")
    target = recordingtarget.RecordingTarget(SystemClock())
    for again in await harness.claim_all():
        assert again.unreadable == {retry.point.member}
        await workplace.carry_out(_worker(harness, target), again)
    assert target.fired == []
    assert [letter.member for letter in await _letters(harness)] == [retry.point.member]
    assert await harness.outcomes()  # the slot has not ended without a trace
    assert (await harness.total()).points == 1


@pytest.mark.parametrize("uid", ["0d4b0a52-6b39-4d0c-9c51-3f1f2c1b7a10", "no uuid at all"])
@pytest.mark.parametrize("inline", [True, False], ids=["own rule", "shared rule"])
async def test_a_sound_record_is_known_as_such_whatever_is_in_it(harness, uid, inline):
    rule = queueing.USUAL["rule"]
    if inline:
        timing = msgspec.structs.replace(rule.timing, start_us=queueing.CREATED_US)
        rule = msgspec.structs.replace(rule, timing=timing)
    odd = {"uid": uid, "name": "n" * 150, "rule": rule, "not_before_us": 5, "generation": 300}
    assert await harness.arm(**odd) is messages.Armed.APPLIED
    assert await harness.arm(**odd) is messages.Armed.UNCHANGED


def _place(harness):
    stored = harness.definition()
    names = harness.server.shard(sharding.shard_of(stored.id, 4))
    return names.bucket_of(stored.id, harness.server.buckets), stored


def _worker(harness, target):
    bounds = firing.Bounds(concurrency=10, lease_seconds=10)
    return firing.Firer(queue=harness.queue, target=target, clock=SystemClock(), bounds=bounds)


async def _letters(harness):
    return [
        letter
        for shard in await harness.shards()
        for letter in await harness.queue.dead_letters.newest(shard)
    ]


def test_the_format_that_scripts_read_is_ours():
    assert f"local FORMAT = {codec.FORMAT}\n" in scripting.source("put")
