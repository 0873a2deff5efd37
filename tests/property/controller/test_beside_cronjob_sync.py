"""The table by which CronJob's controller is tested (``TestControllerV2SyncCronJob``), asked here.

Every row is a whole Schedule, with operator and worker, in virtual time: what was there before, how
late it is looked at, and which Jobs there are then. Where CronJob answers otherwise on purpose, the
row says so. A Schedule is created at 12:00 and due on the hour.
"""

from __future__ import annotations

import dataclasses

import pytest

from tests.scenarios.test_completions import jobs_there, workers
from tests.support.builders import at
from tests.unit.controller.world import NAMESPACE, World

HOUR = 3600
LONG = 5 * HOUR
POLICIES = ("Allow", "Forbid", "Replace")
ONE_O_CLOCK = at("2026-03-01 13:00:00") // 1_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """Before, when, and what then.

    Attributes:
        before: ``none``, ``done`` or ``active``: the Job of 13:00, if it ran.
        late: seconds between the slot in question and the look of a worker; negative = too early.
        expected: Jobs after that look, in hours after 13:00; negative ones do not exist any more.
    """

    before: str = "none"
    late: float = 0.2
    spec: dict[str, object] = dataclasses.field(default_factory=dict)
    expected: tuple[int, ...] = ()
    missed: int = 0
    skipped: int = 0
    suspended: bool = False


CASES = {
    "never ran, not time": Case(late=-60),
    "never ran, is time": Case(expected=(0,)),
    "never ran, is time, suspended": Case(suspended=True),
    "never ran, is time, past deadline": Case(
        late=600, spec={"startingDeadlineSeconds": 60}, missed=1
    ),
    "never ran, is time, not past deadline": Case(
        late=600, spec={"startingDeadlineSeconds": 900}, expected=(0,)
    ),
    "ran and done, not time": Case(before="done", late=-60, expected=(0,)),
    "ran and done, is time": Case(before="done", expected=(0, 1)),
    "ran and done, is time, suspended": Case(before="done", suspended=True, expected=(0,)),
    "ran and done, is time, past deadline": Case(
        before="done", late=600, spec={"startingDeadlineSeconds": 60}, expected=(0,), missed=1
    ),
    "ran and done, is time, not past deadline": Case(
        before="done", late=600, spec={"startingDeadlineSeconds": 900}, expected=(0, 1)
    ),
    "still active, not time": Case(before="active", late=-60, expected=(0,)),
    "still active, is time, suspended": Case(before="active", suspended=True, expected=(0,)),
    "still active, is time, past deadline": Case(
        before="active", late=600, spec={"startingDeadlineSeconds": 60}, expected=(0,), missed=1
    ),
    "ran and done, long overdue, no deadline": Case(
        before="done", late=LONG, expected=(0, 6), missed=5
    ),
    "ran and done, long overdue, not past deadline": Case(
        before="done",
        late=LONG,
        spec={"startingDeadlineSeconds": 2 * LONG},
        expected=(0, 6),
        missed=5,
    ),
    "ran and done, long overdue, past medium deadline": Case(
        before="done",
        late=LONG,
        spec={"startingDeadlineSeconds": 2 * HOUR + 360},
        expected=(0, 6),
        missed=5,
    ),
    "ran and done, long overdue, past short deadline": Case(
        before="done",
        late=LONG,
        spec={"startingDeadlineSeconds": 10},
        expected=(0, 6),
        missed=5,
    ),
}
BY_POLICY = {
    ("Allow", "still active, is time"): Case(before="active", expected=(0, 1)),
    ("Forbid", "still active, is time"): Case(before="active", expected=(0,), skipped=1),
    ("Replace", "still active, is time"): Case(before="active", expected=(1,)),
    ("Allow", "still active, not past deadline"): Case(
        before="active", late=600, spec={"startingDeadlineSeconds": 900}, expected=(0, 1)
    ),
    ("Forbid", "still active, not past deadline"): Case(
        before="active", late=600, spec={"startingDeadlineSeconds": 900}, expected=(0,), skipped=1
    ),
    ("Replace", "still active, not past deadline"): Case(
        before="active", late=600, spec={"startingDeadlineSeconds": 900}, expected=(1,)
    ),
}
ROWS = [
    *((policy, name, case) for name, case in CASES.items() for policy in POLICIES),
    *((policy, name, case) for (policy, name), case in BY_POLICY.items()),
]


async def _until(world: World, second: float) -> None:
    await world.clock.advance(second - world.clock.now_us() / 1_000_000)


async def _before(world: World, case: Case, spec: dict[str, object]) -> float:
    """Bring about what was there; the second of the slot in question."""
    if case.before == "none":
        await world.apply_job(**spec)
        return ONE_O_CLOCK
    await world.apply_job(**spec)
    async with workers(world, "before"):
        await _until(world, ONE_O_CLOCK + 30)
    if case.before == "done":
        world.api.end_job(NAMESPACE, f"nightly-{ONE_O_CLOCK}")
        await world.clock.advance(30)
    return ONE_O_CLOCK + HOUR


@pytest.mark.parametrize(
    ("policy", "case"), [(p, c) for p, _, c in ROWS], ids=[f"{n}, {p}" for p, n, _ in ROWS]
)
async def test_a_sync_leaves_the_jobs_that_cronjob_would_leave(policy, case):
    spec = {"schedule": "0 * * * *", "concurrencyPolicy": policy, **case.spec}
    async with World().leader() as world:
        slot = await _before(world, case, spec)
        if case.suspended:
            await world.apply_job(**spec, suspend=True)
        await _until(world, slot + case.late)
        async with workers(world, "now"):
            await world.clock.advance(5)
            found = jobs_there(world)
        assert found == [f"nightly-{ONE_O_CLOCK + hour * HOUR}" for hour in case.expected]
        counts = world.status()["runs"]
        assert (counts["missed"], counts["skipped"]) == (case.missed, case.skipped)
        listed = world.status().get("active", [])
        is_done = case.before == "done"
        running = [one for one in found if not (is_done and one == f"nightly-{ONE_O_CLOCK}")]
        assert [one["name"] for one in listed] == running


async def test_the_last_successful_time_is_set_although_no_successful_job_is_kept():
    async with World().leader() as world, workers(world, "a"):
        await world.apply_job(schedule="0 * * * *", successfulJobsHistoryLimit=0)
        await _until(world, ONE_O_CLOCK + 10)
        world.api.end_job(NAMESPACE, f"nightly-{ONE_O_CLOCK}")
        await world.clock.advance(30)
        assert jobs_there(world) == []
        assert world.status()["lastSuccessfulTime"] == "2026-03-01T13:00:10Z"


async def test_a_job_of_the_slot_that_is_there_already_is_adopted_into_the_status():
    """CronJob: ``JobAlreadyExistsButNotInActiveStatus``."""
    async with World().leader() as world:
        made = await world.apply_job(schedule="0 * * * *")
        await world.create_job(made, ONE_O_CLOCK * 1_000_000)
        await _until(world, ONE_O_CLOCK + 1)
        async with workers(world, "a"):
            await world.clock.advance(5)
        status = world.status()
        assert [one["name"] for one in status["active"]] == [f"nightly-{ONE_O_CLOCK}"]
        assert status["lastScheduleTime"] == "2026-03-01T13:00:00Z"
        assert status["runs"]["started"] == 1


@pytest.mark.parametrize(
    "owner",
    [
        None,
        {"kind": "Schedule", "apiVersion": "duepoint.dev/v1alpha1", "controller": None},
        {"kind": "CronJob", "apiVersion": "batch/v1", "controller": True},
        {"kind": "Schedule", "apiVersion": "other.dev/v1", "controller": True},
        {"kind": "Schedule", "apiVersion": "duepoint.dev/v1alpha1", "uid": "of another life"},
    ],
    ids=["none", "no controller", "a CronJob's", "another group's", "another uid"],
)
async def test_a_job_that_the_schedule_does_not_control_is_neither_active_nor_cleaned_up(owner):
    """CronJob: ``GetJobsToBeReconciled``, by controller and not by labels."""
    async with World().leader() as world:
        made = await world.apply_job(schedule="0 * * * *", successfulJobsHistoryLimit=0)
        uid = made["metadata"]["uid"]
        body = {
            "metadata": {
                "name": "nightly-1",
                "labels": {"duepoint.dev/schedule": "nightly"},
                "annotations": {"duepoint.dev/scheduled-time": "2026-03-01T12:30:00Z"},
            },
            "spec": {
                "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a"}]}}
            },
        }
        if owner is not None:
            named = {"name": "nightly", "uid": uid, "controller": True, **owner}
            body["metadata"]["ownerReferences"] = [named]
        await world.api.request("POST", f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs", body)
        await world.clock.advance(5)
        assert "active" not in world.status()
        world.api.end_job(NAMESPACE, "nightly-1")
        await world.clock.advance(60)
        assert jobs_there(world) == ["nightly-1"]
        assert world.status()["runs"]["succeeded"] == 0
