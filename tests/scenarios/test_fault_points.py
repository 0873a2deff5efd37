"""A story with every kind of work, with a death or an error at each of its fault points.

Two leaders follow each other, workers come and go, Schedules are edited and deleted, a backfill is
cut short, a set is deleted. Whatever fault is injected, the story ends as without it: each slot of
Jobs and of a stream in our Redis came once, each webhook at least once, and the statuses, the
definitions and the sets match the objects.
"""

from __future__ import annotations

import asyncio
import collections

import pytest

from duepoint import errors
from duepoint.faults import FaultPoint
from duepoint.kube import errors as kube_errors
from duepoint.kube import jobbuilder, port, times
from duepoint.kube import jobs as kubejobs
from duepoint.targets.stream.target import StreamTarget
from tests.support import faultplan
from tests.unit.controller.runworld import NAMESPACE, RunWorld
from tests.unit.controller.setworld import SetWorld

SECOND = 1_000_000
#: Seconds after the beginning: the newest slot that counts, and the end of the story.
LAST_SLOT, END = 60, 140
EVERY = 10

#: Points at which a request to the API server fails; at the others, a request to the queue.
_OF_THE_API = {
    FaultPoint.BEFORE_STATUS_WRITE,
    FaultPoint.AFTER_STATUS_WRITE,
    FaultPoint.BEFORE_JOB_DELETED,
    FaultPoint.AFTER_JOB_DELETED,
}
#: The points of operator and worker, except those of an election and of a server's index.
POINTS = tuple(FaultPoint)[
    tuple(FaultPoint).index(FaultPoint.AFTER_SCHEDULES_LISTED) : tuple(FaultPoint).index(
        FaultPoint.AFTER_QUEUE_GREETING
    )
]


