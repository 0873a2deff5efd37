"""What the stream of outcomes of a shard holds while nobody reads it."""

from __future__ import annotations

import os

from duepoint.runs import run, setruns
from duepoint.runs.run import RunState
from duepoint.runs.setruns import SetTally
from duepoint.schedules.sets import identity


async def told(bench, outcomes: bytes) -> None:
    """Of a claim that is lost: its outcomes are written all the same."""
    await bench.settle(os.urandom(12), outcomes=(outcomes,))


async def test_outcomes_of_long_ago_go_and_are_counted(bench):
    for number in range(1, 301):
        await bench.client.xadd(bench.names.runs, {"o": b"old"}, id=f"{number}-0")
    await told(bench, b"new")
    kept = [fields[b"o"] for _, fields in await bench.client.xrange(bench.names.runs)]
    assert kept.pop() == b"new"
    assert len(kept) < 100  # less than a node of the stream
    dropped = await bench.client.hget(bench.names.meta, "runs_dropped")
    assert int(dropped) == 300 - len(kept)


async def test_a_script_drops_no_more_than_two_of_sixteen_parts(bench):
    """Of small entries: some 2 ms; all of them at a time would be 20."""
    step, count = 16_000_000 // 16, 500
    pipeline = bench.client.pipeline(transaction=False)
    for number in range(1, 16 * count):
        pipeline.xadd(bench.names.runs, {"o": b"x"}, id=f"9000000000000-{number}")
    await pipeline.execute()
    cuts = " ".join(f"9000000000000-{number * count}" for number in range(1, 17))
    await bench.client.hset(bench.names.meta, mapping={"runs_in": step - 10, "runs_cuts": cuts})
    before = await bench.client.xlen(bench.names.runs)
    await told(bench, b"one more")
    dropped = before + 1 - await bench.client.xlen(bench.names.runs)
    assert count < dropped <= 2 * count


def of_members(succeeded: int, owner: identity.SetIdentity, slot_us: int = 7) -> bytes:
    """The outcomes of so many members."""
    event = run.RunEvent(
        uid="member",
        namespace="shop",
        name="a",
        generation=1,
        slot_us=slot_us,
        trigger="Schedule",
        state=RunState.SUCCEEDED,
        reason="",
        at_us=9,
        owner=owner,
    )
    return run.pack([event] * succeeded)


async def test_members_are_counted_once_however_often_a_settlement_is_sent(bench):
    owner = identity.SetIdentity("uid-1", "shop", "reminders")
    member, claim_id = bytes(12), os.urandom(12)
    await bench.put(member, 1_000)
    await bench.claim(claim_id)
    for number, outcomes in ((1, of_members(3, owner)), (1, of_members(3, owner))):
        await bench.settle(claim_id, outcomes=(outcomes,), number=number)
    await bench.settle(claim_id, outcomes=(of_members(2, owner, slot_us=5),), number=2)
    await bench.settle(claim_id, finished=(member,), outcomes=(of_members(4, owner),), number=3)
    await bench.settle(claim_id, outcomes=(of_members(4, owner),), number=3)  # its claim has ended
    stored = await bench.client.hget(bench.names.meta, "tuid-1")
    assert setruns.read(stored) == SetTally(succeeded=9, newest_slot_us=7)
    assert await bench.client.xlen(bench.names.runs) == 0
