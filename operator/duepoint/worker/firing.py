"""Carries out a plan: attempts at targets, entries of streams, checks.

Ordinary points whose entries go into our own Redis are appended together (``handover``); all else
is a request of its own, made once its namespace has a slot for it (``slots``). Chains that must not
wait for their attempts move on before (``split``). Whatever goes wrong with one point, a bug of
ours included, is an outcome of that point; its neighbours go on. All closings are with the settler
when ``fire`` returns, unless the claim is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import itertools
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from duepoint import telemetry
from duepoint.clock import Clock
from duepoint.delayqueue import messages
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.runs import outcome as outcomes
from duepoint.runs import run
from duepoint.runs.run import RunEvent
from duepoint.schedules import actions, points
from duepoint.schedules.conditions import Reason
from duepoint.targets import target as targets
from duepoint.worker import actioncache, concurrency, handover, results, slots
from duepoint.worker import closing as closings
from duepoint.worker.actioncache import ActionCache, ActionUnreadable
from duepoint.worker.claim_budget import Holding
from duepoint.worker.pending_attempts import PendingAttempts
from duepoint.worker.plan import Attempt, Group, Plan
from duepoint.worker.settler import Settler

#: Planned slots in one script; a chain with more goes alone.
_MOST_PLANNED = 500
#: Bounds of the wait for an action that cannot be read; between them, half of the slot's age.
_UNREADABLE_WAIT_US = (500_000, 60_000_000)
#: Turns of the loop after which an attempt with an open connection has sent its request.
_TURNS_TO_REQUEST = 4
#: How long a check may take: several objects, each with a limit of its own.
_CHECK_SECONDS = 30.0

#: Stands in for an action that cannot be read: its retries are those of a Job.
_STAND_IN = actions.Action(target=actions.JobAction(template={}))

#: Attempts that are made one after the other.
InTurn = tuple[Attempt, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """One claim while it is fired.

    Attributes:
        is_crowded: more Jobs wait than are made soon, before any of this claim.
    """

    settler: Settler
    holding: Holding
    pending: PendingAttempts
    is_crowded: bool


class Firer:
    """Fires plans, one for each claim, side by side."""

    def __init__(
        self,
        *,
        queue: DelayQueue,
        target: targets.WorkerTarget,
        clock: Clock,
        actions: ActionCache,
        slots: slots.AttemptSlots,
        gate: concurrency.Gate,
        results: results.Results,
    ) -> None:
        self._queue = queue
        self._target = target
        self._clock = clock
        self._actions = actions
        self._slots = slots
        self._gate = gate
        self._results = results
        self._handover = handover.Handover(queue=queue, target=target, clock=clock)
        self._is_draining = False
        self._pending: set[PendingAttempts] = set()

    def drain(self) -> None:
        """No attempt begins from now on; those that have not are due for other workers at once."""
        self._is_draining = True
        for pending in list(self._pending):
            pending.end()

    async def fire(self, plan: Plan, settler: Settler, holding: Holding) -> None:
        """Carry out a plan."""
        async with self._pending_of(settler) as pending, asyncio.TaskGroup() as group:
            work = _Work(
                settler=settler,
                holding=holding,
                pending=pending,
                is_crowded=self._slots.jobs.is_crowded(),
            )
            if plan.groups:
                await self._append_groups(work, plan.groups)
            pending.add(_members(plan.attempts))
            requests, entries = self._partition(plan.attempts)
            tries: list[asyncio.Task[None]] = []
            if plan.splits:
                tries = [
                    group.create_task(self._fire_in_turn(work, one))
                    for one in requests
                    if one[0].begins_first
                ]
                requests = [one for one in requests if not one[0].begins_first]
                await _step_aside()  # the attempts first: they are due, the split is not
                is_kept = await self._split(settler, plan)
                requests, entries = list(filter(is_kept, requests)), list(filter(is_kept, entries))
            pending.split.set()
            tries += [group.create_task(self._fire_in_turn(work, one)) for one in requests]
            tries += [group.create_task(self._check(work, one)) for one in plan.checks]
            asyncio.get_running_loop().call_soon(holding.kinds_known)  # each has begun by then
            holding.ended_up_to(len(tries))
            settling = group.create_task(settler.run())
            if plan.closes_points:
                settler.add(_closing_of(plan))
            if entries:
                await self._append_attempts(work, entries)
            await asyncio.gather(*tries)
            settler.finish()
            await settling

    @contextlib.asynccontextmanager
    async def _pending_of(self, settler: Settler) -> AsyncIterator[PendingAttempts]:
        pending = PendingAttempts(queue=self._queue, settler=settler)
        self._pending.add(pending)
        if self._is_draining:
            pending.end()
        try:
            yield pending
        finally:
            self._pending.discard(pending)
            await pending.close()

    def _partition(self, attempts: Sequence[InTurn]) -> tuple[list[InTurn], list[InTurn]]:
        """Requests, and what is an entry in a stream of our own."""
        requests: list[InTurn] = []
        entries: list[InTurn] = []
        for one in attempts:
            outline = self._outline(one[0])
            is_entry = isinstance(outline, actions.Action) and self._target.appends(outline)
            (entries if is_entry else requests).append(one)
        return requests, entries

    # -- entries of streams ----------------------------------------------------------------------

    async def _append_groups(self, work: _Work, groups: Iterable[Group]) -> None:
        """Entries of ordinary points; the claim has nothing else of them afterwards."""
        items: list[handover.HandoverItem] = []
        for group in groups:
            action = self._actions.known(group.namespace, group.target)
            assert isinstance(action, actions.Action)  # noqa: S101 - as it was when it was planned
            work.pending.add(group.members)
            if work.pending.begins(group.members):
                items.append(
                    handover.GroupItem(
                        group=group, action=action, settler=work.settler, results=self._results
                    )
                )
        await self._handover.append(work.settler, items)
        work.holding.ended_together(sum(len(one.members) for one in groups))

    async def _append_attempts(self, work: _Work, attempts: Sequence[InTurn]) -> None:
        """Entries of single attempts, in their order."""
        items: list[handover.HandoverItem] = []
        for attempt in itertools.chain.from_iterable(attempts):
            if work.pending.begins([attempt.point.member]):
                prepared = await self._prepared(work.settler, attempt)
                if isinstance(prepared, closings.Closing):
                    work.settler.add(prepared)
                else:
                    items.append(
                        handover.AttemptItem(
                            attempt=attempt,
                            firing=prepared,
                            started_us=work.settler.now_us(),
                            settler=work.settler,
                            results=self._results,
                        )
                    )
        await self._handover.append(work.settler, items)

    # -- chains that move on first ---------------------------------------------------------------

    async def _split(self, settler: Settler, plan: Plan) -> Callable[[InTurn], bool]:
        """Whether the attempts of a sequence are still ours once the split chains have moved on."""
        lost: set[points.ScheduleId] = set()
        for splits in _in_parts(plan):
            # A repeated call has the same answer. Without one the claim is lost: nothing of a chain
            # may be fired that may have moved on, and the next owner finds what there is.
            held = await settler.while_held(
                functools.partial(self._queue.settlements.split, settler.claim, splits),
                "chains not split yet",
            )
            lost.update(
                planning.chain.schedule_id
                for planning, is_held in zip(splits, held or (False,) * len(splits), strict=True)
                if not is_held
            )
        planned = {one.point.member for split in plan.splits for one in split.slots}
        return lambda attempts: (
            attempts[0].point.schedule_id not in lost or attempts[0].point.member not in planned
        )

    # -- requests --------------------------------------------------------------------------------

    async def _fire_in_turn(self, work: _Work, attempts: InTurn) -> None:
        """Make the attempts of a sequence; each is with the settler once its point exists.

        Until the chain has moved on, the claim holds the chain and not yet its planned slot.
        """
        settler, pending = work.settler, work.pending
        for number, attempt in enumerate(attempts):
            is_crowded = None if number else work.is_crowded
            outline = self._outline(attempt)
            place = self._slots.of(attempt.definition.namespace, outline, is_crowded=is_crowded)
            async with place as wait_seconds:
                if not pending.begins(_members([attempts[number:]])):
                    break
                closed = (
                    self._put_off(settler, attempt, wait_seconds)
                    if wait_seconds
                    else await self._fire_one(settler, attempt)
                )
            await pending.split.wait()
            settler.add(closed)
            pending.add(_members([attempts[number + 1 :]]))
        work.holding.ended(1)

    async def _fire_one(self, settler: Settler, attempt: Attempt) -> closings.Closing:
        """How one attempt ends."""
        firing = await self._prepared(settler, attempt)
        if isinstance(firing, closings.Closing):
            return firing
        if concurrency.judges(attempt, firing.action):
            return await self._fire_judged(settler, attempt, firing)
        started_us = settler.now_us()
        answer = await self._request(settler, attempt, firing)
        return self._results.record(settler, attempt, firing, answer, started_us)

    async def _prepared(
        self, settler: Settler, attempt: Attempt
    ) -> targets.Firing | closings.Closing:
        """What to fire; or how the attempt ends without a request."""
        action = await self._action(settler.claim.shard, attempt)
        now_us = settler.now_us()
        answer: outcomes.Outcome | None
        if isinstance(action, ActionUnreadable):
            firing, answer = (
                self._firing(settler, attempt, _STAND_IN),
                _unreadable(action, attempt, now_us),
            )
        else:
            firing = self._firing(settler, attempt, action)
            answer = _too_late(attempt, firing, now_us) if attempt.is_retry else None
        if answer is None:
            return firing
        return self._results.record(settler, attempt, firing, answer, now_us)

    def _outline(self, attempt: Attempt) -> actions.Action | ActionUnreadable:
        known = attempt.definition
        return self._actions.outline(known.namespace, known.target)

    async def _action(
        self, shard: messages.ShardId, attempt: Attempt
    ) -> actions.Action | ActionUnreadable:
        """What the definition points to, with what a ScheduleRun wants otherwise."""
        known = attempt.definition
        action = await self._actions.get(shard, known.namespace, known.target)
        if not attempt.record.payload or isinstance(action, ActionUnreadable):
            return action
        return actioncache.with_payload(action, attempt, self._queue.signed_blobs.digest)

    def _firing(self, settler: Settler, attempt: Attempt, action: actions.Action) -> targets.Firing:
        now = self._clock.monotonic()
        return attempt.firing(
            action, now=now, not_after=now if settler.lost else settler.claim.held_until
        )

    async def _request(
        self, settler: Settler, attempt: Attempt, firing: targets.Firing
    ) -> outcomes.Outcome:
        """The target's answer; a delivery that takes long is reported meanwhile."""
        settler.begin(attempt, firing.action)
        try:
            return await self._target.fire(firing)
        except Exception as bug:  # noqa: BLE001 - one schedule's trouble is not its neighbours'
            self._results.report_bug(firing, bug)
            return outcomes.Retry(
                reason=Reason.INTERNAL_ERROR, message=f"{type(bug).__name__} in the worker"
            )
        finally:
            settler.end(attempt)

    async def _fire_judged(
        self, settler: Settler, attempt: Attempt, firing: targets.Firing
    ) -> closings.Closing:
        """Of a schedule whose policy says whether it may start now."""
        verdict = await self._gate.ask(settler, attempt, firing)
        started_us = settler.now_us()
        match verdict:
            case concurrency.Start():
                answer = await self._request(settler, attempt, firing)
                await self._gate.started(settler, attempt, verdict, answer)
                closed = self._results.record(settler, attempt, firing, answer, started_us)
            case outcomes.Retry():
                closed = self._results.record(settler, attempt, firing, verdict, started_us)
            case concurrency.End() | concurrency.Waits():
                closed = concurrency.closing(attempt, verdict, now_us=started_us)
                results.count_ended(closed.events)
        return concurrency.leaving(closed, attempt, firing, verdict)

    def _put_off(self, settler: Settler, attempt: Attempt, seconds: float) -> closings.Closing:
        """No attempt: the namespace has as many under way as it may have."""
        outline, now_us = self._outline(attempt), settler.now_us()
        action = _STAND_IN if isinstance(outline, ActionUnreadable) else outline
        firing = self._firing(settler, attempt, action)
        give_up_us = targets.retry_limits(action, firing, results.deadline_us(attempt)).give_up_us
        waits = slots.put_off(
            seconds,
            firing.namespace,
            is_job=isinstance(action.target, actions.JobAction),
            left_us=give_up_us - now_us,
        )
        answer = (_too_late(attempt, firing, now_us) if attempt.is_retry else None) or waits
        closed = self._results.record(settler, attempt, firing, answer, now_us)
        if concurrency.judges(attempt, action):
            return concurrency.leaving(closed, attempt, firing, waits)
        return closed

    # -- checks ----------------------------------------------------------------------------------

    async def _check(self, work: _Work, attempt: Attempt) -> None:
        """Check what the definition refers to, and report it; nothing is fired."""
        settler = work.settler
        async with self._slots.of_check(attempt.definition.namespace):
            action = await self._action(settler.claim.shard, attempt)
            found = (
                _unchecked(action.message)
                if isinstance(action, ActionUnreadable)
                else await self._checked(self._firing(settler, attempt, action))
            )
        settler.add(closings.checked(attempt, found, settler.now_us()))
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
    """A check that came to no end; it is made again."""
    return targets.Trouble(reason=Reason.INTERNAL_ERROR, message=message)


