"""Two installations over the same Schedules, or the same index: each that can know says so."""

from __future__ import annotations

import copy

from duepoint.controller.maintenance import otherinstalls
from duepoint.controller.status import published
from duepoint.kube import errors as kube_errors
from duepoint.kube import port, schedules
from tests.unit.controller.world import NAMESPACE, World, seen_of

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


async def test_an_installation_that_was_here_before_is_nobody():
    world = World(managed_by=OTHERS)
    async with world.leader():
        await world.apply()
        await world.clock.advance(5)
    world.managed_by = world.others.own = OURS
    async with world.leader(epoch=2):
        await world.apply(payload={"a": 1})
        await world.clock.advance(60)
        assert world.status()["managedBy"] == OURS
        assert trouble(world) == ""


async def test_a_late_observation_of_a_state_before_our_write_is_no_proof():
    world = World(managed_by=OTHERS)
    async with world.leader():
        made = await world.apply()
        await world.clock.advance(5)
        before = world.object()
    world.managed_by = world.others.own = OURS
    async with world.leader(epoch=2):
        await world.apply(payload={"a": 1})
        await world.clock.advance(5)
        world.observations.offer(seen_of(before))
        await world.clock.advance(60)
        assert made["metadata"]["uid"] == before["metadata"]["uid"]
        assert trouble(world) == ""


async def test_what_cannot_be_looked_at_is_looked_at_when_it_is_seen_again():
    async with World(managed_by=OURS).leader() as world:
        await world.apply()
        await world.clock.advance(5)
        world.watches = False
        await written_by(world, OTHERS)
        world.api.fail_next(kube_errors.Unavailable("503"), verb="GET", resource="schedules")
        world.observations.offer(seen_of(world.object()))
        await world.clock.advance(60)
        assert trouble(world) == ""
        world.watches = True
        await written_by(world, OTHERS)
        await world.clock.advance(60)
        assert OTHERS in trouble(world)


async def test_it_is_forgotten_once_nothing_was_seen_of_it_for_a_while():
    async with World(managed_by=OURS).leader() as world:
        await world.apply()
        await world.clock.advance(5)
        await written_by(world, OTHERS)
        await world.clock.advance(60)
        assert trouble(world)
        await world.clock.advance(3600)
        assert trouble(world) == ""


def test_a_status_of_an_older_version_names_nobody():
    assert published.managed_by(b'{"observedGeneration": 3}') == ""
    assert published.managed_by(b"") == ""
