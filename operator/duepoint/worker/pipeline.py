"""One claim from its first point to its last settlement: plan, fire, settle.

``claimer`` hands over a claim; ``planner`` says what to do with its points, ``firing`` does it,
``settler`` writes what came of it. Owned here: that the lease is kept meanwhile, and what becomes
of a claim that is cut short. Cancelled, it gives back the points that have not ended.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from duepoint import clock as clocks
from duepoint import errors, services, telemetry
from duepoint.clock import Clock
from duepoint.delayqueue import messages
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.targets import activejobs
from duepoint.targets import target as targets
from duepoint.worker import (
    actioncache,
    concurrency,
    firing,
    job_slots,
    leases,
    planner,
    results,
    slots,
)
from duepoint.worker.claim_budget import Holding
from duepoint.worker.settler import Settler

#: A longer outage is known to everyone.
_COME_BACK_SECONDS = 600.0
#: A claim of so many points or more lets smaller ones go first, for as long as this. Most claims
#: have ended by then; those that wait for a receiver have sent their requests.
_LARGE_CLAIM = 8
_SMALLER_FIRST_SECONDS = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Limits of one worker.

    Attributes:
        concurrency: attempts at receivers at a time.
        lease_seconds: for how long a claim is held at a time.
    """

    concurrency: int
    lease_seconds: float


class SmallerFirst:
    """Lets a large claim wait a moment for claims that came with it and are half as large.

    One namespace's burst and another's single slot are due in the same second, in shards of their
    own. The loop is one thread: the claim that begins first delays the other by all of its work.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: Size, time of the beginning, and whether it has ended.
        self._begun: collections.deque[tuple[int, float, asyncio.Event]] = collections.deque()

    @property
    def known(self) -> int:
        """Claims that a later one might wait for."""
        return len(self._begun)

    @contextlib.asynccontextmanager
    async def turn(self, points: int) -> AsyncIterator[None]:
        """Around one claim of so many points."""
        if points >= _LARGE_CLAIM:
            await self._wait_for_smaller(points)
        ended = asyncio.Event()
        self._begun.append((points, self._clock.monotonic(), ended))
        try:
            yield
        finally:
            ended.set()
            self._forget()

    async def _wait_for_smaller(self, points: int) -> None:
        await asyncio.sleep(0)  # those that were handed over in the same moment begin
        for others, begun_at, ended in tuple(self._begun):
            left = begun_at + _SMALLER_FIRST_SECONDS - self._clock.monotonic()
            if left > 0 and 2 * others <= points:
                await clocks.wait_for(ended, left, self._clock)

    def _forget(self) -> None:
        """Of those that have ended, or that are waited for no longer."""
        latest = self._clock.monotonic() - _SMALLER_FIRST_SECONDS
        begun = self._begun
        while begun and (begun[0][1] <= latest or begun[0][2].is_set()):
            begun.popleft()


class Pipeline:
    """Carries out claims, side by side."""

    def __init__(
        self,
        *,
        queue: DelayQueue,
        target: targets.WorkerTarget,
        clock: Clock,
        bounds: Bounds,
        dice: Callable[[], float] = random.random,
        jobs: activejobs.Jobs = activejobs.NO_JOBS,
    ) -> None:
        self._queue = queue
        self._clock = clock
        self._order = SmallerFirst(clock)
        self.jobs = job_slots.JobSlots(clock)
        self.leases = leases.Leases(queue, clock, lease_seconds=bounds.lease_seconds)
        actions = actioncache.ActionCache(queue)
        self._planner = planner.Planner(queue=queue, target=target, actions=actions)
        self._firing = firing.Firing(
            queue=queue,
            target=target,
            clock=clock,
            actions=actions,
            slots=slots.AttemptSlots(clock, bounds.concurrency, self.jobs),
            gate=concurrency.Gate(queue, jobs),
            results=results.Results(clock=clock, dice=dice),
        )

    def drain(self) -> None:
        """No attempt begins from now on; those that have not are due for other workers at once."""
        self._firing.drain()

    async def run(
        self,
        claim: messages.Claim,
        holding: Holding,
        wait_to_begin: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Carry out one claim; returns when all of it is settled or lost.

        Args:
            holding: hears which points have ended: one slow delivery may outlast the rest of its
                claim by minutes.
            wait_to_begin: the claim is kept while it lasts, and nothing of it is tried.
        """
        settler = Settler(self._queue, self._clock, claim)
        self.leases.keep(settler)
        telemetry.inflight.inc(len(claim.points))
        try:
            if wait_to_begin is not None:
                await wait_to_begin()
                # What was read with the claim, and the time, may be old by now.
                now_us = settler.now_us()
                claim = dataclasses.replace(settler.claim, definitions={}, now_us=now_us)
            async with self._order.turn(len(claim.points)):
                await self._carry_out(claim, settler, holding)
            if settler.lost and settler.cut_off:
                await self._come_back(settler)
        except asyncio.CancelledError:
            await asyncio.shield(self._give_back(settler))
            raise
        finally:
            telemetry.inflight.dec(len(claim.points))
            self.leases.let_go(settler)

    async def _carry_out(self, claim: messages.Claim, settler: Settler, holding: Holding) -> None:
        plan = await self._planner.plan(settler, claim)
        if plan is None:
            settler.lost = True
            return
        await self._firing.fire(plan, settler, holding)
        await settler.flush()

    async def _give_back(self, settler: Settler) -> None:
        """What has ended is settled; the rest is due again at once, for another worker."""
        try:
            await settler.flush()
            await self._queue.claims.release(settler.claim)
        except (errors.TryLater, errors.WorldChanged) as trouble:
            telemetry.logger.warning("points not given back", error=str(trouble))

    async def _come_back(self, settler: Settler) -> None:
        """A claim ran out because the queue was away: its points did not end their owner.

        Said as soon as the queue answers, and before it anything that is still ours is given back.
        """
        waits = services.backoff(first_seconds=0.2, most_seconds=5.0)
        last_try = self._clock.monotonic() + _COME_BACK_SECONDS
        while self._clock.monotonic() < last_try:
            try:
                await self._queue.claims.release(settler.claim)
            except errors.TryLater:
                await self._clock.sleep(next(waits))
            except errors.WorldChanged:
                return
            else:
                return
