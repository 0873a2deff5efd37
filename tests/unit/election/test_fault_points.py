"""A leader that dies, and a write of its Lease that fails, at the fault points of an election."""

from __future__ import annotations

import asyncio

import pytest

from duepoint.election import elector
from duepoint.faults import FaultPoint
from tests.support import faultplan
from tests.unit.election import virtualtime
from tests.unit.election.leaseserver import Connection, LeaseServer
from tests.unit.election.test_elector import FIRST, a_replica

POINTS = (FaultPoint.BEFORE_LEASE_WRITE, FaultPoint.AFTER_LEASE_WRITE)


@pytest.mark.parametrize("point", POINTS)
@virtualtime.in_virtual_time
async def test_a_candidate_that_dies_around_its_write_is_followed_by_a_later_term(point):
    server = LeaseServer()
    with faultplan.FaultPlan(point).installed() as plan:
        with faultplan.part("first"):
            dead = a_replica(Connection(server))
            await dead.__aenter__()
        await asyncio.sleep(1)
        assert plan.dead == {"first"}
        async with a_replica(Connection(server)) as heir:
            began = asyncio.get_running_loop().time()
            await heir.leading.wait()
            waited = asyncio.get_running_loop().time() - began
            was_written = point is FaultPoint.AFTER_LEASE_WRITE
            assert (waited >= elector.LEASE_SECONDS) is was_written
            assert waited <= elector.LEASE_SECONDS + 2 * elector.LOOK_SECONDS
            assert (heir.term.epoch == FIRST + 1) is was_written
        plan.end()
        await dead.__aexit__(None, None, None)
