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


async def test_a_backfill_counts_its_replaced_runs_and_is_complete():
    world = RunWorld()
    async with world.leader(), world.working():
        await world.apply_job(schedule="0 * * * *", concurrencyPolicy="Replace")
        await world.run_schedule(
            backfill={"from": "2026-02-01T00:00:00Z", "to": "2026-02-01T03:00:00Z"}
        )
        await world.clock.advance(5)
        await world.run_schedule("between")
        await world.clock.advance(5)
        for _ in range(3):
            await world.finish_jobs()
            await world.clock.advance(5)
        assert counted(world.run_status()["runs"]) == (3, 0, 1)
        assert world.run_status()["message"] == "2 of 3 runs succeeded, 1 replaced"
        assert world.run_condition("Complete") is not None


async def test_a_replaced_run_survives_the_operator_that_saw_nothing_of_it():
    world = RunWorld()
    async with world.working():
        async with world.leader():
            await world.apply_job(schedule="0 0 1 1 *", concurrencyPolicy="Replace")
            await world.run_schedule("first")
            await world.clock.advance(5)
            await world.run_schedule("second")
        await world.clock.advance(20)
        async with world.leader(epoch=2):
            await world.clock.advance(60)
            assert world.run_condition("Failed", "first")["reason"] == "Replaced"
            assert counted(world.run_status("first")["runs"]) == (1, 0, 1)
            assert counted(world.status()["runs"]) == (2, 0, 1)
