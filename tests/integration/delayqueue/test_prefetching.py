"""Definitions that come with the claim: as new as if they had been read after it."""

from __future__ import annotations

import asyncio

from duepoint.delayqueue import messages, sharding
from duepoint.delayqueue.wire import scripting
from duepoint.schedules import points
from tests.conformance.test_members import BLOB, ONCE, a_set, a_write
from tests.support import queueing


async def rearmed(harness, seconds=0.05):
    """A schedule whose chain this worker has moved on; its id."""
    await harness.arm(generation=1)
    claim = await harness.claim_one()
    (chain,) = claim.points
    next_us = harness.now_us() + int(seconds * 1_000_000)
    following = messages.Planning(chain=chain, slots=(), next_due_us=next_us)
    assert await harness.queue.settlements.split(claim, [following]) == (True,)
    return chain.schedule_id


async def test_a_claim_of_a_chain_we_moved_on_brings_its_definition(harness):
    schedule_id = await rearmed(harness)
    claim = await harness.claim_one()
    assert claim.definitions[schedule_id] == harness.definition(generation=1)


async def test_who_is_woken_for_a_new_schedule_has_its_definition_with_the_claim(harness):
    wakeups = harness.queue.wakeups()
    assert await wakeups.wait_until_due(0.0)  # every shard, as at first
    await wakeups.start()
    assert await wakeups.wait_until_due(60.0)  # and once more, now that it is subscribed
    await harness.look()
    await harness.arm(due_in=0.3)
    claim = None
    async with asyncio.timeout(60):
        while claim is None:
            due = await wakeups.wait_until_due(60.0)
            (claimed,) = await harness.queue.claims.claim(due, worker="w1")
            wakeups.note(claimed)
            claim = claimed.claim
    known = harness.definition()
    assert claim.definitions == {known.id: known}
    await wakeups.close()


async def test_a_look_at_a_shard_names_the_members_of_a_set_that_are_due_soon(harness):
    made = a_set(harness.queue)
    await harness.queue.sets.store(made, BLOB, queueing.EPOCH)
    at_us = harness.now_us() + 900_000
    row = a_write(rule=ONCE, at_us=at_us, payload=b"[1]")
    later = a_write("b", rule=ONCE, at_us=at_us + 60_000_000)
    await harness.queue.members.put(made, [row, later])
    member = points.member_id(made.identity, row.id)
    shard = sharding.home(member, harness.queue.index.known_layout())
    await harness.queue.definitions.read_definitions(shard, [member])  # it knows set and rule
    for _ in range(2):  # the first look learns the lane
        (looked,) = await harness.queue.claims.claim([shard], worker="w1")
        assert looked.claim is None
    assert harness.queue.prefetch.known(shard, at_us + 60_000_000) == 1
    await harness.pass_time(1.0)
    (claimed,) = await harness.queue.claims.claim([shard], worker="w1")
    assert claimed.claim.definitions[member].payload == b"[1]"


async def test_an_edit_since_the_last_claim_is_seen(harness):
    schedule_id = await rearmed(harness)
    await harness.arm(generation=2, timing_generation=1, keep_chain=True)
    claim = await harness.claim_one()
    assert claim.definitions[schedule_id].generation == 2


async def test_a_schedule_deleted_meanwhile_is_said_to_be_gone(harness):
    schedule_id = await rearmed(harness)
    known = harness.definition(generation=1)
    await harness.queue.writer.remove(schedule_id, known.uid, known.namespace, messages.Epoch(7))
    await harness.arm(name="other", due_in=0.05)
    claim = await harness.claim_one()
    assert claim.definitions.get(schedule_id) is None
    assert [point.schedule_id for point in claim.points] != [schedule_id]


async def test_what_a_restarted_server_read_before_the_claim_is_read_again(harness, monkeypatch):
    schedule_id = await rearmed(harness)
    await harness.pass_time(0.1)
    sent = []
    round_trip = scripting.Scripts._round_trip

    async def noting(self, calls, **options):
        sent.append([type(call).__name__ for call in calls])
        if len(sent) == 1:
            await harness.server.redis.script_flush()
        return await round_trip(self, calls, **options)

    monkeypatch.setattr(scripting.Scripts, "_round_trip", noting)
    shard = messages.ShardId(int.from_bytes(schedule_id, "big") % len(await harness.shards()))
    (answer,) = await harness.queue.claims.claim([shard], worker="w1")
    assert answer.claim.definitions[schedule_id].generation == 1
    assert len(sent) >= 2
    assert all(trip == ["ScriptCall", "tuple", "tuple"] for trip in sent)


async def test_a_schedule_is_foreseen_once(harness):
    await rearmed(harness)
    claim = await harness.claim_one()
    await harness.queue.claims.release(claim)
    again = await harness.claim_one()
    assert again.definitions == {}
