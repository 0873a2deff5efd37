"""Runs that go on, as a status lists them and as the next leader reads them back."""

from __future__ import annotations

import pytest

from duepoint.controller.status import activelist
from duepoint.kube import jobbuilder
from duepoint.runs import run as runs
from duepoint.runs import running as runnings
from duepoint.runs.run import RunState
from tests.support.builders import at
from tests.unit.controller.status.test_reporter import event
from tests.unit.controller.world import NAMESPACE, World

S = 1_000_000
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


@each_name
@pytest.mark.parametrize("run_uid", ["", "5a0d"], ids=["regular", "of-a-run"])
def test_the_name_of_a_job_tells_its_slot_and_who_wanted_it(name, run_uid):
    job = jobbuilder.name_of(name, FIRST, run_uid)
    status = {"active": [{"kind": "Job", "name": job}], "activeCount": 1}
    key = runnings.key_of(FIRST, is_regular=not run_uid, wanted_by=job)
    assert activelist.read(status, name, 1).jobs == {key: job}


def test_a_job_of_another_name_is_known_by_its_number_alone():
    status = {"active": [{"kind": "Job", "name": "weekly-1772366700"}], "activeCount": 1}
    read = activelist.read(status, "nightly", 1)
    assert (read.jobs, read.unlisted) == ({}, 1)
