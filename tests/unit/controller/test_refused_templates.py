"""A template that the API server takes when asked and refuses whenever it counts."""

from __future__ import annotations

from duepoint.runs.run import RunState
from tests.unit.controller.status.test_openslots import S
from tests.unit.controller.status.test_reporter import FIRST, event
from tests.unit.controller.world import World


def refused(made, number: int, **changes):
    return event(
        made,
        FIRST + number * 300 * S,
        RunState.MISSED,
        **{"reason": "InvalidJobTemplate", "message": "spec.x: Forbidden", **changes},
    )


async def stalled_world(world: World) -> str:
    made = await world.apply_job()
    await world.clock.advance(1_000)
    await world.tell(made["metadata"]["uid"], *(refused(made, number) for number in range(3)))
    await world.clock.advance(5)
    return made["metadata"]["uid"]


async def test_three_refusals_in_a_row_stall_it_and_take_it_from_the_queue():
    async with World().leader() as world:
        uid = await stalled_world(world)
        assert world.ready() == ("False", "InvalidJobTemplate")
        assert "spec.x: Forbidden" in world.condition("Stalled")["message"]
        assert world.definition(uid) is None
        assert world.chain_due_us(uid) is None
        assert world.status()["runs"]["missed"] == 3
        assert "nextScheduleTime" not in world.status()


async def test_it_stays_refused_after_a_resync_and_under_a_new_leader():
    world = World()
    async with world.leader():
        uid = await stalled_world(world)
        await world.resync.compare()
        await world.clock.advance(5)
        assert world.definition(uid) is None
        written = world.status_writes()
    async with world.leader(epoch=2):
        await world.clock.advance(5)
        assert world.definition(uid) is None
        assert world.ready() == ("False", "InvalidJobTemplate")
        assert world.status_writes() == written
