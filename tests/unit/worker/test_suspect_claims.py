"""What ends workers is buried alone: neighbours are kept away from it, however slow they are."""

from __future__ import annotations

import asyncio

import pytest

from duepoint.delayqueue import messages
from duepoint.runs import outcome as outcomes
from duepoint.schedules import actions
from duepoint.targets import target
from tests.fakes.recordingtarget import NoEntries
from tests.support.builders import a_definition, at
from tests.support.workplace import a_workplace

NOON = at("2026-03-01 12:00:00")
SLOW = actions.Action(
    target=actions.WebhookAction(url="https://hooks.example.com/x", timeout_seconds=300)
)
FIRST, SECOND = messages.ShardId(1), messages.ShardId(2)


class Deadly(NoEntries):
    """Neighbours take a second, or as long as is said; one slot ends its worker before that."""

    def __init__(self, clock, delivered, seconds=None):
        self._clock = clock
        self._delivered = delivered
        self._seconds = seconds or {}
        self.died = False

    async def fire(self, firing):
        if target.seconds_left(firing, self._clock) <= 0:
            return target.not_started()
        self.died = self.died or firing.name == "poison"
        await self._clock.sleep(self._seconds.get(firing.name, 1))
        self._delivered.add(firing.name)
        return outcomes.Delivered(accepted_us=self._clock.now_us())


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_slot_that_ends_workers_takes_no_slow_neighbour_along(workers):
    place = await a_workplace()
    names = {"poison", *(f"good-{number}" for number in range(80))}
    for name in sorted(names):
        known = a_definition("@every 1h", created_us=NOON, not_before_us=NOON, uid=name, name=name)
        await place.arm(known)
    await place.clock.advance(3600)
    delivered, staff, deaths = set(), {}, 0
    while delivered | _buried(place) != names:
        while len(staff) < workers:
            place.target = Deadly(place.clock, delivered)
            worker = place.a_worker(f"w{deaths}-{len(staff)}", concurrency=100)
            staff[asyncio.create_task(worker.run())] = place.target
        await place.clock.advance(0.1)
        for task in [task for task, one in staff.items() if one.died]:
            del staff[task]
            await _kill(place, [task])
            deaths += 1
            assert deaths < 20
    await _kill(place, staff)
    assert _buried(place) == {"poison"}


async def _kill(place, tasks):
    place.queue.available = False
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    place.queue.available = True


def _buried(place):
    letters = (one for shard in place.queue.shards.values() for one in shard.dead)
    return {letter.entry["name"] for letter in letters}
