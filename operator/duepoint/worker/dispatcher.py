"""A claimed batch -> inputs -> decisions -> targets, under bounds.

The steps of one batch: read the definitions, assign, move on the chains that must not wait
(``split``), read the actions, make the attempts, tell the settler. At most ``concurrency``
attempts run at a time over all batches. Whatever goes wrong with one point, a bug of ours
included, is an outcome of that point; the batch and its neighbours go on.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from duepoint import errors, services, telemetry
from duepoint.clock import Clock
from duepoint.delayqueue import messages
from duepoint.delayqueue.port import Queue
from duepoint.runs import outcome as outcomes
from duepoint.runs import run
from duepoint.runs.run import RunEvent, RunState
from duepoint.schedules import actions
from duepoint.schedules import definition as definitions
from duepoint.schedules.conditions import Reason
from duepoint.targets import target as targets
from duepoint.worker import assignment as assignments
from duepoint.worker import settler as settlers
from duepoint.worker.actioncache import ActionCache, ActionUnreadable
from duepoint.worker.assignment import Assignment, Attempt
from duepoint.worker.leasekeeper import LeaseKeeper


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much this worker does at a time, and for how long it may hold a claim."""

    concurrency: int
    lease_seconds: float


class Dispatcher:
    """Carries out claims."""

    def __init__(
        self,
        queue: Queue,
        target: targets.Target,
        clock: Clock,
        bounds: Bounds,
        *,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self._queue = queue
        self._target = target
        self._clock = clock
        self._actions = ActionCache(queue)
        self._slots = asyncio.Semaphore(bounds.concurrency)
        self._dice = dice
        self.keeper = LeaseKeeper(queue, clock, lease_seconds=bounds.lease_seconds)

    async def dispatch(self, claim: messages.Claim) -> None:
        """Carry out one claim; returns when all of it is settled or lost.

        Cancelled, it gives back the points that have not ended.
        """
        settler = settlers.Settler(self._queue, self._clock, claim)
        self.keeper.keep(settler)
        telemetry.inflight.inc(len(claim.points))
        try:
            await self._carry_out(claim, settler)
        except asyncio.CancelledError:
            await asyncio.shield(self._give_back(settler))
            raise
        finally:
            telemetry.inflight.dec(len(claim.points))
            self.keeper.let_go(settler)

    async def _carry_out(self, claim: messages.Claim, settler: settlers.Settler) -> None:
        found = await self._definitions(claim)
        if found is None:
            return
        await self._load_actions(claim.shard, found.values())
        work = assignments.assign(claim, found, attempt_limit_us=self._attempt_limit_us)
        _count_ended(work.events)
        attempts = await self._split(settler, work)
        async with asyncio.TaskGroup() as group:
            settling = group.create_task(settler.run())
            if work.closes_points:
                settler.add(_closing_of(work))
            tries = [group.create_task(self._try_each(settler, one)) for one in attempts]
            await asyncio.gather(*tries)
            settler.finish()
            await settling

    async def _definitions(self, claim: messages.Claim) -> assignments.Definitions | None:
        """None where the claim ran out before Redis answered; then others take it over."""
        ids = {point.schedule_id for point in claim.points}
        waits = services.backoff(first_seconds=0.05, most_seconds=1.0)
        while self._clock.monotonic() < claim.held_until:
            try:
                return await self._queue.read_definitions(claim.shard, ids)
            except errors.TryLater as trouble:
                telemetry.logger.warning("definitions not read", error=str(trouble))
                await self._clock.sleep(next(waits))
            except errors.WorldChanged:
                return None
        return None

    async def _load_actions(
        self, shard: messages.ShardId, known: Iterable[definitions.Definition]
    ) -> None:
        wanted = {(one.namespace, one.target) for one in known}
        await asyncio.gather(*(self._actions.load(shard, *key) for key in wanted))

    def _attempt_limit_us(self, known: definitions.Definition) -> int:
        action = self._actions.known(known.namespace, known.target)
        if isinstance(action, ActionUnreadable):
            return 0
        return int(targets.attempt_limit_seconds(action) * 1_000_000)

    # -- chains that move on first -------------------------------------------------------------

    async def _split(
        self, settler: settlers.Settler, work: Assignment
    ) -> list[tuple[Attempt, ...]]:
        """The attempts that are still ours once the split chains have moved on."""
        if not work.splits:
            return work.attempts
        # In the same script: whatever a later slot tells is read after it.
        first = dataclasses.replace(work.splits[0], outcomes=run.pack(work.opened))
        try:
            held = await self._queue.split(settler.claim, [first, *work.splits[1:]])
        except (errors.TryLater, errors.WorldChanged) as trouble:
            # Not knowing whether the chains moved, nothing of them may be fired now: the claim
            # runs out and whoever reclaims it finds either the chain or its planned slots.
            telemetry.logger.warning("chains not split", error=str(trouble))
            held = tuple(False for _ in work.splits)
        lost = {
            planning.chain.schedule_id
            for planning, kept in zip(work.splits, held, strict=True)
            if not kept
        }
        planned = {one.point.member for split in work.splits for one in split.slots}
        return [
            group
            for group in work.attempts
            if group[0].point.schedule_id not in lost or group[0].point.member not in planned
        ]

    # -- attempts ------------------------------------------------------------------------------

    async def _try_each(self, settler: settlers.Settler, group: tuple[Attempt, ...]) -> None:
        for attempt in group:
            async with self._slots:
                settler.add(await self._try(settler, attempt))

    async def _try(self, settler: settlers.Settler, attempt: Attempt) -> settlers.Closing:
        known = attempt.definition
        action = self._actions.known(known.namespace, known.target)
        started_us = self._clock.now_us()
        if isinstance(action, ActionUnreadable):
            answer: outcomes.Outcome = outcomes.Retry(
                reason=Reason.INTERNAL_ERROR, message=action.message, started=False
            )
            action = _STAND_IN
            firing = self._firing(settler, attempt, action)
        else:
            firing = self._firing(settler, attempt, action)
            answer = await self._fire(firing)
        self._observe(attempt, answer)
        tried = settlers.Tried(
            attempt=attempt,
            outcome=answer,
            kind=type(action.target),
            limits=targets.retry_limits(action, firing, _deadline_us(attempt)),
            started_us=started_us,
            now_us=self._clock.now_us(),
            fraction=self._dice(),
        )
        closed = settlers.closing(tried)
        _count_ended(closed.events)
        return closed

    def _firing(
        self, settler: settlers.Settler, attempt: Attempt, action: actions.Action
    ) -> targets.Firing:
        known = attempt.definition
        now = self._clock.monotonic()
        return targets.Firing(
            action=action,
            namespace=known.namespace,
            name=known.name,
            uid=known.uid,
            generation=known.generation,
            slot_us=attempt.slot_us,
            due_us=attempt.due_us,
            previous_us=attempt.previous_us,
            trigger=attempt.trigger,
            attempt=attempt.number,
            run_uid=attempt.run_uid,
            time_zone=known.rule.timing.time_zone,
            not_after_monotonic=now if settler.lost else settler.claim.held_until,
            # The keeper goes on extending the claim for as long as the attempt runs.
            ends_by_monotonic=now + targets.attempt_limit_seconds(action),
        )

    async def _fire(self, firing: targets.Firing) -> outcomes.Outcome:
        try:
            return await self._target.fire(firing)
        except Exception as bug:  # noqa: BLE001 - one schedule's trouble is not its neighbours'
            telemetry.logger.exception(
                "target failed", namespace=firing.namespace, schedule=firing.name
            )
            return outcomes.Retry(
                reason=Reason.INTERNAL_ERROR, message=f"{type(bug).__name__} in the worker"
            )

    def _observe(self, attempt: Attempt, answer: outcomes.Outcome) -> None:
        match answer:
            case outcomes.Delivered():
                if attempt.number == 1:
                    lateness_us = max(0, answer.accepted_us - attempt.due_us)
                    telemetry.start_lateness_seconds.observe(lateness_us / 1_000_000)
            case outcomes.Retry() | outcomes.Rejected():
                telemetry.logger.info(
                    "attempt failed",
                    namespace=attempt.definition.namespace,
                    schedule=attempt.definition.name,
                    slot_us=attempt.slot_us,
                    attempt=attempt.number,
                    reason=answer.reason,
                    error=answer.message,
                )
        if attempt.first_try_us == 0 and (isinstance(answer, outcomes.Delivered) or answer.started):
            telemetry.slots_total.labels("Started", "").inc()

    # -- giving back ---------------------------------------------------------------------------

    async def _give_back(self, settler: settlers.Settler) -> None:
        """What has ended is settled; the rest is due again at once, for another worker."""
        try:
            await settler.flush()
            await self._queue.release(settler.claim)
        except (errors.TryLater, errors.WorldChanged) as trouble:
            telemetry.logger.warning("points not given back", error=str(trouble))


#: Stands in for an action that cannot be read: its retries are those of a Job.
_STAND_IN = actions.Action(target=actions.JobAction(template={}))


def _closing_of(work: Assignment) -> settlers.Closing:
    return settlers.Closing(
        finished=tuple(work.finished),
        chains=tuple(work.chains),
        ended=tuple(work.ended),
        dead=tuple(work.dead),
        events=tuple(work.events),
    )


def _count_ended(events: Iterable[RunEvent]) -> None:
    """Slots that ended without a run."""
    for event in events:
        if event.state is RunState.SUPERSEDED:
            telemetry.superseded_total.inc()
        elif event.state in (RunState.MISSED, RunState.SKIPPED) and event.count:
            telemetry.slots_total.labels(event.state, event.reason).inc(event.count)


def _deadline_us(attempt: Attempt) -> int | None:
    seconds = attempt.definition.rule.policy.deadline_seconds
    return None if seconds is None else attempt.due_us + max(seconds, 1) * 1_000_000
