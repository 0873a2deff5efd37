"""How members ended is counted by the scripts that end them, and never falls."""

from __future__ import annotations

import pytest

from duepoint.delayqueue import messages
from duepoint.delayqueue.definitions import lanes
from duepoint.runs import run
from duepoint.runs.run import SetTally
from tests.support.virtualqueue import look
from tests.unit.controller.setworld import SetWorld

#: The status follows within this: a round of counting, and the distance of two writes.
SHOWN_SECONDS = 21


@pytest.fixture
def world():
    return SetWorld()


def stored(world, shard: int) -> tuple[str, str]:
    """Key and field of what a shard has counted of the set."""
    meta = world.queue.index.shard(messages.ShardId(shard)).meta
    return meta, lanes.tally_field(world.record().identity)


def ended(world, shard=0, **counts) -> None:
    """Slots of members have ended in a shard."""
    key, field = stored(world, shard)
    known = run.read_tally(look("HGET", key, field))
    look("HSET", key, field, known.plus(SetTally(**counts)).text)


async def test_counts_outlive_an_emptied_redis_and_its_leader(world):
    async with world.leader():
        await world.apply_set()
        ended(world, succeeded=5, newest_slot_us=60_000_000)
        await world.clock.advance(SHOWN_SECONDS)
        await world.lose_redis()
        world.sets.request()
        await world.clock.advance(SHOWN_SECONDS)
        ended(world, 1, succeeded=1)
        await world.clock.advance(SHOWN_SECONDS)
        assert world.set_status()["runs"]["succeeded"] == 6
    world.queue.flush()
    async with world.leader(epoch=2):
        await world.clock.advance(SHOWN_SECONDS)
        ended(world, 1, succeeded=1)
        await world.clock.advance(SHOWN_SECONDS)
        assert world.set_status()["runs"]["succeeded"] == 7
        assert world.set_status()["lastScheduleTime"] == "1970-01-01T00:01:00Z"
