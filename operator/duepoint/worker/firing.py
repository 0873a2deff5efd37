"""Carries out claims, each from its first point to its last settlement: plan, fire, settle.

``claimer`` hands over a claim, ``planner`` decides what to do with its points, and ``settler``
writes the outcomes. Ordinary points whose entries go into our own Redis are appended together
(``handover``); every other point is a request of its own, made once its namespace has a place for
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
import functools
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from duepoint import errors, faults, telemetry
from duepoint.clock import Clock
from duepoint.delayqueue import messages
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.delayqueue.messages import Settlement
from duepoint.faults import FaultPoint
from duepoint.runs import outcome as outcomes
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason
from duepoint.targets import jobtarget
from duepoint.targets import target as targets
from duepoint.worker import (
    actioncache,
    concurrency,
    endings,
    handover,
    planner,
    results,
    room,
)
from duepoint.worker.actioncache import ActionCache
from duepoint.worker.plan import ActionUnreadable, Attempt, Batch, Plan
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
        """Mark these as begun and return True, unless the work is over; all but the first wait."""
        if not self.is_over:
            self.begun.update([attempt.point.member for attempt in attempts])
        return not self.is_over


class Firer:
    """Carries out claims, side by side.

    Args:
        places: most attempts at receivers at a time.
        lease_seconds: length of a lease, also when it is extended.
        traces: None if traces are off.
    """

    def __init__(
        self,
        *,
        queue: DelayQueue,
        target: targets.WorkerTarget,
        clock: Clock,
        places: int,
        lease_seconds: float,
        dice: Callable[[], float] = random.random,
        jobs: jobtarget.ActiveJobs,
        traces: results.AttemptTraces | None = None,
    ) -> None:
        self._queue = queue
        self._target = target
        self._clock = clock
        self._traces = traces
        self.jobs = room.JobPlaces(clock)
        self.leases = Leases(queue, clock, lease_seconds=lease_seconds)
        self._actions = ActionCache(queue)
        self._planner = planner.Planner(queue=queue, target=target, actions=self._actions)
        self._places = room.AttemptPlaces(clock, places, self.jobs)
        self._active_jobs = jobs
        self._results = results.Results(clock=clock, dice=dice, traces=traces)
        self._handover = handover.Handover(
            queue=queue, target=target, clock=clock, results=self._results
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
            holding: told about each point that ends: one slow delivery may outlast the rest of its
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
            await faults.reach(FaultPoint.AFTER_PLAN)
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
                if plan.batches:
                    await self._append_batches(work)
                tries: list[asyncio.Task[None]] = []
                lost: set[bytes] = set()
                if plan.splits:
                    first = [one for one in plan.attempts if one[0].begins_first]
                    tries = await self._begin(group, work, first)
                    # The attempts go first, because they are due and the split is not. In one turn
                    # of the loop each attempt makes one step.
                    for _ in range(_TURNS_TO_REQUEST):
                        await asyncio.sleep(0)
                    lost = await self._split(work)
                work.split.set()
                others = [
                    one
                    for one in plan.attempts
                    if not (plan.splits and one[0].begins_first)
                    and not (lost and one[0].point.member in lost)
                ]
                count = len(others) + len(plan.checks)
                if (settled := holding.left - len(tries) - count) > 0:
                    holding.ended(settled)
                if not plan.settlement.is_empty:
                    settler.add(plan.settlement)
                loop = asyncio.get_running_loop()
                if count == 1 and not plan.entries:  # a lone point needs no task of its own
                    loop.call_soon(holding.kinds_known)
                    for one in others:
                        await self._fire_in_turn(work, one)
                    for check in plan.checks:
                        await self._check(work, check)
                else:
                    if plan.entries:
                        group.create_task(self._append_entries(work, lost))
                    await self._begin(group, work, others, plan.checks)
                    loop.call_soon(holding.kinds_known)  # each has begun by then
        finally:
            self._works.discard(work)
            work.split.set()
            await asyncio.gather(*work.giving_back)

    async def _begin(
        self,
        group: asyncio.TaskGroup,
        work: _Work,
        sequences: list[tuple[Attempt, ...]],
        checks: Sequence[Attempt] = (),
    ) -> list[asyncio.Task[None]]:
        """Begin these attempts and checks, one in each turn of the event loop.

        Between two turns the loop reads answers and claims due points, so that other claims need
        not wait until a large one has begun. Namespaces with few attempts go first.
        """
        count = collections.Counter(one[0].definition.namespace for one in sequences)
        sequences = sorted(sequences, key=lambda one: count[one[0].definition.namespace])
        turns = [functools.partial(self._fire_in_turn, work, one) for one in sequences]
        turns += [functools.partial(self._check, work, one) for one in checks]
        tries: list[asyncio.Task[None]] = []
        for begin in turns:
            tries.append(group.create_task(begin()))
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
            await faults.reach(FaultPoint.BEFORE_RELEASE)
            await self._queue.claims.release(settler.claim)
        except (errors.TryLater, errors.WorldChanged) as trouble:
            telemetry.logger.warning("points not given back", error=str(trouble))

    # -- entries of streams ----------------------------------------------------------------------

    async def _append_batches(self, work: _Work) -> None:
        """Append the entries of ordinary points; these points have ended afterwards."""
        batches = [] if work.is_over else work.plan.batches
        for batch in batches:
            work.begun.update(batch.members)
        await self._handover.append(work.settler, batches)
        work.holding.ended(sum(len(batch.members) for batch in work.plan.batches))

    async def _append_entries(self, work: _Work, lost: set[bytes]) -> None:
        """Append the entries of single attempts, in their order."""
        batches: list[Batch] = []
        for attempt in work.plan.entries:
            if attempt.point.member not in lost and work.begins([attempt]):
                prepared = await self._prepared(work.settler, attempt)
                if isinstance(prepared, Settlement):
                    work.settler.add(prepared)
                else:
                    batches.append(Batch.alone(attempt, prepared.action))
        await self._handover.append(work.settler, batches)

    # -- chains that move on first ---------------------------------------------------------------

    async def _split(self, work: _Work) -> set[bytes]:
        """Move the split chains on; return the points that this claim no longer holds."""
        lost: set[bytes] = set()
        settler = work.settler
        for splits in work.plan.split_parts():
            # Repeating the call is safe: the answer is the same. Without an answer the claim is
            # lost. A chain may have moved on: firing its slots here could double the next owner's.
            await faults.reach(FaultPoint.BEFORE_SPLIT)
            held = await settler.while_held(
                functools.partial(self._queue.settlements.split, settler.claim, splits),
                "chains not split yet",
            )
            await faults.reach(FaultPoint.AFTER_SPLIT)
            for planning, is_held in zip(splits, held or [False] * len(splits), strict=True):
                if not is_held:
                    lost.update(slot.point.member for slot in planning.slots)
        return lost

    # -- requests --------------------------------------------------------------------------------

    async def _fire_in_turn(self, work: _Work, attempts: tuple[Attempt, ...]) -> None:
        """Make the attempts of a sequence; settle each one only after the split.

        Until the chain has moved on, the claim holds the chain and not yet its planned slot.
        """
        settler = work.settler
        known = attempts[0].definition
        outline = work.plan.outlines[known.namespace, known.target]
        for number, attempt in enumerate(attempts):
            async with self._places.of(known.namespace, outline) as wait_seconds:
                if not work.begins(attempts[number:]):
                    break
                if wait_seconds and not isinstance(outline, ActionUnreadable):
                    ending = self._put_off(settler, attempt, outline, wait_seconds)
                else:
                    ending = await self._fire_one(settler, attempt)
            await work.split.wait()
            settler.add(ending)
            if later := attempts[number + 1 :]:  # each now waits for a place of its own
                work.begun.difference_update([one.point.member for one in later])
                if work.is_over:
                    self._end(work)
        work.holding.ended(1)

    async def _fire_one(self, settler: Settler, attempt: Attempt) -> Settlement:
        """Make an attempt and return how it ends; a slow delivery is reported meanwhile."""
        firing = await self._prepared(settler, attempt)
        if isinstance(firing, Settlement):
            return firing
        is_stream = isinstance(firing.action.target, actions.StreamAction)
        if is_stream and self._target.appends(firing.action):  # unreadable when planned
            trouble, now_us = ActionUnreadable("the target was read too late"), settler.now_us()
            late = _unreadable(trouble, attempt, now_us)
            return self._results.record(settler, attempt, firing, late, now_us)
        question = verdict = None
        if attempt.is_judged and isinstance(firing.action.target, concurrency.LASTING):
            question = concurrency.Question(
                self._queue, self._active_jobs, settler, attempt, firing
            )
            verdict = await question.ask()
        answer: outcomes.Outcome
        match verdict:
            case outcomes.Retry():
                answer, started_us = verdict, settler.now_us()
            case concurrency.End() | concurrency.Waits():
                ending = concurrency.closing(attempt, verdict, now_us=settler.now_us())
                results.count_ended(ending.events)
                concurrency.leave(ending, attempt, firing, verdict)
                return ending
            case concurrency.Start(exists=True):
                started_us = settler.now_us()
                answer = concurrency.made_before(firing, started_us)
            case _:
                started_us = settler.begin(attempt, firing.action)
                if self._traces is not None:
                    firing = self._traces.begin(firing)
                try:
                    await faults.reach(FaultPoint.BEFORE_ATTEMPT)
                    answer = await self._target.fire(firing)
                    await faults.reach(FaultPoint.AFTER_ATTEMPT)
                except Exception as bug:  # noqa: BLE001 - one schedule's trouble is not its neighbours'
                    self._results.report_bug(firing, bug)
                    answer = outcomes.Retry(
                        reason=Reason.INTERNAL_ERROR, message=f"{type(bug).__name__} in the worker"
                    )
                finally:
                    settler.end(attempt)
        if question is not None and isinstance(verdict, concurrency.Start):
            await question.report_start(verdict, answer)
        ending = self._results.record(settler, attempt, firing, answer, started_us)
        if verdict is not None:
            concurrency.leave(ending, attempt, firing, verdict)
        return ending

    async def _prepared(self, settler: Settler, attempt: Attempt) -> targets.Firing | Settlement:
        """Return what to fire, or how the attempt ends without a request."""
        action = await self._action(settler.claim.shard, attempt)
        if isinstance(action, ActionUnreadable):
            firing, now_us = self._firing(settler, attempt, _STAND_IN), settler.now_us()
            answer = _unreadable(action, attempt, now_us)
            return self._results.record(settler, attempt, firing, answer, now_us)
        firing = self._firing(settler, attempt, action)
        if attempt.is_retry:
            now_us = settler.now_us()
            if (late := _too_late(attempt, firing, now_us)) is not None:
                return self._results.record(settler, attempt, firing, late, now_us)
        return firing

    async def _action(
        self, shard: messages.ShardId, attempt: Attempt
    ) -> actions.Action | ActionUnreadable:
        """Return the definition's action, with a payload of the ScheduleRun or member if any."""
        known = attempt.definition
        action = await self._actions.get(shard, known.namespace, known.target)
        if isinstance(action, ActionUnreadable):
            return action
        if attempt.record.payload:
            return actioncache.with_payload(action, attempt, self._queue.signed_blobs.digest)
        if known.payload:
            return actioncache.with_own_payload(action, known, self._queue.signed_blobs)
        return action

    def _firing(self, settler: Settler, attempt: Attempt, action: actions.Action) -> targets.Firing:
        now = self._clock.monotonic()
        not_after = now if settler.lost else settler.claim.held_until
        return attempt.firing(action, now=now, not_after=not_after)

    def _put_off(
        self, settler: Settler, attempt: Attempt, outline: actions.Action, seconds: float
    ) -> Settlement:
        """Return how an attempt is put off whose namespace has as many in flight as it may."""
        now_us = settler.now_us()
        firing = self._firing(settler, attempt, outline)
        answer: outcomes.Outcome | None = None
        if attempt.is_retry:
            answer = _too_late(attempt, firing, now_us)
        give_up_us = targets.retry_limits(firing, results.deadline_us(attempt)).give_up_us
        waits = room.put_off(
            seconds,
            firing.namespace,
            is_job=isinstance(outline.target, actions.JobAction),
            left_us=give_up_us - now_us,
        )
        ending = self._results.record(settler, attempt, firing, answer or waits, now_us)
        if attempt.is_judged and isinstance(outline.target, concurrency.LASTING):
            concurrency.leave(ending, attempt, firing, waits)
        return ending

    # -- checks ----------------------------------------------------------------------------------

    async def _check(self, work: _Work, attempt: Attempt) -> None:
        """Check the objects that the definition refers to, and report; fire nothing."""
        settler = work.settler
        async with self._places.of_check(attempt.definition.namespace):
            action = await self._action(settler.claim.shard, attempt)
            found = (
                _unchecked(action.message)
                if isinstance(action, ActionUnreadable)
                else await self._checked(self._firing(settler, attempt, action))
            )
        settler.add(endings.checked(attempt, found, settler.now_us()))
        work.holding.ended(1)

    async def _checked(self, firing: targets.Firing) -> targets.Trouble | None:
        try:
            async with asyncio.timeout(_CHECK_SECONDS):
                return await self._target.check(firing)
        except TimeoutError:
            return _unchecked(f"not read within {_CHECK_SECONDS:g} s")
        except Exception as bug:  # noqa: BLE001 - one schedule's trouble is not its neighbours'
            telemetry.logger.exception(
                "check failed", namespace=firing.namespace, schedule=firing.name
            )
            return _unchecked(f"{type(bug).__name__} in the worker")


def _unchecked(message: str) -> targets.Trouble:
    """Return the finding of a check that did not complete; it is repeated."""
    return targets.Trouble(reason=Reason.INTERNAL_ERROR, message=message)


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


def _too_late(attempt: Attempt, firing: targets.Firing, now_us: int) -> outcomes.Rejected | None:
    """Reject a retry that no worker claimed before its time was over; None = it is in time.

    First tries are judged once, when their chain is claimed.
    """
    limits = targets.retry_limits(firing, results.deadline_us(attempt))
    if now_us < limits.give_up_us:
        return None
    message = "no worker could try again before the time for it was over"
    if cause := attempt.record.last_cause or attempt.record.last_error:
        message += f"; the last try: {cause}"
    return outcomes.Rejected(reason=Reason.DEADLINE_EXCEEDED, message=message, started=False)
