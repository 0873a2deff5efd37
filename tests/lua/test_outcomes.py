"""What the stream of outcomes of a shard holds while nobody reads it."""

from __future__ import annotations

import os


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
