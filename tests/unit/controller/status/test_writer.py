"""The small machines beneath the services: queue, work queue, resync rhythm, index watch."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from duepoint import errors, services
from duepoint.controller.maintenance.indexwatch import IndexWatch
from duepoint.controller.workqueue import WorkQueue
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages
from tests.fakes.fakeclock import FakeClock
from tests.support.terms import a_term
from tests.support.virtualqueue import VirtualQueue

EPOCH = messages.Epoch(1)


@contextlib.asynccontextmanager
async def running(clock: FakeClock, *works):
    tasks = [asyncio.create_task(work) for work in works]
    await clock.settle()
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# -- queue ------------------------------------------------------------------------------------


# -- work queue --------------------------------------------------------------------------------


async def test_a_key_is_never_worked_on_twice_at_once_and_news_are_done_afterwards():
    clock = FakeClock()
    queue: WorkQueue[int] = WorkQueue(clock, "not done")
    begun, ended = [], []

    async def handle(item: int) -> None:
        begun.append(item)
        await clock.sleep(1)
        ended.append(item)

    async with running(clock, queue.run(handle, 3)):
        queue.put("a", 1)
        await clock.settle()
        queue.put("a", 2)
        queue.put("a", 3)
        await clock.settle()
        assert begun == [1]
        await clock.advance(1)
        assert (begun, ended) == ([1, 3], [1])


@pytest.mark.parametrize("trouble", [errors.QueueUnavailable("away"), ValueError("a bug")])
async def test_what_raises_is_tried_again_and_holds_up_no_other(trouble):
    clock = FakeClock()
    queue: WorkQueue[int] = WorkQueue(clock, "not done")
    done = []

    async def handle(item: int) -> None:
        done.append(item)
        if item == 1 and done.count(1) < 3:
            raise trouble

    async with running(clock, queue.run(handle, 1)):
        queue.put("a", 1)
        queue.put("b", 2)
        await clock.settle()
        assert done == [1, 2]
        await clock.advance(3)
        assert done == [1, 2, 1, 1]
        await clock.advance(60)
        assert done.count(1) == 3


async def test_a_newer_leader_ends_the_workers():
    async def handle(_item: int) -> None:
        raise queue_errors.Fenced("a newer leader")

    queue: WorkQueue[int] = WorkQueue(FakeClock(), "not done")
    queue.put("a", 1)
    with pytest.raises(ExceptionGroup) as ended:
        await queue.run(handle, 1)
    assert ended.group_contains(queue_errors.Fenced)


# -- resync rhythm -----------------------------------------------------------------------------


# -- index watch and sweep ---------------------------------------------------------------------


async def an_index_watch(
    clock: FakeClock, queue: VirtualQueue, suspicions: list, outages=None, losses=None
):
    losses, term = [] if losses is None else losses, a_term(clock, queue=queue, epoch=EPOCH)
    term.services.resync.request = lambda: suspicions.append(clock.monotonic())
    term.services.jobs.sync.late.record_lost_claims = losses.append
    return IndexWatch(
        term,
        layout=await queue.membership.open(4, EPOCH),
        outages=lambda: len(outages or ()),
    )


async def test_shards_that_went_with_their_server_are_made_again_and_filled():
    clock = FakeClock()
    queue, suspicions, losses = VirtualQueue(clock), [], []
    watch = await an_index_watch(clock, queue, suspicions, losses=losses)
    opened, open_layout = [], queue.membership.open

    async def missing():
        return () if opened else (messages.ShardId(1),)

    async def noting(*args, **named):
        opened.append(args)
        return await open_layout(*args, **named)

    queue.health.keepalive, queue.membership.open = missing, noting
    async with running(clock, watch.run()):
        await clock.advance(10)
        assert len(opened) == 1
        assert len(suspicions) == len(losses) == 1
        await clock.advance(60)
        assert len(suspicions) == 1


async def test_a_server_that_took_over_is_noticed_at_the_next_look():
    clock = FakeClock()
    queue, suspicions = VirtualQueue(clock), []
    term = a_term(clock, queue=queue, epoch=EPOCH)
    term.services.resync.request = lambda: suspicions.append(clock.monotonic())
    watch = IndexWatch(
        term,
        layout=await queue.membership.open(4, EPOCH),
        outages=lambda: queue.health.upheavals,
    )

    async def meets_another():
        queue.servers.changes.note_upheaval()  # the keepalive is what connects anew
        return ()

    async with running(clock, watch.run()):
        await clock.advance(10)
        assert suspicions == []
        queue.health.keepalive = meets_another
        await clock.advance(8)
        assert len(suspicions) == 1


async def test_a_server_that_becomes_unfit_is_told_of_until_it_is_fit_again():
    clock = FakeClock()
    queue, health = VirtualQueue(clock), services.Health()
    watch = await an_index_watch(clock, queue, [])
    watch._term.health = health
    found = []

    async def problems(**_):
        return tuple(found)

    queue.health.problems = problems
    async with running(clock, watch.run()):
        await clock.advance(10)
        found.append("maxmemory-policy is allkeys-lru")
        await clock.advance(70)
        assert "allkeys-lru" in health.troubles()["queue server"]
        found.clear()
        await clock.advance(10)
        assert "queue server" not in health.troubles()


# -- kopf --------------------------------------------------------------------------------------
