"""Carries out claims, each from its first point to its last settlement: plan, fire, settle.

``claimer`` hands over a claim, ``planner`` decides what to do with its points, and ``settler``
writes the outcomes. Ordinary points whose entries go into our own Redis are appended together
(``handover``); every other point is an attempt of its own, made once its namespace has a place for
it (``room``). Chains that must not wait for their attempts move on first (``split``). A failure of
one point, even by a bug of ours, is an outcome of that point; its neighbours go on.

When the worker drains, attempts that have not begun are due again at once for other workers;
attempts in flight may end. The slots of one catch-up are tried one after the other: while one is in
flight the others wait, and a draining worker gives them back when it has ended. A claim that is
cancelled gives back the points that have not ended.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field

from duepoint import errors, faults, telemetry
from duepoint.clock import Clock
from duepoint.delayqueue import messages
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.delayqueue.messages import Settlement
from duepoint.faults import FaultPoint
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason
from duepoint.schedules.points import PointKind
from duepoint.targets import jobtarget
from duepoint.targets import outcome as outcomes
from duepoint.targets import target as targets
from duepoint.worker import (
    concurrency,
    endings,
    handover,
    planner,
    results,
    room,
)
from duepoint.worker.actioncache import ActionCache
from duepoint.worker.plan import ActionUnreadable, Attempt, Outline, Plan
from duepoint.worker.settler import Leases, Settler

#: Bounds of the wait before an unreadable action is read again; between them, half the slot's age.
_UNREADABLE_WAIT_US = (500_000, 60_000_000)
#: Turns of the loop after which an attempt with an open connection has sent its request.
_TURNS_TO_REQUEST = 4
#: How long a check may take: several objects, each with a limit of its own.
_CHECK_SECONDS = 30.0

#: Stands in for an action that cannot be read; it is retried like a Job.
_STAND_IN = actions.Action(target=actions.JobAction())


@dataclass(slots=True, kw_only=True, eq=False)
class _Work:
    """One claim while it is fired.

    Attributes:
        begun: points whose attempts no longer wait.
        split: set when the queue has stored every point that is tried.
        is_over: whether no further attempt may begin.
    """

    plan: Plan
    settler: Settler
    holding: room.Holding
    begun: set[bytes] = field(default_factory=set)
    split: asyncio.Event = field(default_factory=asyncio.Event)
    is_over: bool = False
    giving_back: list[asyncio.Task[None]] = field(default_factory=list)

    def begins(self, attempts: Iterable[Attempt]) -> bool:
        """Mark this sequence as begun and return True; False if the work is over."""
        if not self.is_over:
            self.begun.update([attempt.point.member for attempt in attempts])
        return not self.is_over


class Firer:
    """Carries out claims, side by side.

    Args:
        targets: the target of each kind of action.
        streams: composes the entries of streams in the queue's own Redis.
        places: most attempts at receivers at a time.
        lease_seconds: length of a lease, also when it is extended.
        traces: None if traces are off.
    """

    def __init__(
        self,
        *,
        queue: DelayQueue,
        targets: Mapping[str, targets.Target],
        streams: targets.EntryTarget,
        clock: Clock,
        places: int,
        lease_seconds: float,
        dice: Callable[[], float] = random.random,
        jobs: jobtarget.ActiveJobs,
        traces: results.AttemptTraces | None = None,
    ) -> None:
        self._queue = queue
        self._targets = targets
        self._streams = streams
        self._clock = clock
        self._traces = traces
        self.jobs = room.JobPlaces(clock)
        self.leases = Leases(queue, clock, lease_seconds=lease_seconds)
        self._actions = ActionCache(queue)
        self._planner = planner.Planner(queue=queue, streams=streams, actions=self._actions)
        self._places = room.AttemptPlaces(clock, places, self.jobs)
        self._active_jobs = jobs
        self._results = results.Results(clock=clock, dice=dice, traces=traces)
        self._handover = handover.Handover(
            queue=queue, streams=streams, clock=clock, results=self._results
        )
        self._is_draining = False
        self._works: set[_Work] = set()

    def drain(self) -> None:
        """Begin no further attempt; give waiting ones back, due at once for other workers."""
        self._is_draining = True
        for work in self._works:
            self._end(work)

    async def run(
        self,
        claim: messages.Claim,
        holding: room.Holding,
        wait_to_begin: Callable[[], Awaitable[None]] | None = None,
    ) -> bool:
        """Carry out one claim; returns when all of it is settled or lost.

        Returns False if it was lost because the queue was away.

        Args:
            holding: notified of each point that ends: one slow delivery may outlast the rest of its
                claim by minutes.
            wait_to_begin: awaited before any attempt; the lease is extended meanwhile.
        """
        settler = Settler(self._queue, self._clock, claim)
        self.leases.keep(settler)
        size = holding.left
        telemetry.inflight.inc(size)
        try:
            if wait_to_begin is not None:
                await wait_to_begin()
                # The records that came with the claim, and its time, may be stale by now.
                now_us = settler.now_us()
                claim = dataclasses.replace(settler.claim, stored={}, now_us=now_us)
            plan = await self._planner.plan(settler, claim)
            if plan is None:
                settler.lost = True
            else:
                await self._fire(plan, settler, holding)
                await settler.finish()
        except asyncio.CancelledError:
            await asyncio.shield(self._give_up(settler))
            raise
        finally:
            telemetry.inflight.dec(size)
            self.leases.end(settler)
        return not (settler.lost and settler.cut_off)

    async def _fire(self, plan: Plan, settler: Settler, holding: room.Holding) -> None:
        """Carry out a plan; on return the settler has every ending, unless the claim is lost."""
        work = _Work(plan=plan, settler=settler, holding=holding)
        self._works.add(work)
        if self._is_draining:
            self._end(work)
        try:
            async with asyncio.TaskGroup() as group:
                attempts, tries = plan.attempts, []
                lost: set[bytes] = set()
                if plan.batches:
                    attempts = attempts + await self._append_batches(work)
                if plan.splits:
                    first = [one for one in attempts if one[0].begins_first]
                    tries = await self._begin(group, work, first)
                    # The attempts go first, because they are due and the split is not. In one turn
                    # of the loop each attempt makes one step.
                    for _ in range(_TURNS_TO_REQUEST):
                        await asyncio.sleep(0)
                    lost = await self._split(work)
                work.split.set()
                others = [
                    one
                    for one in attempts
                    if not (plan.splits and one[0].begins_first)
                    and not (lost and one[0].point.member in lost)
                ]
                if (settled := holding.left - len(tries) - len(others)) > 0:
                    holding.ended(settled)
                settler.add(plan.settlement)
                await self._begin(group, work, others)
                asyncio.get_running_loop().call_soon(holding.kinds_known)  # each has begun by then
        finally:
            self._works.discard(work)
            work.split.set()
            await asyncio.gather(*work.giving_back)

    async def _begin(
        self, group: asyncio.TaskGroup, work: _Work, sequences: list[tuple[Attempt, ...]]
    ) -> list[asyncio.Task[None]]:
        """Begin these attempts, one in each turn of the event loop.

        Between two turns the loop reads answers and claims due points, so that other claims need
        not wait until a large one has begun. Namespaces with few attempts go first.
        """
        count = collections.Counter(one[0].definition.namespace for one in sequences)
        sequences = sorted(sequences, key=lambda one: count[one[0].definition.namespace])
        tries: list[asyncio.Task[None]] = []
        for one in sequences:
            tries.append(group.create_task(self._fire_in_turn(work, one)))
            work.holding.begun(1)
            await asyncio.sleep(0)
        return tries

    # -- the end of the worker -------------------------------------------------------------------

    def _end(self, work: _Work) -> None:
        """Begin no further attempt of this claim; give the waiting ones back."""
        work.is_over = True
        work.giving_back.append(asyncio.create_task(self._give_back(work)))

    async def _give_back(self, work: _Work) -> None:
        await work.split.wait()
        members = work.plan.members() - work.begun
        work.begun |= members
        try:
            if members:
                await self._queue.claims.release(work.settler.claim, members)
        except (errors.TryLater, errors.WorldChanged) as trouble:
            telemetry.logger.warning("points not given back", error=str(trouble))

    async def _give_up(self, settler: Settler) -> None:
        """Settle what has ended; release the rest, due at once for another worker."""
        try:
            await settler.finish()
            await self._queue.claims.release(settler.claim)
        except (errors.TryLater, errors.WorldChanged) as trouble:
            telemetry.logger.warning("points not given back", error=str(trouble))

    # -- entries of streams ----------------------------------------------------------------------

    async def _append_batches(self, work: _Work) -> list[tuple[Attempt, ...]]:
        """Append the entries of ordinary points; return those that a stream refused."""
        if work.is_over:
            return []
        members = [member for batch in work.plan.batches for member in batch.members]
        work.begun.update(members)
        refused = await self._handover.append_all(work.settler, work.plan.batches)
        for batch in refused:
            work.begun.difference_update(batch.members)
        return [one for batch in refused for one in batch.attempts()]

    # -- chains that move on first ---------------------------------------------------------------

    async def _split(self, work: _Work) -> set[bytes]:
        """Move the split chains on; return the points that this claim no longer holds."""
        lost = await work.settler.split(work.plan.splits)
        return set(lost)

    # -- requests --------------------------------------------------------------------------------

    async def _fire_in_turn(self, work: _Work, attempts: tuple[Attempt, ...]) -> None:
        """Make the attempts of a sequence; settle each one only after the split.

        Until the chain has moved on, the claim holds the chain and not yet its planned slot.
        """
        known = attempts[0].definition
        outline = work.plan.outlines[known.namespace, known.target]
        for number, attempt in enumerate(attempts):
            async with self._places.of(attempt, outline) as wait_seconds:
                if not work.begins(attempts[number:]):
                    break
                ending = await self._fire_one(work.settler, attempt, outline, wait_seconds)
            await work.split.wait()
            work.settler.add(ending)
            if later := attempts[number + 1 :]:  # each now waits for a place of its own
                work.begun.difference_update([one.point.member for one in later])
                if work.is_over:
                    self._end(work)
        work.holding.ended(1)

    async def _fire_one(
        self, settler: Settler, attempt: Attempt, outline: Outline, wait_seconds: float
    ) -> Settlement:
        """Make an attempt and return how it ends; a slow delivery is reported meanwhile.

        Args:
            wait_seconds: to put it off by, as its namespace has as many in flight as it may.
        """
        if attempt.point.kind is PointKind.CHECK:
            return await self._check(settler, attempt)
        firing, refusal = await self._prepared(settler, attempt, outline, wait_seconds)
        answer: outcomes.Outcome | None = refusal
        question: concurrency.Question | None = None
        start: concurrency.Start | None = None
        started_us = settler.now_us()
        if attempt.is_judged and isinstance(firing.action.target, concurrency.LASTING):
            question = concurrency.Question(
                self._queue, self._active_jobs, settler, attempt, firing
            )
            verdict = refusal or await question.ask()
            if isinstance(verdict, Settlement):
                results.count_ended(verdict.events)
                return verdict
            if isinstance(verdict, concurrency.Start):
                start = verdict
                answer = start.made_before
            else:
                answer = verdict
        elif answer is None and self._streams.appends(firing.action):
            return await self._handover.append_one(settler, attempt, firing)
        if answer is None:
            started_us = settler.begin(attempt, firing.action)
            if self._traces is not None:
                firing = self._traces.begin(firing)
            try:
                answer = await self._targets[firing.action.target.kind].fire(firing)
                await faults.reach(FaultPoint.AFTER_ATTEMPT)
                targets.count(firing.namespace, firing.action, answer)
            except Exception as bug:  # noqa: BLE001 - one schedule's trouble is not its neighbours'
                self._results.report_bug(firing, bug)
                answer = outcomes.Retry(
                    reason=Reason.INTERNAL_ERROR, message=f"{type(bug).__name__} in the worker"
                )
            finally:
                settler.end(attempt)
        ending = self._results.record(settler, attempt, firing, answer, started_us)
        if question is not None:
            await question.report(start, answer, ending)
        return ending

    async def _prepared(
        self, settler: Settler, attempt: Attempt, outline: Outline, wait_seconds: float
    ) -> tuple[targets.Firing, outcomes.Retry | outcomes.Rejected | None]:
        """Return the firing, and an outcome if nothing is to be tried now."""
        shard, now_us = settler.claim.shard, settler.now_us()
        action = outline if wait_seconds else await self._actions.of(shard, attempt)
        if isinstance(action, ActionUnreadable):
            firing = self._firing(settler, attempt, _STAND_IN)
            return firing, _unreadable(action, attempt, now_us)
        firing = self._firing(settler, attempt, action)
        give_up_us = targets.give_up_us(firing, attempt.deadline_us)
        if attempt.is_retry and now_us >= give_up_us:
            return firing, _too_late(attempt)
        if wait_seconds:
            is_job = isinstance(action.target, actions.JobAction)
            left_us = give_up_us - now_us
            return firing, room.put_off(
                wait_seconds, firing.namespace, is_job=is_job, left_us=left_us
            )
        await faults.reach(FaultPoint.BEFORE_ATTEMPT)
        return firing, None

    def _firing(self, settler: Settler, attempt: Attempt, action: actions.Action) -> targets.Firing:
        now = self._clock.monotonic()
        not_after = now if settler.lost else settler.claim.held_until
        return attempt.firing(action, now=now, not_after=not_after)

    # -- checks ----------------------------------------------------------------------------------

    async def _check(self, settler: Settler, attempt: Attempt) -> Settlement:
        """Check the objects that the definition refers to, and report; fire nothing."""
        action = await self._actions.of(settler.claim.shard, attempt)
        found, message = None, ""
        if isinstance(action, ActionUnreadable):
            message = action.message
        elif action.target.needs_secrets:
            firing = self._firing(settler, attempt, action)
            try:
                async with asyncio.timeout(_CHECK_SECONDS):
                    found = await self._targets[action.target.kind].check(firing)
            except TimeoutError:
                message = f"not read within {_CHECK_SECONDS:g} s"
            except Exception as bug:  # noqa: BLE001 - one schedule's trouble is not its neighbours'
                telemetry.logger.exception(
                    "check failed", namespace=firing.namespace, schedule=firing.name
                )
                message = f"{type(bug).__name__} in the worker"
        if message:  # it did not complete, and is repeated
            found = targets.Trouble(reason=Reason.INTERNAL_ERROR, message=message)
        return endings.checked(attempt, found, settler.now_us())


def _unreadable(trouble: ActionUnreadable, attempt: Attempt, now_us: int) -> outcomes.Retry:
    """Return a retry that counts as no attempt: soon at first, later less and less often."""
    least_us, most_us = _UNREADABLE_WAIT_US
    return outcomes.Retry(
        reason=Reason.INTERNAL_ERROR,
        message=trouble.message,
        after_us=min(max((now_us - attempt.due_us) // 2, least_us), most_us),
        started=False,
        counted=False,
    )


def _too_late(attempt: Attempt) -> outcomes.Rejected:
    """Reject a retry that no worker claimed before its time was over.

    First tries are judged once, when their chain is claimed.
    """
    message = "no worker retried it before its time was over"
    if cause := attempt.record.last_cause or attempt.record.last_error:
        message += f"; the last try: {cause}"
    return outcomes.Rejected(reason=Reason.DEADLINE_EXCEEDED, message=message, started=False)
