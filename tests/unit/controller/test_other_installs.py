"""Two installations over the same Schedules, or the same index: each that can know says so."""

from __future__ import annotations

import copy

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


async def test_a_status_names_the_installation_that_wrote_it():
    async with World(managed_by=OURS).leader() as world:
        await world.apply()
        await world.clock.advance(5)
        assert world.status()["managedBy"] == OURS


async def test_nobody_fights_over_the_mark():
    async with World(managed_by=OURS).leader() as world:
        await world.apply()
        await world.clock.advance(5)
        await written_by(world, OTHERS)
        writes = world.status_writes()
        await world.clock.advance(60)
        assert world.status_writes() == writes
