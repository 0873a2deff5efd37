"""A server that fell back: nothing runs twice, is lost, or counts as missed because of it."""

from __future__ import annotations

import asyncio
import collections
import contextlib

import pytest

from duepoint.kube import jobs, port
from duepoint.targets import outcome as outcomes
from duepoint.targets.jobtarget import JobTarget
from tests.fakes.recordingtarget import RecordingTarget
from tests.support.builders import at
from tests.unit.controller.world import NAMESPACE, World

S = 1_000_000


class Cluster:
    """A watch of the API server that counts Jobs, and ends each after a while."""

    def __init__(self, world: World, job_seconds: float) -> None:
        self.world = world
        self.job_seconds = job_seconds
        self.made: collections.Counter[str] = collections.Counter()

    async def run(self) -> None:
        version = str(self.world.api.version)
        async with asyncio.TaskGroup() as endings:
            async for change in self.world.api.watch(jobs.collection(), jobs.Job, version):
                if change.type is port.ChangeType.ADDED:
                    self.made[change.item.metadata.name] += 1
                    endings.create_task(self._end(change.item))

    async def _end(self, job: jobs.Job) -> None:
        await self.world.clock.sleep(self.job_seconds)
        found = self.world.api.stored("jobs", NAMESPACE, job.metadata.name)
        if found is not None and found["metadata"]["uid"] == job.metadata.uid:
            self.world.api.end_job(NAMESPACE, job.metadata.name)


def a_worker(world: World, webhooks: RecordingTarget | None = None, job_target=None):
    recording = webhooks or RecordingTarget(world.clock)
    job = job_target or JobTarget(world.api, world.clock)
    return world.worker({"job": job, "webhook": recording, "stream": recording}, recording)


@contextlib.asynccontextmanager
async def a_cluster(world: World, *, job_seconds: float = 0.5):
    cluster = Cluster(world, job_seconds)
    task = asyncio.create_task(cluster.run())
    try:
        yield cluster
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def slots_made(cluster: Cluster) -> list[int]:
    return sorted(int(name.rpartition("-")[2]) for name in cluster.made)


def has_settled(world: World) -> bool:
    shards = world.queue.shards.values()
    return not any(shard.doubt for shard in shards)


@pytest.mark.parametrize("policy", ["None", "Latest", "All"])
@pytest.mark.parametrize("limit", [0, 1], ids=["no-history", "one-job"])
@pytest.mark.parametrize(
    ("seconds", "every"), [(1, 1), (10, 1), (30, 1), (3600, 60)], ids=["1s", "10s", "30s", "1h"]
)
@pytest.mark.parametrize("leader", ["living", "dead"])
async def test_no_job_is_made_twice_or_lost_or_missed_after_a_fallback(
    policy, limit, seconds, every, leader
):
    world = World(shards=1)
    fields = {
        "schedule": f"@every {every}s",
        "successfulJobsHistoryLimit": limit,
        "catchUpPolicy": policy,
    }
    async with contextlib.AsyncExitStack() as stack, a_cluster(world) as cluster:
        lead = await stack.enter_async_context(contextlib.AsyncExitStack())
        await lead.enter_async_context(world.leader())
        await world.apply_job(**fields)
        await stack.enter_async_context(a_worker(world))
        await world.clock.advance(20 * every)
        before = world.queue.snapshot()
        await world.clock.advance(seconds)
        if leader == "dead":
            await lead.aclose()
        world.queue.fall_back(before)
        await world.clock.advance(2)
        if leader == "dead":
            await lead.enter_async_context(world.leader(epoch=2))
        await world.clock.advance(max(30, 2 * every))
        made = slots_made(cluster)
        assert [name for name, count in cluster.made.items() if count > 1] == []
        # The policy decides on slots that fell due while the leader compared.
        missed = world.status()["runs"].get("missed", 0)
        assert len(made) + missed == len(range(made[0], made[-1] + 1, every))
        assert missed <= (4 if policy == "Latest" and every == 1 else 0)
        assert made[-1] * S >= world.clock.now_us() - 2 * every * S
        assert has_settled(world)


async def test_a_schedule_whose_first_status_still_waits_goes_on_where_it_was():
    """So do statuses after many objects were applied at once; then only the leader knows more."""
    world = World(shards=1)
    async with world.leader(), a_cluster(world) as cluster:
        world.term.writes_per_second = 0.01
        await world.apply_job(schedule="@every 1s", catchUpPolicy="Latest")
        async with a_worker(world):
            await world.clock.advance(5)
            before = world.queue.snapshot()
            await world.clock.advance(10)
            assert world.status()["observedGeneration"] == -1
            world.queue.fall_back(before)
            await world.clock.advance(300)
        made = slots_made(cluster)
        assert [name for name, count in cluster.made.items() if count > 1] == []
        missed = world.status()["runs"].get("missed", 0)
        assert len(made) + missed == len(range(made[0], made[-1] + 1))


