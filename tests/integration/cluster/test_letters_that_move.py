"""Dead letters of a cluster follow their schedules when the index is cut anew."""

from __future__ import annotations

import asyncio
import uuid

from duepoint.delayqueue import deadletters, messages, sharding
from duepoint.delayqueue.members import values
from duepoint.schedules import rule as rules
from duepoint.schedules.sets import setrecord, setspec
from duepoint.worker import endings
from tests.support import queueing

BLOB = b'{"target":{"kind":"stream","name":"ticks"}}'
SOON = rules.Rule(timing=rules.Timing(schedules=("@every 1s",)))
COUNT = 12


async def _bury(harness):
    """A slot of each chain that is due is given up; the chains go on."""
    for claim in await harness.claim_all():
        ids = {point.schedule_id for point in claim.points}
        found = await harness.queue.definitions.read_definitions(claim.shard, ids)
        dead, chains = [], []
        for point in claim.points:
            known = found[point.schedule_id]
            slot = {"slot_us": str(point.slot_us), "trigger": "Schedule", "reason": "Timeout"}
            dead.append(messages.DeadLetter(member=b"", entry=endings.origin(known) | slot))
            chains.append(queueing.moved(point, 3_600))
        settlement = messages.Settlement(dead=tuple(dead), chains=tuple(chains))
        await harness.queue.settlements.settle(claim, settlement)


async def _cut_anew(harness, shards):
    queue = harness.queue
    former = sharding.own_shards(await queue.layouts.read())
    await queue.resharding.announce(shards, queueing.EPOCH)
    for shard in former:
        async for _ in queue.mover.move_once(shard, queueing.EPOCH):
            pass
        async with asyncio.timeout(60):
            while await queue.resharding.close(shard, queueing.EPOCH):
                await harness.outcomes()
    await queue.resharding.end(queueing.EPOCH)


async def test_letters_of_members_can_be_replayed_after_the_index_was_cut_anew(clustered):
    queue = clustered.queue
    made = setrecord.SetRecord(
        namespace="shop",
        name="reminders",
        uid=str(uuid.uuid4()),
        generation=1,
        state=setrecord.SetState.READY,
        spread=0,
        target=queue.signed_blobs.digest("shop", BLOB),
        settings=setspec.SetSettings(),
    )
    await queue.sets.store(made, BLOB, queueing.EPOCH)
    writes = [values.MemberWrite(id=f"m{number}", rule=SOON) for number in range(COUNT)]
    await queue.members.put(made, writes)
    await clustered.pass_time(2.5)
    await _bury(clustered)
    await _cut_anew(clustered, 16)
    page = await queue.dead_letters.page(made.identity.text.decode(), limit=100)
    assert len(page.letters) == COUNT
    answers = [await queue.dead_letters.replay(letter) for letter in page.letters]
    assert set(answers) == {deadletters.Replayed.APPLIED}
