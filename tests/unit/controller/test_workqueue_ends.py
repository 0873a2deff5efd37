"""What ends a work queue, and what it repeats."""

from __future__ import annotations

import asyncio

import pytest

from duepoint import errors
from duepoint.controller.workqueue import WorkQueue
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