async def _step_aside() -> None:
    """Let every attempt get as far as its request; a turn of the loop is one step of each."""
    for _ in range(_TURNS_TO_REQUEST):
        await asyncio.sleep(0)


def _members(attempts: Iterable[InTurn]) -> list[bytes]:
    return [one.point.member for one in itertools.chain.from_iterable(attempts)]


def _in_parts(plan: Plan) -> Iterator[list[messages.Planning]]:
    """The splits, few enough for one script each, and with each part the news of its slots.

    In the same script, because later news of these slots is to be read after it.
    """
    part: list[messages.Planning] = []
    news: list[RunEvent] = []
    planned = 0
    for planning, opened in zip(plan.splits, plan.opened, strict=True):
        if part and planned + len(planning.slots) > _MOST_PLANNED:
            yield _with_news(part, news)
            part, news, planned = [], [], 0
        part.append(planning)
        news.append(opened)
        planned += len(planning.slots)
    if part:
        yield _with_news(part, news)


def _with_news(part: list[messages.Planning], news: list[RunEvent]) -> list[messages.Planning]:
    first, *others = part
    return [dataclasses.replace(first, outcomes=run.pack(news)), *others]


def _unreadable(trouble: ActionUnreadable, attempt: Attempt, now_us: int) -> outcomes.Retry:
    """No attempt at all; asked for again soon, and ever less often while it goes on."""
    least_us, most_us = _UNREADABLE_WAIT_US
    return outcomes.Retry(
        reason=Reason.INTERNAL_ERROR,
        message=trouble.message,
        after_us=min(max((now_us - attempt.due_us) // 2, least_us), most_us),
        started=False,
        counted=False,
    )


def _too_late(attempt: Attempt, firing: targets.Firing, now_us: int) -> outcomes.Rejected | None:
    """A retry that no worker claimed in time: it was put off to before its end, and comes after.

    First tries are judged when their chain is claimed, and never again.
    """
    limits = targets.retry_limits(firing.action, firing, results.deadline_us(attempt))
    if now_us < limits.give_up_us:
        return None
    message = "no worker could try again before the time for it was over"
    if cause := attempt.record.last_cause or attempt.record.last_error:
        message += f"; the last try: {cause}"
    return outcomes.Rejected(reason=Reason.DEADLINE_EXCEEDED, message=message, started=False)


def _closing_of(plan: Plan) -> closings.Closing:
    return closings.Closing(
        finished=tuple(plan.finished),
        chains=tuple(plan.chains),
        ended=tuple(plan.ended),
        dead=tuple(plan.dead),
        events=tuple(plan.events),
        occurrences=tuple(plan.held),
    )
