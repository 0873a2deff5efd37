"""Two installations over the same Schedules, or the same index: each that can know says so."""

from __future__ import annotations

import copy

from duepoint.controller.maintenance import otherinstalls
from duepoint.kube import port, schedules
from tests.unit.controller.world import NAMESPACE, World

OURS = "duepoint-system/duepoint-operator"
OTHERS = "elsewhere/duepoint-operator"


async def written_by(world: World, name: str, status=None) -> None:
    """Somebody writes the status, as an operator of that installation does."""
    status = copy.deepcopy(status or world.status()) | {"managedBy": name}
    patch = [{"op": "add", "path": "/status", "value": status}]
    path = f"{schedules.path(NAMESPACE, 'nightly')}/status"
    await world.api.request("PATCH", path, patch, content_type=port.JSON_PATCH)
    await world.clock.settle()


def trouble(world: World) -> str:
    return world.health.troubles().get(otherinstalls.PART, "")


async def test_a_status_names_the_installation_that_wrote_it():
    async with World(managed_by=OURS).leader() as world:
        await world.apply()
        await world.clock.advance(5)
        assert world.status()["managedBy"] == OURS


async def test_another_installation_that_writes_after_us_is_told_by_readiness_and_event():
    async with World(managed_by=OURS).leader() as world:
        await world.apply()
        await world.clock.advance(5)
        await written_by(world, OTHERS)
        await world.clock.advance(5)
        assert OTHERS in trouble(world)
        assert f"{NAMESPACE}/nightly" in trouble(world)
        (news,) = [one for one in world.news if one.reason == "OtherInstall"]
        assert news.warning
        assert OURS in news.note
        assert OTHERS in news.note


async def test_nobody_fights_over_the_mark():
    async with World(managed_by=OURS).leader() as world:
        await world.apply()
        await world.clock.advance(5)
        await written_by(world, OTHERS)
        writes = world.status_writes()
        await world.clock.advance(60)
        assert world.status_writes() == writes