def refused_twice(world: World) -> RecordingTarget:
    """Return a receiver that answers 503 to its first two requests and accepts the others."""
    webhooks = RecordingTarget(world.clock)
    refused = outcomes.Retry(reason="Rejected", message="503", started=True, http_status=503)
    answers = iter([refused, refused])
    webhooks.always_reply(
        lambda _firing: next(answers, outcomes.Delivered(accepted_us=world.clock.now_us()))
    )
    return webhooks


async def test_what_was_not_due_before_runs_while_no_leader_is_there():
    world = World(shards=1)
    webhooks = RecordingTarget(world.clock)
    async with contextlib.AsyncExitStack() as lead:
        await lead.enter_async_context(world.leader())
        await world.apply(name="often", schedule="@every 1s")
        await world.apply(name="once", schedule="@at 2026-03-01T12:00:20Z")
        async with a_worker(world, webhooks):
            await world.clock.advance(10)
            before = world.queue.snapshot()
            await world.clock.advance(5)
            await lead.aclose()
            world.queue.fall_back(before)
            webhooks.fired.clear()
            await world.clock.advance(10)
            assert [(one.name, one.slot_us) for one in webhooks.fired] == [
                ("once", at("2026-03-01 12:00:20"))
            ]
            await lead.enter_async_context(world.leader(epoch=2))
            await world.clock.advance(10)
        assert has_settled(world)
        assert {one.name for one in webhooks.fired} == {"once", "often"}


async def test_slots_that_nobody_could_fire_while_the_server_was_away_run_after_it():
    world = World(shards=1)
    webhooks = RecordingTarget(world.clock)
    async with world.leader():
        await world.apply(schedule="@every 1s", catchUpPolicy="All")
        async with a_worker(world, webhooks):
            await world.clock.advance(10)
            before = world.queue.snapshot()
            await world.clock.advance(3.5)  # the outcomes have been read
            world.queue.available = False
            await world.clock.advance(5)
            world.queue.available = True
            world.queue.fall_back(before)
            await world.clock.advance(20)
        slots = [firing.slot_us for firing in webhooks.fired]
        assert sorted(set(slots)) == list(range(min(slots), max(slots) + S, S))
        assert len(slots) == len(set(slots))


async def test_a_retry_that_went_back_is_not_made_twice():
    world = World(shards=1)
    webhooks = refused_twice(world)
    async with world.leader():
        await world.apply(schedule="@at 2026-03-01T12:00:30Z")
        async with a_worker(world, webhooks):
            await world.clock.advance(31)
            before = world.queue.snapshot()
            await world.clock.advance(60)
            assert world.status()["lastRun"]["outcome"] == "Succeeded"
            tried = len(webhooks.fired)
            world.queue.fall_back(before)
            await world.clock.advance(60)
        assert len(webhooks.fired) == tried
        assert world.status()["runs"]["started"] == 1


async def test_a_slot_that_a_status_tells_as_ended_is_not_opened_by_an_older_queue():
    """Otherwise the status would soon call it open, and it would run once more."""
    world = World(shards=1)
    webhooks = refused_twice(world)
    async with contextlib.AsyncExitStack() as lead:
        await lead.enter_async_context(world.leader())
        await world.apply(schedule="@at 2026-03-01T12:00:30Z")
        async with a_worker(world, webhooks):
            await world.clock.advance(31)
            before = world.queue.snapshot()
            await world.clock.advance(60)
            (slot_us,) = {firing.slot_us for firing in webhooks.fired}
            tried = len(webhooks.fired)
            await lead.aclose()
            world.queue.fall_back(before)
            await world.clock.advance(3)
            assert not has_settled(world)
            await lead.enter_async_context(world.leader(epoch=2))
            await world.clock.advance(1)
            settled = world.states.get(world.object()["metadata"]["uid"]).settled()
            assert settled.has_ended(slot_us)
            await world.clock.advance(60)
        assert len(webhooks.fired) == tried


