"""A server of some shards is away: the others fire on, and somebody is told, once."""

from __future__ import annotations

import pytest

from duepoint.delayqueue import sharding
from tests.support.builders import a_definition, a_rule, at
from tests.support.workplace import a_workplace

NOON = at("2026-03-01 12:00:00")
SECOND = 1_000_000
ALL = {"catch_up_policy": "All", "catch_up_limit": 1_000}


@pytest.fixture
async def place():
    """Two schedules, every ten seconds, in two shards."""
    place = await a_workplace()
    place.shards = {}
    for number in range(20):
        name = f"s-{number}"
        known = a_definition(
            rule=a_rule("@every 10s", policy=ALL),
            uid=f"uid-{number}", name=name, namespace=name,
            created_us=NOON, not_before_us=NOON,
        )  # fmt: skip
        shard = sharding.shard_of(known.id, 4)
        if shard not in place.shards.values() and len(place.shards) < 2:
            place.shards[await _name(place, known)] = shard
    return place


async def _name(place, known):
    await place.arm(known)
    return known.name


def _fired(place, name):
    return [(one.slot_us - NOON) // SECOND for one in place.target.fired if one.name == name]


async def test_shards_of_other_servers_fire_on_time(place):
    here, there = place.shards
    async with place.working(place.a_worker()):
        await place.clock.advance(11)
        place.queue.take_away(place.shards[there])
        for second in range(20, 101, 10):
            await place.clock.advance(10)
            assert _fired(place, here)[-1] == second
        assert _fired(place, there) == [10]
        place.queue.take_away()
        await place.clock.advance(2)
        assert sorted(_fired(place, there)) == list(range(10, 101, 10))
