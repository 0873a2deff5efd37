"""Concurrency policies with an operator and workers together, in virtual time."""

from __future__ import annotations

import contextlib

import pytest

from duepoint.kube import jobs
from duepoint.targets.jobtarget import JobTarget
from tests.fakes.recordingtarget import RecordingTarget
from tests.support.builders import at
from tests.unit.controller.world import NAMESPACE, World

FIVE_PAST = at("2026-03-01 12:05:00") // 1_000_000


def name(slot: int) -> str:
    """Return the Job name of a slot, given in seconds after five past twelve."""
    return f"nightly-{FIVE_PAST + slot}"


@contextlib.asynccontextmanager
async def workers(world: World, *names: str):
    """Run workers of this world, and kill them at the end."""
    targets = {"job": JobTarget(world.api, world.clock), "webhook": RecordingTarget(world.clock)}
    async with contextlib.AsyncExitStack() as stack:
        for one in names:
            await stack.enter_async_context(world.worker(targets, targets["webhook"], one))
        yield


def jobs_there(world: World) -> list[str]:
    return [job["metadata"]["name"] for job in world.api.all_stored("jobs")]


async def _until(world: World, slot: int) -> None:
    seconds = FIVE_PAST + slot - world.clock.now_us() / 1_000_000
    await world.clock.advance(seconds)


async def test_a_job_that_is_deleted_by_hand_starts_the_slot_that_waits():
    async with World().leader() as world, workers(world, "a"):
        await world.apply_job(schedule="*/5 * * * *", concurrencyPolicy="Queue")
        await _until(world, 304)
        await world.api.request("DELETE", jobs.path(NAMESPACE, name(0)))
        await world.clock.advance(0.05)
        assert jobs_there(world) == [name(300)]


async def test_a_new_leader_calls_what_waits_for_a_job_that_ended_while_nobody_led():
    world = World()
    async with world.leader(), workers(world, "a"):
        await world.apply_job(schedule="*/5 * * * *", concurrencyPolicy="Queue")
        await _until(world, 301)
    world.api.end_job(NAMESPACE, name(0))
    async with world.leader(epoch=9), workers(world, "b"):
        await world.clock.advance(0.2)
        assert jobs_there(world) == [name(0), name(300)]


@pytest.mark.parametrize("policy", ["Forbid", "Queue", "Replace"])
async def test_no_slot_stays_open_behind_a_policy(policy):
    async with World().leader() as world, workers(world, "a", "b"):
        await world.apply_job(schedule="*/5 * * * *", concurrencyPolicy=policy)
        for slot in range(0, 3000, 300):
            await _until(world, slot + 150)
            for job in jobs_there(world):
                if slot % 900 == 0:
                    world.api.end_job(NAMESPACE, job)
        for job in jobs_there(world):
            world.api.end_job(NAMESPACE, job)
        await world.clock.advance(70)
        runs = world.status()["runs"]
        ended = sum(runs.get(one, 0) for one in ("succeeded", "failed", "replaced", "skipped"))
        assert runs["failed"] == 0
        assert ended == 10 or (policy == "Queue" and ended >= 9)
        assert world.condition("Overdue") is None or policy == "Queue"


async def test_an_end_that_could_not_be_told_is_told_later():
    async with World().leader() as world, workers(world, "a"):
        await world.apply_job(schedule="*/5 * * * *", concurrencyPolicy="Queue")
        await _until(world, 301)
        world.queue.available = False
        world.api.end_job(NAMESPACE, name(0))
        await world.clock.advance(1)
        world.queue.available = True
        await world.clock.advance(3)
        assert jobs_there(world) == [name(0), name(300)]


@pytest.mark.parametrize(
    ("edit", "started"),
    [
        ({"concurrencyPolicy": "Allow"}, [600]),
        ({"concurrencyPolicy": "Allow", "catchUpPolicy": "All"}, [300, 600]),
        ({"concurrencyPolicy": "Queue", "queueLimit": 5, "maxConcurrency": 2}, [300]),
        ({"concurrencyPolicy": "Queue", "queueLimit": 5, "maxConcurrency": 3}, [300, 600]),
        ({"concurrencyPolicy": "Queue", "queueLimit": 9}, []),
    ],
    ids=["allow the latest", "allow all", "room for one", "room for all", "no more room"],
)
async def test_an_edit_that_makes_room_starts_what_waits_at_once(edit, started):
    async with World().leader() as world, workers(world, "a", "b"):
        waiting = {"concurrencyPolicy": "Queue", "queueLimit": 5}
        await world.apply_job(schedule="*/5 * * * *", **waiting)
        await _until(world, 700)
        assert jobs_there(world) == [name(0)]
        await world.apply_job(schedule="*/5 * * * *", **edit)
        await world.clock.advance(0.5)
        assert jobs_there(world) == [name(slot) for slot in (0, *started)]


async def test_a_run_by_hand_that_waits_beside_allow_starts_when_the_job_ends():
    async with World().leader() as world, workers(world, "a"):
        await world.apply_job(schedule="*/5 * * * *")
        await _until(world, 2)
        manifest = {
            "metadata": {"namespace": NAMESPACE, "name": "now"},
            "spec": {"scheduleName": "nightly", "trigger": {"concurrencyPolicy": "Queue"}},
        }
        await world.api.apply("scheduleruns", manifest)
        await world.clock.advance(3)
        assert jobs_there(world) == [name(0)]
        world.api.end_job(NAMESPACE, name(0))
        await world.clock.advance(0.5)
        assert len(jobs_there(world)) == 2


async def test_slots_that_wait_when_their_schedule_is_suspended_are_in_its_counts():
    async with World().leader() as world, workers(world, "a"):
        made = {"schedule": "*/5 * * * *", "concurrencyPolicy": "Queue", "queueLimit": 10}
        await world.apply_job(**made)
        await _until(world, 901)
        assert jobs_there(world) == [name(0)]
        await world.apply_job(**made, suspend=True)
        await world.clock.advance(3)
        assert world.status()["runs"]["skipped"] == 3
        told = [news.note for news in world.news if news.reason == "RunSkipped"]
        assert any("Suspended" in note for note in told)
        assert world.ready() == ("True", "Suspended")
        await world.apply_job(**made, suspend=False)
        await world.clock.advance(3)
        assert world.status()["runs"]["skipped"] == 3
    assert jobs_there(world) == [name(0)]
