"""Many that continue in one moment go on a few in each turn of the loop, in their order."""

from __future__ import annotations

import asyncio

from duepoint.worker import claim_order

AT_ONCE = 4


async def test_others_have_their_turns_between_those_of_a_burst():
    few = claim_order.FewInATurn(AT_ONCE)
    done = []

    async def one(number: int) -> None:
        await few.turn()
        done.append(number)

    tasks = [asyncio.create_task(one(number)) for number in range(10 * AT_ONCE)]
    steps = []
    while len(done) < len(tasks):
        before = len(done)
        await asyncio.sleep(0)
        steps.append(len(done) - before)
    assert max(steps) == AT_ONCE
    assert done == list(range(len(tasks)))
