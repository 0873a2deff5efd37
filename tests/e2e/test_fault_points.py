"""Processes that die, as by kill -9, exactly between two effects."""

from __future__ import annotations

import signal

import pytest

from duepoint.faults import FaultPoint
from tests.e2e.test_crashes import LEASE_SECONDS, a_job, has_run, in_seconds

#: Of the operator's, what no other suite reaches.
POINTS = (FaultPoint.AFTER_INDEX_OPENED,)
_OF_A_WORKER = (FaultPoint.AFTER_CLAIM, FaultPoint.BEFORE_ATTEMPT, FaultPoint.AFTER_ATTEMPT)


@pytest.mark.parametrize("point", POINTS)
async def test_an_operator_that_dies_at_the_beginning_of_its_term_is_followed_by_another(
    stack, point
):
    doomed = stack.operator("doomed", dies_at=point)
    assert await doomed.wait_for_end() == -signal.SIGKILL
    heir = stack.operator("heir")
    await heir.wait_until_ready()
    await stack.apply("task", a_job("@hourly"))
    await stack.wait_until_ready("task")


async def test_workers_that_die_around_a_job_leave_exactly_one(stack):
    operator = stack.operator()
    await operator.wait_until_ready()
    await stack.apply("task", a_job(in_seconds(4)))
    for point in _OF_A_WORKER:
        doomed = stack.worker(str(point), dies_at=point, lease_seconds=str(LEASE_SECONDS))
        assert await doomed.wait_for_end() == -signal.SIGKILL
    heir = stack.worker("heir", lease_seconds=str(LEASE_SECONDS))
    await heir.wait_until_ready()
    found = await stack.wait_for_schedule("task", has_run, "run to its end")
    assert found["status"]["runs"]["started"] == 1
    assert len(await stack.jobs("task")) == 1
