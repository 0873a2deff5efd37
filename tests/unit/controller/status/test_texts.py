"""Texts of a status: open slots, active runs and instants, written and read back."""

from __future__ import annotations

import pytest

from duepoint.controller.status import texts
from duepoint.kube import jobbuilder
from duepoint.kube.jobs import JobOwner
from duepoint.runs import run as runs
from duepoint.runs import summary as summaries
from duepoint.runs.run import RunState
from tests.support.builders import at
from tests.unit.controller.status.test_reporter import event
from tests.unit.controller.world import NAMESPACE, World

S = 1_000_000
NOON = at("2026-03-01 12:00:00")


@pytest.mark.parametrize(
    ("slots_us", "text"),
    [
        ([], ""),
        ([NOON], "2026-03-01T12:00:00Z"),
        ([NOON, NOON + 300 * S, NOON + 600 * S], "2026-03-01T12:00:00Z +300*2"),
        ([NOON, NOON + S, NOON + 3 * S], "2026-03-01T12:00:00Z +1 +2"),
        ([NOON + 500_000, NOON + 750_000], "2026-03-01T12:00:00.500000Z +0.25"),
    ],
    ids=["none", "one", "equal-distances", "other-distances", "fractions"],
)
def test_slots_are_written_as_an_instant_and_distances(slots_us, text):
    assert texts.slots_text(slots_us) == text
    assert texts.parse_slots(text) == tuple(slots_us)


FIRST = at("2026-03-01 12:05:00")
#: Names of Schedules whose ends look like a part of a Job's name.
NAMES = ("nightly", "job-all-0", "job-2026", "a.b-1-0123456789", "x-0123456789", "n" * 41 + ".b-7")
each_name = pytest.mark.parametrize("name", NAMES)


@each_name
async def test_a_run_that_a_former_leader_showed_has_ended_when_its_job_has(name):
    world = World()
    async with world.leader():
        made = await world.apply_job(name)
        await world.clock.advance((FIRST - world.clock.now_us()) / S)
        job = await world.create_job(made, FIRST)
        told: runs.RunEvent = event(made, FIRST, RunState.RUNNING, job_name=job)
        await world.tell(made["metadata"]["uid"], told)
        await world.clock.advance(5)
        assert world.status(name)["activeCount"] == 1
    world.api.end_job(NAMESPACE, job)
    async with world.leader(epoch=2):
        await world.clock.advance(10)
        assert "activeCount" not in world.status(name)
        assert world.status(name)["runs"]["succeeded"] == 1


def test_many_runs_are_all_known_to_the_next_leader():
    jobs = {(NOON + n * 60 * S, ""): f"nightly-{(NOON // S) + n * 60}" for n in range(50)}
    deliveries = {(NOON + (n * 60 + 30) * S, ""): "" for n in range(50)}
    by_hand = {
        summaries.key_of(NOON, is_regular=False, wanted_by=job): job
        for job in (jobbuilder.name_of("nightly", NOON, f"run-{n}") for n in range(50))
    }
    runs = {**jobs, **deliveries, **by_hand}
    status = texts.active(runs, JobOwner(NAMESPACE, "nightly", "u"), ())
    assert status["activeCount"] == 150
    assert len(status["active"]) == 50
    assert texts.running(status, "nightly") == runs


def test_the_text_of_very_many_runs_is_one_that_the_api_server_takes():
    slots_us = [NOON + n * n * 1_000_001 + n for n in range(5_000)]  # no two distances are alike
    runs = {(slot_us, ""): f"nightly-{slot_us}" for slot_us in slots_us}
    status = texts.active(runs, JobOwner(NAMESPACE, "nightly", "u"), ())
    assert status["activeCount"] == 5_000
    assert len(status["activeSlots"]["jobs"]) <= 16_384