@pytest.mark.parametrize("seconds", [22, 60], ids=["not due yet", "due"])
async def test_the_job_of_a_slot_that_waited_for_others_is_made_once(seconds):
    """If its server fell back, it waits again; its due time may be later than its Job."""
    world = World(shards=1)
    async with world.leader(), a_cluster(world, job_seconds=12) as cluster:
        await world.apply_job(
            schedule="@every 10s",
            concurrencyPolicy="Queue",
            successfulJobsHistoryLimit=0,
            endTime="2026-03-01T12:00:45Z",
        )
        async with a_worker(world):
            await world.clock.advance(31.5)
            before = world.queue.snapshot()
            (shard,) = world.queue.shards.values()
            assert [member for member in shard.members if member[12:13] == b"\x03"]
            await world.clock.advance(seconds)
            assert len(cluster.made) == 4
            world.queue.fall_back(before)
            await world.clock.advance(300)
        assert has_settled(world)
        assert not any(shard.members for shard in world.queue.shards.values())
        assert len(cluster.made) == 4
        assert [name for name, count in cluster.made.items() if count > 1] == []


async def test_entries_of_our_own_stream_that_went_back_are_written_again():
    world = World(shards=1)
    stream = RecordingTarget(world.clock)
    async with world.leader():
        await world.apply(schedule="@every 10s", catchUpPolicy="All", stream={"name": "ticks"})
        async with a_worker(world, stream):
            await world.clock.advance(25)
            before = world.queue.snapshot()
            lost_from = len(stream.fired)
            await world.clock.advance(30)
            lost = [firing.slot_us for firing in stream.fired[lost_from:]]
            assert len(lost) == 3
            world.queue.fall_back(before)
            again_from = len(stream.fired)
            await world.clock.advance(5)
            again = [firing.slot_us for firing in stream.fired[again_from:]]
        assert again[: len(lost)] == lost
        assert world.status()["runs"].get("missed", 0) == 0


async def test_counted_runs_are_counted_on():
    world = World(shards=1)
    webhooks = RecordingTarget(world.clock)
    async with world.leader():
        await world.apply(schedule="@every 1s", maxRuns=20, catchUpPolicy="All")
        async with a_worker(world, webhooks):
            await world.clock.advance(8)
            before = world.queue.snapshot()
            await world.clock.advance(6.5)
            world.queue.fall_back(before)
            await world.clock.advance(40)
        slots = [firing.slot_us for firing in webhooks.fired]
        assert len(slots) == len(set(slots)) == 20
        assert world.status()["runs"]["started"] == 20


async def test_a_run_by_hand_that_went_back_is_not_made_twice():
    world = World(shards=1)
    async with world.leader(), a_cluster(world) as cluster:
        await world.apply_job(schedule="0 0 1 1 *", successfulJobsHistoryLimit=0)
        run = {
            "metadata": {"namespace": NAMESPACE, "name": "now"},
            "spec": {"scheduleName": "nightly", "trigger": {}},
        }
        await world.api.apply("scheduleruns", run)
        await world.clock.advance(1)
        before = world.queue.snapshot()
        (shard,) = world.queue.shards.values()
        assert any(member[12:13] == b"\x04" for member in shard.members)
        async with a_worker(world):
            await world.clock.advance(20)
            assert sum(cluster.made.values()) == 1
            world.queue.fall_back(before)
            await world.clock.advance(30)
        assert sum(cluster.made.values()) == 1


async def test_an_edit_of_the_payload_loses_none_of_the_slots_that_wait():
    """The edit's report must not pass over them, even if they are left to the next term."""
    world = World(shards=1)
    webhooks = RecordingTarget(world.clock)
    fields = {"schedule": "@every 1s", "catchUpPolicy": "All"}
    async with contextlib.AsyncExitStack() as lead:
        await lead.enter_async_context(world.leader())
        made = await world.apply(**fields)
        uid = made["metadata"]["uid"]
        async with a_worker(world, webhooks):
            await world.clock.advance(10)
        before = world.queue.snapshot()
        await world.clock.advance(3)
        world.queue.fall_back(before)
        async with a_worker(world, webhooks):
            await world.clock.advance(1.4)
            first_us = world.chain_due_us(uid)
            await world.apply(**fields, payload={"edited": True})
            await world.clock.advance(0.4)
            assert not has_settled(world)  # the leader looks after two seconds
            assert world.states[uid].runs().settled_us < first_us
            await lead.aclose()
            await lead.enter_async_context(world.leader(epoch=2))
            await world.clock.advance(30)
            fired = {one.slot_us for one in webhooks.fired}
            assert has_settled(world)
            assert first_us in fired
            assert len(fired) == (max(fired) - min(fired)) // S + 1
