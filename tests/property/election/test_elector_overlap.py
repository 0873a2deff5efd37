"""Random faults for hours of virtual time: never two terms at once, epochs only rise."""

from __future__ import annotations

import asyncio
import random

import pytest

from duepoint.election import elector
from tests.unit.election import virtualtime
from tests.unit.election.leaseserver import Connection, Fault, LeaseServer
from tests.unit.election.test_elector import none_known

HOUR = 3600.0
#: Clocks of good machines differ by far less.
MOST_DRIFT = 0.02
#: Nothing that a replica asks for is done: it must notice by itself that it is over.
CUT_OFF = [Fault.REFUSED, Fault.HANGS]


class World:
    """Three replicas on one server, and what happened to them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.server = LeaseServer()
        self.terms: list[elector.Term] = []
        self.working: set[int] = set()
        self.wrong: list[str] = []
        self.faults_until = 0.0
        self.repertoire = CUT_OFF
        self.troubled: set[int] = set()

    def replica(self, number: int) -> tuple[elector.Elector, virtualtime.VirtualClock]:
        drift = self.random.uniform(-MOST_DRIFT, MOST_DRIFT)
        clock = virtualtime.VirtualClock(1.0 + drift)
        connection = Connection(
            self.server, plan=lambda verb: self.fate(number, verb), rng=self.random
        )
        return elector.Elector(
            connection,
            clock,
            elector.unique(f"replica-{number}"),
            known_epoch=none_known,
            rng=self.random,
        ), clock

    def fate(self, number: int, _verb: str) -> Fault:
        now = asyncio.get_running_loop().time()
        if now >= self.faults_until:
            self.faults_until = now + self.random.expovariate(1 / 40)
            self.repertoire = self.random.choice([list(Fault), CUT_OFF])
            self.troubled = {one for one in range(3) if self.random.random() < 0.4}
        if number not in self.troubled:
            return Fault.NONE
        return self.random.choice(self.repertoire)

    async def work(self, number: int, term: elector.Term) -> None:
        self.check(number, term)
        self.terms.append(term)
        self.working.add(number)
        try:
            await asyncio.sleep(self.random.choice([20.0, 120.0, HOUR]))
        except asyncio.CancelledError:
            await asyncio.sleep(self.random.uniform(0, 3.5))
            raise
        finally:
            self.working.remove(number)

    def check(self, number: int, term: elector.Term) -> None:
        """Work that raises is met by the elector, so what is wrong is written down instead."""
        if self.working:
            self.wrong.append(f"{self.working} still work when {number} begins")
        if any(other.is_held() for other in self.terms):
            self.wrong.append("two flags are up")
        if any(other.epoch >= term.epoch for other in self.terms):
            self.wrong.append("an epoch came back")

    async def live(self, number: int) -> None:
        """Start, run for a while, be stopped, start anew."""
        while True:
            one, _clock = self.replica(number)
            running = asyncio.create_task(one.run(lambda term: self.work(number, term)))
            await asyncio.wait({running}, timeout=self.random.uniform(10, 600))
            if running.done():
                running.result()
            running.cancel()
            # Awaited, its end would look like that of this life, which would then go on for ever.
            await asyncio.wait({running})
            if not running.cancelled():
                running.result()


@pytest.mark.parametrize("seed", range(3))
def test_terms_never_overlap_whatever_becomes_of_calls(seed: int):
    async def main() -> World:
        world = World(seed)
        lives = [asyncio.create_task(world.live(number)) for number in range(3)]
        done, _ = await asyncio.wait(lives, timeout=HOUR)
        for life in done:
            life.result()
        for life in lives:
            life.cancel()
        await asyncio.gather(*lives, return_exceptions=True)
        return world

    world = virtualtime.run(main())
    assert not world.wrong
    assert len(world.terms) > 10, "a history without changes of leader shows nothing"