class FaultWorld(RunWorld, SetWorld):
    """The whole installation, and the effects of its work."""

    def __init__(self, plan: faultplan.FaultPlan) -> None:
        super().__init__()
        self.plan = plan
        self.streams = StreamTarget(self.clock, external=None)
        self.began_us = self.clock.now_us()
        self.made: list[port.Metadata] = []
        self._parts: dict[str, asyncio.Task[None]] = {}

    # -- parts -------------------------------------------------------------------------------

    async def begin_leader(self, epoch: int) -> None:
        await self._begin(f"leader-{epoch}", self._lead(epoch))

    async def begin_worker(self, name: str) -> None:
        await self._begin(name, self._work(name))

    async def end_part(self, name: str) -> None:
        """Tell a part to end, as by SIGTERM; a dead one does nothing."""
        self._parts[name].cancel()
        await self.clock.settle()

    async def end(self) -> None:
        self.plan.end()
        for task in self._parts.values():
            task.cancel()
        await asyncio.gather(*self._parts.values(), return_exceptions=True)

    async def _begin(self, name, work) -> None:
        with faultplan.part(name):
            self._parts[name] = asyncio.create_task(work)
        await self.clock.settle()

    async def _lead(self, epoch: int) -> None:
        async with self.leader(epoch):
            index = self.services.index
            index.sweep_seconds = 20.0
            index.compared()
            await index.sweep()

    async def _work(self, name: str) -> None:
        async with self.working(name) as task:
            await task

    # -- time and what came of it -------------------------------------------------------------

    async def until(self, second: float) -> None:
        """Advance to this second; Jobs end as soon as they appear."""
        while (left := second - (self.clock.now_us() - self.began_us) / SECOND) > 0:
            await self.clock.advance(min(left, 1.0))
            await self.finish_jobs()

    def deliveries(self, name: str) -> collections.Counter[int]:
        """Return how often each slot was delivered, by its second after the beginning."""
        if name == "jobs":
            slots = [
                times.parse_us(made.annotations[jobbuilder.SCHEDULED_TIME]) for made in self.made
            ]
        elif name == "ticks":
            entries = [one for each in self.queue.stream_entries.values() for one in each]
            slots = [int(entry["slot"]) * SECOND for entry in entries]
        else:
            slots = [fired.slot_us for fired in self.target.fired if fired.name == name]
        return collections.Counter((slot_us - self.began_us) // SECOND for slot_us in slots)

    async def watch_jobs(self) -> None:
        """Record every Job ever created, even if it is deleted afterwards."""
        async for change in self.api.watch("/apis/batch/v1/jobs", kubejobs.Job, "0"):
            if change.type is port.ChangeType.ADDED:
                self.made.append(change.item.metadata)


async def tell_the_story(plan: faultplan.FaultPlan) -> FaultWorld:
    """Play the story second by second, and return the final world."""
    world = FaultWorld(plan)
    watching = asyncio.create_task(world.watch_jobs())
    await world.begin_leader(1)
    await world.begin_worker("worker-a")
    every = {"schedule": f"@every {EVERY}s", "catchUpPolicy": "All"}
    jobs = {**every, "concurrencyPolicy": "Queue", "queueLimit": 9, "successfulJobsHistoryLimit": 2}
    await world.apply_job("jobs", **jobs)
    hook = {"url": "https://hooks.example.com/x", "timeoutSeconds": 30}
    await world.apply("hooks", webhook=hook, **every)
    await world.apply("ticks", stream={"name": "ticks"}, **every)
    await world.apply("gone", **every)
    await world.apply("nightly", schedule="0 * * * *")
    await world.apply_set()
    await world.until(5)
    await world.backfill("whole", to="2026-02-01T03:00:00Z")
    await world.until(15)
    await world.delete("gone")
    world.target.hold()
    await world.backfill("cut", maxParallel=4)
    await world.until(25)
    await world.end_part("worker-a")
    await world.begin_worker("worker-b")
    await world.delete_set()
    await world.until(30)
    await world.delete_run("cut")
    await world.until(35)
    world.target.let_go()
    await world.until(45)
    await world.end_part("leader-1")
    await world.begin_leader(2)
    await world.until(65)
    await world.apply_job("jobs", suspend=True, **jobs)
    await world.apply("hooks", webhook=hook, suspend=True, **every)
    await world.apply("ticks", stream={"name": "ticks"}, suspend=True, **every)
    await world.until(75)
    await world.begin_worker("worker-c")
    await world.until(90)
    await world.end_part("leader-2")
    await world.begin_leader(3)
    await world.until(END)
    watching.cancel()
    return world


def judge(world: FaultWorld) -> None:
    """Check what must be true at the end, whatever happened."""
    slots = set(range(EVERY, LAST_SLOT + 1, EVERY))
    for name in ("jobs", "hooks", "ticks"):
        found = world.deliveries(name)
        assert slots <= found.keys(), f"{name}: lost {slots - found.keys()}"
        most = 1 if name != "hooks" else 3  # the worker that ends, and the fault
        assert max(found.values()) <= most, f"{name}: {found}"
        assert min(found) >= EVERY, f"{name}: early"
        runs = world.status(name)["runs"]
        assert runs["succeeded"] == len(found), f"{name}: {runs}, delivered {found}"
        assert world.ready(name) == ("True", "Suspended"), name
    assert max(world.deliveries("gone"), default=0) <= 50  # a leader may have to come first
    assert world.api.stored("schedules", NAMESPACE, "gone") is None
    assert {one.name for one in world.definitions()} == {"jobs", "hooks", "ticks", "nightly"}
    assert world.run_condition("Complete", "whole"), world.run_status("whole")
    assert world.run_status("whole")["runs"]["succeeded"] == 3
    assert world.run_object("cut") is None
    assert world.set_object() is None
    assert world.record() is None
    held = [shard.claims for shard in world.queue.shards.values() if shard.claims]
    assert held == [], "claims are left"
    left = [member for shard in world.queue.shards.values() for member in shard.records]
    assert left == [], "occurrences are left"


async def test_the_story_passes_every_point():
    plan = faultplan.FaultPlan()
    with plan.installed():
        world = await tell_the_story(plan)
        judge(world)
        await world.end()
    assert [point for point in POINTS if not plan.hits[point]] == []


@pytest.mark.parametrize("point", POINTS)
async def test_a_part_that_dies_at_a_point_costs_nothing(point):
    plan = faultplan.FaultPlan(point)
    with plan.installed():
        world = await tell_the_story(plan)
        assert plan.dead
        judge(world)
        await world.end()


@pytest.mark.parametrize("point", POINTS)
async def test_a_request_that_fails_at_a_point_costs_nothing(point):
    error = errors.QueueUnavailable("injected")
    if point in _OF_THE_API:
        error = kube_errors.Unavailable("injected", sent=True)
    plan = faultplan.FaultPlan(point, error)
    with plan.installed():
        world = await tell_the_story(plan)
        assert plan.hits[point] > 1
        judge(world)
        await world.end()
