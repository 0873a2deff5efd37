"""Many that continue in one moment go on a few in each turn of the loop, in their order."""

from __future__ import annotations

import asyncio

from duepoint.worker import claim_order

AT_ONCE = 4


async def test_a_turn_of_the_loop_passes_before_one_more_than_a_few():
    few = claim_order.FewInATurn(AT_ONCE)
    turned = asyncio.Event()
    asyncio.get_running_loop().call_soon(turned.set)
    for _ in range(AT_ONCE):
        await few.turn()
    assert not turned.is_set()
    await few.turn()
    assert turned.is_set()


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


async def test_who_is_cancelled_keeps_no_other_waiting():
    few = claim_order.FewInATurn(AT_ONCE)
    tasks = [asyncio.create_task(few.turn()) for _ in range(4 * AT_ONCE)]
    await asyncio.sleep(0)
    for task in tasks[AT_ONCE : 3 * AT_ONCE]:
        task.cancel()
    left = tasks[:AT_ONCE] + tasks[3 * AT_ONCE :]
    async with asyncio.timeout(20):
        await asyncio.gather(*left)


async def test_many_at_once_have_a_turn_alone_and_small_ones_go_first():
    few = claim_order.FewInATurn(AT_ONCE)
    done: list[int] = []

    async def one(count: int) -> None:
        await few.turn(count)
        done.append(count)

    tasks = [asyncio.create_task(one(count)) for count in (AT_ONCE, 300, 1, 100, 3, 200, 2)]
    steps = []
    while len(done) < len(tasks):
        before = len(done)
        await asyncio.sleep(0)
        steps.append(done[before:])
    assert [step for step in steps if step] == [[AT_ONCE], [1, 2, 3], [100], [200], [300]]


async def test_a_large_one_does_not_wait_for_all_small_ones_that_come_later():
    few = claim_order.FewInATurn(AT_ONCE)
    await few.turn(AT_ONCE)
    large = asyncio.create_task(few.turn(20))
    small: list[asyncio.Task[None]] = []
    async with asyncio.timeout(10):
        while not large.done():
            small.append(asyncio.create_task(few.turn(AT_ONCE)))
            await asyncio.sleep(0)
    await asyncio.gather(*small)
