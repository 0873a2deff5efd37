"""ScheduleRuns whose runs are replaced, or whose Jobs are taken away: as their Schedules say it."""

from __future__ import annotations

from tests.unit.controller.runworld import RunWorld


def counted(runs: dict[str, int]) -> tuple[int, int, int]:
    return runs["started"], runs["failed"], runs.get("replaced", 0)


async def replace_the_first(world: RunWorld) -> str:
    """Two runs by hand of one Schedule, of which the second takes the place of the first."""
    await world.apply_job(schedule="0 0 1 1 *", concurrencyPolicy="Replace")
    await world.run_schedule("first")
    await world.clock.advance(5)
    (job,) = world.jobs()
    await world.run_schedule("second")
    await world.clock.advance(5)
    return job["metadata"]["name"]


async def test_a_trigger_that_is_replaced_says_so_in_the_words_of_its_schedule():
    world = RunWorld()
    async with world.leader(), world.working():
        replaced = await replace_the_first(world)
        assert [job["metadata"]["name"] for job in world.jobs()] != [replaced]
        status = world.run_status("first")
        assert counted(status["runs"]) == (1, 0, 1)
        assert world.run_condition("Failed", "first")["reason"] == "Replaced"
        assert "a newer slot took its place" in status["message"]
        assert "active" not in status
        assert counted(world.status()["runs"]) == (2, 0, 1)
        assert [one.reason for one in world.news] == ["RunReplaced"]
        assert not world.news[0].warning
