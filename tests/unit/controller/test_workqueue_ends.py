"""What ends a work queue, and what it repeats."""

from __future__ import annotations

import asyncio

import pytest

from duepoint import errors
from duepoint.controller.workqueue import Batches, WorkQueue
from duepoint.delayqueue import errors as queue_errors
from tests.fakes.fakeclock import FakeClock


async def _run(work, *troubles):
    """Runs until the handler has raised each of these and then succeeded."""
    left, done = list(troubles), asyncio.Event()

    async def handle(_):
        if left:
            raise left.pop(0)
        done.set()

    work.put("key", "item")
    return asyncio.create_task(work.run(handle, 1)), done


async def test_a_layout_that_changes_is_looked_at_again_where_only_a_newer_leader_ends_it():
    clock = FakeClock()
    work = WorkQueue(clock, "not done", ends=(queue_errors.Fenced,))
    task, done = await _run(work, queue_errors.LayoutChanged("resharded"))
    await clock.advance(1.0)
    async with asyncio.timeout(1):
        await done.wait()
    task.cancel()


async def test_a_newer_leader_ends_it():
    work = WorkQueue(FakeClock(), "not done", ends=(queue_errors.Fenced,))
    task, _ = await _run(work, queue_errors.Fenced("a newer term"))
    with pytest.raises(ExceptionGroup):
        async with asyncio.timeout(1):
            await task


async def test_a_server_that_names_a_wait_is_left_alone_for_so_long():
    clock = FakeClock()
    work = WorkQueue(clock, "not done")
    task, done = await _run(work, errors.TryLater("slow down", retry_after_seconds=40.0))
    await clock.advance(39.0)
    assert not done.is_set()
    await clock.advance(2.0)
    async with asyncio.timeout(1):
        await done.wait()
    task.cancel()


async def _worked_together(clock, trouble, items=(1, 2, 3)):
    """The work on these items, of which the second raises where it is one of many."""
    together: list[list[int]] = []
    alone: list[int] = []

    async def many(items):
        together.append(items)
        if 2 in items:
            raise trouble
        return [None] * len(items)

    async def one(item):
        alone.append(item)
        if item == 2 and alone.count(2) == 1:
            raise trouble

    work: WorkQueue[int] = WorkQueue(clock, "not done", lambda _: True)
    for item in items:
        work.put(str(item), item)
    task = asyncio.create_task(work.run(one, 1, Batches(many, most=10, workers=1)))
    await clock.settle()
    return work, task, together, alone


async def test_a_bug_in_one_of_many_does_not_end_the_work_on_the_others():
    clock = FakeClock()
    work, task, together, alone = await _worked_together(clock, RuntimeError("a bug"))
    await clock.advance(0.5)  # the first wait at its longest; the second is at least as long
    assert sorted(alone) == [1, 2, 3]
    await clock.advance(2)
    assert sorted(alone) == [1, 2, 2, 3]
    assert len(work) == 0
    work.put("2", 5)
    await clock.settle()
    assert together == [[1, 2, 3], [5]]  # what has succeeded is worked on with others again
    task.cancel()


async def test_a_newer_leader_ends_the_work_on_many_too():
    _, task, _, _ = await _worked_together(FakeClock(), queue_errors.Fenced("a newer term"))
    with pytest.raises(ExceptionGroup):
        async with asyncio.timeout(1):
            await task
