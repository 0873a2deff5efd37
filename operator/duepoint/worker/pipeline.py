"""One claim from its first point to its last settlement: plan, fire, settle.

``claimer`` hands over a claim; ``planner`` says what to do with its points, ``firing`` does it,
``settler`` writes what came of it. Owned here: that the lease is kept meanwhile, and what becomes
of a claim that is cut short. Cancelled, it gives back the points that have not ended.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from duepoint import errors, faults, services, telemetry
from duepoint.clock import Clock
from duepoint.delayqueue import messages
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.faults import FaultPoint
from duepoint.targets import target as targets
from duepoint.targets.job import activejobs
from duepoint.worker import (
    actioncache,
    attempttraces,
    claim_order,
    concurrency,
    firing,
    planner,
    results,
    slots,
)
from duepoint.worker.claim_budget import Holding
from duepoint.worker.settler import Settler

#: The interval of checks whether an attempt has been under way for long.
_CHECK_SECONDS = 1.0
#: After a longer outage the release of a claim changes nothing any more.
_COME_BACK_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Limits of one worker.

    Attributes:
        concurrency: attempts at receivers at a time.
        lease_seconds: for how long a claim is held at a time.
    """

    concurrency: int
    lease_seconds: float


class Pipeline:
    """Carries out claims, side by side.

    Args:
        traces: None where traces are off.
    """

    def __init__(
        self,
        *,
        queue: DelayQueue,
        target: targets.WorkerTarget,
        clock: Clock,
        bounds: Bounds,
        dice: Callable[[], float] = random.random,
        jobs: activejobs.ScheduleJobs = activejobs.NO_JOBS,
        traces: attempttraces.AttemptTraces | None = None,
    ) -> None:
        self._queue = queue
        self._clock = clock
        self._order = claim_order.SmallerFirst(clock)
        self.jobs = slots.JobSlots(clock)
        self.leases = Leases(queue, clock, lease_seconds=bounds.lease_seconds)
        actions = actioncache.ActionCache(queue)
        self._planner = planner.Planner(queue=queue, target=target, actions=actions)
        self._firing = firing.Firer(
            queue=queue,
            target=target,
            clock=clock,
            actions=actions,
            slots=slots.AttemptSlots(clock, bounds.concurrency, self.jobs, actions),
            gate=concurrency.Gate(queue, jobs),
            results=results.Results(clock=clock, dice=dice, traces=traces),
            traces=traces,
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
            async with self._order.of(claim):
                plan = await self._planner.plan(settler, claim)
                await faults.reach(FaultPoint.AFTER_PLAN)
                if plan is None:
                    settler.lost = True
                else:
                    await self._firing.fire(plan, settler, holding)
                    await settler.finish()
            if settler.lost and settler.cut_off:
                await self._come_back(settler)
        except asyncio.CancelledError:
            await asyncio.shield(self._give_back(settler))
            raise
        finally:
            telemetry.inflight.dec(len(claim.points))
            self.leases.end(settler)

    async def _give_back(self, settler: Settler) -> None:
        """What has ended is settled; the rest is due again at once, for another worker."""
        try:
            await settler.finish()
            await faults.reach(FaultPoint.BEFORE_RELEASE)
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


class Leases:
    """Extends the claims of one worker while their points are carried out.

    A claim lasts ``lease_seconds``; an attempt may take longer. Every claim with unfinished points
    is extended when a third of its lease is left to spare, and never one whose points are all
    settled. Attempts that have been under way for long are reported on the same round, so that a
    status shows them. A claim that Redis says is lost stays lost: its attempts may end, their
    settlements write nothing but outcomes, and nothing new is sent under it. A worker without
    claims does not wake for this.
    """

    def __init__(self, queue: DelayQueue, clock: Clock, *, lease_seconds: float) -> None:
        self._queue = queue
        self._clock = clock
        self._lease_seconds = lease_seconds
        self._kept: set[Settler] = set()
        self._is_busy = asyncio.Event()

    def keep(self, settler: Settler) -> None:
        """This claim is carried out from now on."""
        self._kept.add(settler)
        self._is_busy.set()

    def end(self, settler: Settler) -> None:
        """This claim has ended."""
        self._kept.discard(settler)
        if not self._kept:
            self._is_busy.clear()

    async def run(self) -> None:
        """Extend, and report what takes long, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._extend_in_time())
            group.create_task(self._report_open())

    async def _report_open(self) -> None:
        while True:
            await self._is_busy.wait()
            await self._clock.sleep(_CHECK_SECONDS)
            for settler in self._kept:
                settler.report_open()

    async def _extend_in_time(self) -> None:
        while True:
            await self._is_busy.wait()
            await self._clock.sleep(self._lease_seconds / 6)
            soon = self._clock.monotonic() + self._lease_seconds * 2 / 3
            ageing = [each for each in self._kept if not each.lost and each.claim.held_until < soon]
            # Together: one command without an answer must not cost the other claims their lease.
            troubles = list(filter(None, await asyncio.gather(*map(self._extend, ageing))))
            if troubles:
                telemetry.logger.warning(
                    "claims not extended", claims=len(troubles), error=troubles[0]
                )

    async def _extend(self, settler: Settler) -> str | None:
        """The trouble, where there was any."""
        try:
            await faults.reach(FaultPoint.BEFORE_EXTENSION)
            extended = await self._queue.claims.extend(settler.claim, self._lease_seconds)
            await faults.reach(FaultPoint.AFTER_EXTENSION)
        except (errors.TryLater, errors.WorldChanged) as trouble:
            settler.cut_off = True
            return str(trouble)
        except Exception as bug:  # noqa: BLE001 - one claim's trouble must not end the keeping of the others
            telemetry.logger.exception("claim not extended")
            return repr(bug)
        if extended is None:
            settler.lost = True
        else:
            settler.claim = extended
        return None
