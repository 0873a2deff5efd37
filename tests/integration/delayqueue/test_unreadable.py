"""What this version cannot read is told, buried once, and holds up nobody."""

from __future__ import annotations

import pytest

from duepoint import telemetry
from duepoint.clock import SystemClock
from duepoint.delayqueue import messages, sharding
from duepoint.schedules import actions
from duepoint.worker import firing
from tests.fakes import recordingtarget
from tests.fakes.nojobs import no_jobs
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


def _place(harness):
    stored = harness.definition()
    names = harness.server.shard(sharding.shard_of(stored.id, 4))
    return names.bucket_of(stored.id, harness.server.buckets), stored


def _worker(harness, target):
    return firing.Firer(
        queue=harness.queue,
        targets={"webhook": target, "job": target},
        streams=target,
        clock=SystemClock(),
        places=10,
        lease_seconds=10,
        jobs=no_jobs(),
    )


async def _letters(harness):
    return [letter async for letter in harness.queue.dead_letters.newest()]
