"""Jobs that are taken away while they run: replaced, deleted, or released."""

from __future__ import annotations

import pytest

from duepoint import telemetry
from duepoint.kube import jobbuilder, jobs, port
from duepoint.runs.run import RunState
from duepoint.schedules.conditions import Reason
from tests.support.builders import at
from tests.unit.controller.jobs.test_jobwatch import run_slot
from tests.unit.controller.status.test_reporter import event
from tests.unit.controller.world import NAMESPACE, World

FIRST = at("2026-03-01 12:05:00")
SECOND = at("2026-03-01 12:10:00")
TOLD = "the slot of 2026-03-01T12:10:00Z took its place"


def replacing(made, name: str, slot_us: int = FIRST):
    """What a worker says before it deletes the Job of a slot."""
    return event(
        made, slot_us, RunState.REPLACING, job_name=name, reason=Reason.REPLACED, message=TOLD
    )


async def delete(world: World, name: str) -> None:
    await world.api.request("DELETE", jobs.path(NAMESPACE, name))
    await world.clock.settle()


async def edit(world: World, name: str, **metadata) -> None:
    path, patch = jobs.path(NAMESPACE, name), {"metadata": metadata}
    await world.api.request("PATCH", path, patch, content_type=port.MERGE_PATCH)
    await world.clock.settle()


def adds_up(world: World) -> bool:
    status = world.status()
    runs = status["runs"]
    ended = runs["succeeded"] + runs["failed"] + runs.get("replaced", 0)
    return runs["started"] == ended + status.get("activeCount", 0)


def news_of(world: World, *reasons: str) -> list[tuple[str, bool]]:
    return [(one.reason, one.warning) for one in world.news if one.reason in reasons]


# -- replaced --------------------------------------------------------------------------------------


async def before_the_word(world: World, made, name: str) -> None:
    await delete(world, name)
    await world.tell(made["metadata"]["uid"], replacing(made, name), read=False)


async def after_the_word(world: World, made, name: str) -> None:
    await world.tell(made["metadata"]["uid"], replacing(made, name))
    await delete(world, name)


async def long_after_the_word(world: World, made, name: str) -> None:
    await world.tell(made["metadata"]["uid"], replacing(made, name))
    await world.clock.advance(120)
    await delete(world, name)


def replaced_runs() -> float:
    labels = {"namespace": NAMESPACE, "target": "job", "result": "Replaced"}
    return telemetry.registry.get_sample_value("duepoint_run_results_total", labels) or 0


@pytest.mark.parametrize("deleted", [before_the_word, after_the_word, long_after_the_word])
async def test_a_replaced_run_is_no_failure_whichever_is_seen_first(deleted):
    async with World().leader() as world:
        made = await world.apply_job(concurrencyPolicy="Replace")
        name = await run_slot(world, made, FIRST)
        await world.clock.advance(5)
        counted = replaced_runs()
        await deleted(world, made, name)
        await world.clock.advance(5)
        assert replaced_runs() == counted + 1
        status = world.status()
        assert status["lastRun"]["outcome"] == status["lastRun"]["reason"] == "Replaced"
        assert status["lastRun"]["message"] == TOLD
        assert (status["runs"]["replaced"], status["runs"]["failed"]) == (1, 0)
        assert "lastFailureTime" not in status
        assert world.condition("LastRunSucceeded") is None
        assert adds_up(world)
        assert news_of(world, "RunFailed", "RunReplaced") == [("RunReplaced", False)]


# -- deleted ---------------------------------------------------------------------------------------


async def test_a_deleted_job_s_run_finished_when_it_was_deleted_and_says_deleted():
    async with World().leader() as world:
        made = await world.apply_job(concurrencyPolicy="Replace")
        name = await run_slot(world, made, FIRST)
        await world.clock.advance(90)
        await delete(world, name)
        await world.clock.advance(5)
        status = world.status()
        last = status["lastRun"]
        assert (last["outcome"], last["reason"]) == ("Failed", "Deleted")
        assert last["message"] == "the Job is gone, and its end was not seen"
        assert last["startTime"] == "2026-03-01T12:05:00Z"
        assert last["finishTime"][:19] == status["lastFailureTime"][:19] == "2026-03-01T12:06:30"
        assert world.condition("LastRunSucceeded")["reason"] == "Deleted"
        assert adds_up(world)
        assert news_of(world, "RunFailed", "RunReplaced") == [("RunFailed", True)]


# -- released --------------------------------------------------------------------------------------

RELEASES = {
    "owner removed": {"ownerReferences": None},
    "slot removed": {"annotations": {jobbuilder.SCHEDULED_TIME: None}},
}


@pytest.mark.parametrize("release", RELEASES.values(), ids=RELEASES.keys())
async def test_a_released_job_leaves_active_at_once_and_nothing_it_does_later_counts(release):
    async with World().leader() as world:
        made = await world.apply_job(concurrencyPolicy="Forbid")
        name = await run_slot(world, made, FIRST)
        await world.clock.advance(5)
        await edit(world, name, **release)
        await world.clock.advance(5)
        status = world.status()
        assert "active" not in status
        assert "activeCount" not in status
        last = status["lastRun"]
        assert (last["outcome"], last["reason"]) == ("Failed", "Deleted")
        assert last["finishTime"].startswith("2026-03-01T12:05:05")
        runs = status["runs"]
        assert (runs["started"], runs["failed"]) == (1, 1)
        second = await run_slot(world, made, SECOND)
        await world.clock.advance(5)
        assert world.status()["activeCount"] == 1
        world.api.end_job(NAMESPACE, name)
        await world.clock.advance(5)
        await delete(world, name)
        await world.clock.advance(60)
        status = world.status()
        assert [one["name"] for one in status["active"]] == [second]
        assert (status["runs"]["started"], status["runs"]["failed"]) == (2, 1)
        assert adds_up(world)
