"""A claimed batch -> inputs -> decisions -> targets, under bounds.

The steps of one batch: read the definitions, assign, move on the chains that must not wait
(``split``), read the actions, make the attempts, tell the settler. Attempts wait for a place of
their own kind (``places``), and none behind another namespace's. Whatever goes wrong with one
point, a bug of ours included, is an outcome of that point; the batch and its neighbours go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass

from duepoint import errors, services, telemetry
from duepoint.clock import Clock
from duepoint.delayqueue import messages
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.runs import outcome as outcomes
from duepoint.runs import run
from duepoint.runs.run import RunEvent, RunState
from duepoint.schedules import actions, points
from duepoint.schedules import definition as definitions
from duepoint.schedules.conditions import Reason
from duepoint.targets import activejobs, batches
from duepoint.targets import target as targets
from duepoint.worker import assignment as assignments
from duepoint.worker import concurrency, jobline, overrides, places, runlimits
from duepoint.worker import settler as settlers
from duepoint.worker.actioncache import ActionCache, ActionUnreadable, Sketch
from duepoint.worker.assignment import Assignment, Attempt
from duepoint.worker.batchroad import BatchRoad, Told
from duepoint.worker.failurelog import FailureLog
from duepoint.worker.handover import Handover, NotHeld
from duepoint.worker.leasekeeper import LeaseKeeper
from duepoint.worker.unbegun import Unbegun

#: Planned slots in one script; a chain with more goes alone.
_MOST_PLANNED = 500
#: Bounds of the wait for an action that cannot be read; between them, half of the slot's age.
_UNREADABLE_WAIT_US = (500_000, 60_000_000)

#: An outage of more than this is known to everybody.
_COME_BACK_SECONDS = 600.0

#: Turns of the loop after which an attempt with an open connection has sent its request.
_TURNS_TO_REQUEST = 4

#: How long a check may take: several objects, each with a limit of its own.
_CHECK_SECONDS = 30.0

#: Told how many points of a claim have just ended.
Ended = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much this worker does at a time, and for how long it may hold a claim."""

    concurrency: int
    lease_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unchecked:
    """A check that came to no end; it is made again."""

    message: str
    reason: Reason = Reason.INTERNAL_ERROR
    final: bool = False


class Dispatcher:
    """Carries out claims."""

    def __init__(
        self,
        queue: DelayQueue,
        target: targets.CheckedTarget,
        clock: Clock,
        bounds: Bounds,
        *,
        dice: Callable[[], float] = random.random,
        jobs: activejobs.Jobs = activejobs.NO_JOBS,
    ) -> None:
        self._queue = queue
        self._gate = concurrency.Gate(queue, jobs)
        self._target = target
        self._clock = clock
        self._actions = ActionCache(queue)
        self.jobs = jobline.JobLine(clock)
        self._places = places.Places(clock, bounds.concurrency, self.jobs)
        self._dice = dice
        self._failures = FailureLog()
        self._settled_target = target if isinstance(target, batches.SettledTarget) else None
        self._batches = BatchRoad(queue, target, clock, self._actions, self._places)
        self.ended_together: Ended = lambda _: None
        self._is_ending = False
        self._unbegun: set[Unbegun] = set()
        self.keeper = LeaseKeeper(queue, clock, lease_seconds=bounds.lease_seconds)

    async def dispatch(
        self,
        claim: messages.Claim,
        ended: Ended = lambda _: None,
        found_out: Callable[[], None] = lambda: None,
        wait_to_begin: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Carry out one claim; returns when all of it is settled or lost.

        Cancelled, it gives back the points that have not ended. ``ended`` is told of points as
        they end, because one slow delivery may outlast the rest of its batch by minutes.
        ``found_out`` is called when the first Jobs of the claim stand in ``jobs``. The claim is
        kept while ``wait_to_begin`` lasts, and nothing of it is tried.
        """
        settler = settlers.Settler(self._queue, self._clock, claim)
        self.keeper.keep(settler)
        telemetry.inflight.inc(len(claim.points))
        try:
            if wait_to_begin is not None:
                await wait_to_begin()
                # What was read with the claim, and the time, may be old by now.
                now_us = settler.now_us()
                claim = dataclasses.replace(settler.claim, definitions={}, now_us=now_us)
            await self._carry_out(claim, settler, ended, found_out)
            if settler.lost and settler.cut_off:
                await self._come_back(settler)
        except asyncio.CancelledError:
            await asyncio.shield(self._give_back(settler))
            raise
        finally:
            telemetry.inflight.dec(len(claim.points))
            self.keeper.let_go(settler)

    def drain(self) -> None:
        """No attempt begins from now on; those that have not are due for other workers at once."""
        self._is_ending = True
        for unbegun in list(self._unbegun):
            unbegun.end()

    async def _carry_out(
        self,
        claim: messages.Claim,
        settler: settlers.Settler,
        ended: Ended,
        found_out: Callable[[], None],
    ) -> None:
        told = 0

        def note_ended(points: int) -> None:
            nonlocal told
            told += points
            ended(points)

        informed = Told(ended=note_ended, found_out=found_out)
        rest = claim
        if not self._is_ending:
            rest = await self._batches.fire(settler, informed)
        if together := len(claim.points) - len(rest.points) - told:
            self.ended_together(together)
            ended(together)
        if rest.points or rest.strangers:
            await self._fire_each(rest, settler, ended, found_out)
        await settler.flush()

    async def _fire_each(
        self,
        claim: messages.Claim,
        settler: settlers.Settler,
        ended: Ended,
        found_out: Callable[[], None],
    ) -> None:
        """The usual road: an attempt of its own for each slot."""
        found = await self._definitions(claim, settler)
        if found is None:
            settler.lost = True
            return
        runs_left = await self._runs_left(claim, found, settler)
        if runs_left is None:
            settler.lost = True
            return
        await self._load_actions(claim.shard, found.values())
        self._batches.note_targets(claim, found.values())
        work = assignments.assign(
            claim,
            found,
            attempt_limit_us=self._attempt_limit_us,
            unreadable=found.unreadable,
            runs_left=runs_left,
        )
        _count_ended(work.events)
        for point, trouble in work.unjudged:
            telemetry.logger.error(
                "point not judged", point=point.member.hex(), error=repr(trouble)
            )
        eager = [one for one in work.attempts if one[0].eager]
        async with self._unbegun_of(settler) as unbegun, asyncio.TaskGroup() as group:
            handover = Handover(settler)
            unbegun.add(itertools.chain.from_iterable(eager))
            tries = [
                group.create_task(self._try_each(handover, one, ended, unbegun)) for one in eager
            ]
            await _step_aside()  # the attempts first: they are due, the split is not
            attempts = await self._split(settler, work)
            unbegun.add(itertools.chain.from_iterable(attempts))
            unbegun.split.set()
            under_way = len(attempts) + len(eager) + len(work.checks)
            ended(len(claim.points) + len(claim.strangers) - under_way)
            settling = group.create_task(settler.run())
            if work.closes_points:
                settler.add(_closing_of(work))
            tries += [
                group.create_task(self._try_each(handover, one, ended, unbegun)) for one in attempts
            ]
            tries += [group.create_task(self._check(settler, one, ended)) for one in work.checks]
            asyncio.get_running_loop().call_soon(found_out)  # each has begun by then
            await asyncio.gather(*tries)
            settler.finish()
            await settling

    @contextlib.asynccontextmanager
    async def _unbegun_of(self, settler: settlers.Settler) -> AsyncIterator[Unbegun]:
        unbegun = Unbegun(self._queue, settler)
        self._unbegun.add(unbegun)
        if self._is_ending:
            unbegun.end()
        try:
            yield unbegun
        finally:
            self._unbegun.discard(unbegun)
            await unbegun.close()

    async def _definitions(
        self, claim: messages.Claim, settler: settlers.Settler
    ) -> messages.Found | None:
        """None where the claim ran out before Redis answered; then others take it over."""
        ids = {point.schedule_id for point in claim.points}
        found = messages.Found(
            {key: known for key, known in claim.definitions.items() if known is not None}
        )
        unread = ids - claim.definitions.keys()
        if not unread:
            return found
        waits = services.backoff(first_seconds=0.05, most_seconds=1.0)
        while self._clock.monotonic() < claim.held_until:
            try:
                read = await self._queue.definitions.read_definitions(claim.shard, unread)
            except errors.TryLater as trouble:
                settler.put_off("definitions not read", trouble)
                await self._clock.sleep(next(waits))
            except errors.WorldChanged:
                return None
            else:
                read.update(found)
                return read
        return None

    async def _runs_left(
        self, claim: messages.Claim, found: messages.Found, settler: settlers.Settler
    ) -> runlimits.RunsLeft | None:
        """None where the claim ran out before Redis answered."""
        waits = services.backoff(first_seconds=0.05, most_seconds=1.0)
        while self._clock.monotonic() < claim.held_until:
            try:
                return await runlimits.left(self._queue, claim, found)
            except errors.TryLater as trouble:
                settler.put_off("open slots not read", trouble)
                await self._clock.sleep(next(waits))
            except errors.WorldChanged:
                return None
        return None

    async def _load_actions(
        self, shard: messages.ShardId, known: Iterable[definitions.Definition]
    ) -> None:
        wanted = {(one.namespace, one.target) for one in known}
        unknown = [key for key in wanted if not self._actions.is_sketched(*key)]
        if unknown:
            await asyncio.gather(*(self._actions.load(shard, *key) for key in unknown))

    def _attempt_limit_us(self, known: definitions.Definition) -> int:
        action = self._outline(known)
        if isinstance(action, ActionUnreadable):
            return 0
        if self._settles(action):  # the chain moves on with the delivery, not after it
            return 0
        return int(targets.attempt_limit_seconds(action) * 1_000_000)

    # -- chains that move on first -------------------------------------------------------------

    async def _split(
        self, settler: settlers.Settler, work: Assignment
    ) -> list[tuple[Attempt, ...]]:
        """The other attempts that are still ours once the split chains have moved on."""
        lost: set[points.ScheduleId] = set()
        for splits in _in_parts(work):
            held = await self._split_part(settler, splits)
            lost.update(
                planning.chain.schedule_id
                for planning, kept in zip(splits, held, strict=True)
                if not kept
            )
        planned = {one.point.member for split in work.splits for one in split.slots}
        return [
            group
            for group in work.attempts
            if not group[0].eager
            and (group[0].point.schedule_id not in lost or group[0].point.member not in planned)
        ]

    async def _split_part(
        self, settler: settlers.Settler, splits: list[messages.Planning]
    ) -> tuple[bool, ...]:
        """Which chains have moved on; asked again after a lost answer, the queue says the same."""
        waits = services.backoff(first_seconds=0.05, most_seconds=1.0)
        while self._clock.monotonic() < settler.claim.held_until:
            try:
                return await self._queue.settlements.split(settler.claim, splits)
            except errors.TryLater as trouble:
                settler.put_off("chains not split yet", trouble)
                await self._clock.sleep(next(waits))
            except errors.WorldChanged as change:
                telemetry.logger.warning("chains not split", error=str(change))
                break
        # Not knowing whether the chains moved, nothing of them may be fired now: the claim runs
        # out and whoever reclaims it finds either the chain or its planned slots.
        settler.lost = True
        return (False,) * len(splits)

    # -- attempts ------------------------------------------------------------------------------

    def _outline(self, known: definitions.Definition) -> actions.Action | ActionUnreadable:
        """What the definition points to, or as much of it as says how an attempt waits."""
        found = self._actions.known(known.namespace, known.target)
        return found.outline if isinstance(found, Sketch) else found

    async def _action(
        self, shard: messages.ShardId, attempt: Attempt
    ) -> actions.Action | ActionUnreadable:
        """What the definition points to, with what a ScheduleRun wants otherwise."""
        known = attempt.definition
        action = self._actions.known(known.namespace, known.target)
        if isinstance(action, Sketch):
            action = await self._actions.load(shard, known.namespace, known.target)
        if not attempt.record.payload or isinstance(action, ActionUnreadable):
            return action
        return overrides.with_payload(action, attempt, self._queue.definitions.digest)

    async def _try_each(
        self,
        handover: Handover,
        group: tuple[Attempt, ...],
        ended: Ended,
        unbegun: Unbegun,
    ) -> None:
        """Make the attempts of a group in turn; tell of each once its point exists.

        Until the chain has moved on, the claim holds the chain and not yet its planned slot.
        """
        for number, attempt in enumerate(group):
            async with self._place_of(attempt) as put_off_seconds:
                if not unbegun.begins(group[number:]):
                    break
                closed: settlers.Closing | None
                if put_off_seconds:
                    closed = self._put_off(handover.settler, attempt, put_off_seconds)
                else:
                    closed = await self._try(handover, attempt, unbegun.split)
            await unbegun.split.wait()
            if closed is not None:
                handover.settler.add(closed)
            unbegun.add(group[number + 1 :])
        ended(1)

    def _place_of(self, attempt: Attempt) -> contextlib.AbstractAsyncContextManager[float]:
        """Where an attempt waits before its time begins."""
        known = attempt.definition
        action = self._outline(known)
        if isinstance(action, ActionUnreadable):
            return places.NOWHERE  # nothing is tried
        if self._settles(action):
            return self._places.in_stream(known.namespace)
        if isinstance(action.target, actions.JobAction):
            template = action.target.template
            size = template.size if isinstance(template, actions.PackedTemplate) else 0
            return self._places.of_job(known.namespace, large_bytes=size)
        return self._places.outside(known.namespace)

    def _put_off(
        self, settler: settlers.Settler, attempt: Attempt, seconds: float
    ) -> settlers.Closing:
        """No attempt: the namespace has as many under way as it may have."""
        found, now_us = self._outline(attempt.definition), settler.now_us()
        action = _STAND_IN if isinstance(found, ActionUnreadable) else found
        firing = self._firing(settler, attempt, action)
        answer = _too_late(attempt, action, firing, now_us)
        give_up_us = targets.retry_limits(firing.action, firing, _deadline_us(attempt)).give_up_us
        waits = places.put_off(
            seconds,
            firing.namespace,
            is_job=isinstance(firing.action.target, actions.JobAction),
            left_us=give_up_us - now_us,
        )
        closed = self._closed(settler, attempt, firing, answer or waits, now_us)
        if concurrency.judges(attempt, firing.action):
            return concurrency.leaving(closed, attempt, firing, waits)
        return closed

    async def _try(
        self, handover: Handover, attempt: Attempt, split: asyncio.Event
    ) -> settlers.Closing | None:
        """How the attempt ends; None where that is settled, or not ours to settle."""
        settler = handover.settler
        action = await self._action(settler.claim.shard, attempt)
        started_us = settler.now_us()
        if isinstance(action, ActionUnreadable):
            firing = self._firing(settler, attempt, _STAND_IN)
            put_off = _unreadable(action, attempt, started_us)
            return self._closed(settler, attempt, firing, put_off, started_us)
        firing = self._firing(settler, attempt, action)
        answer: outcomes.Outcome | None = _too_late(attempt, action, firing, started_us)
        if answer is None and self._settles(action):
            await split.wait()  # what is not in the queue yet cannot be settled
            handed = await self._hand_over(handover, attempt, firing, started_us)
            if isinstance(handed, NotHeld):
                return settlers.withdrawn(attempt, settler.now_us())
            if handed is None or isinstance(handed, outcomes.Delivered):
                return None
            answer = handed
        if answer is None:
            if concurrency.judges(attempt, action):
                return await self._try_judged(settler, attempt, firing)
            answer = await self._fire_told(settler, attempt, firing, started_us)
        return self._closed(settler, attempt, firing, answer, started_us)

    async def _try_judged(
        self, settler: settlers.Settler, attempt: Attempt, firing: targets.Firing
    ) -> settlers.Closing:
        """Of a schedule whose policy says whether it may start now."""
        verdict = await self._gate.ask(settler, attempt, firing)
        started_us = settler.now_us()
        match verdict:
            case concurrency.Start():
                answer = await self._fire_told(settler, attempt, firing, started_us)
                await self._gate.started(settler, attempt, verdict, answer)
                closed = self._closed(settler, attempt, firing, answer, started_us)
            case outcomes.Retry():
                closed = self._closed(settler, attempt, firing, verdict, started_us)
            case concurrency.End() | concurrency.Waits():
                closed = concurrency.closing(attempt, verdict, now_us=started_us)
                _count_ended(closed.events)
        return concurrency.leaving(closed, attempt, firing, verdict)

    def _closed(
        self,
        settler: settlers.Settler,
        attempt: Attempt,
        firing: targets.Firing,
        answer: outcomes.Outcome,
        started_us: int,
    ) -> settlers.Closing:
        self._observe(attempt, answer)
        closed = self._closing(settler, attempt, firing, answer, started_us)
        _count_ended(closed.events)
        return closed

    def _closing(
        self,
        settler: settlers.Settler,
        attempt: Attempt,
        firing: targets.Firing,
        answer: outcomes.Outcome,
        started_us: int,
    ) -> settlers.Closing:
        tried = settlers.Tried(
            attempt=attempt,
            outcome=answer,
            kind=type(firing.action.target),
            limits=targets.retry_limits(firing.action, firing, _deadline_us(attempt)),
            started_us=started_us,
            now_us=settler.now_us(),
            fraction=self._dice(),
            had_owner=_had_owner(settler.claim),
        )
        return settlers.closing(tried)

    # -- deliveries made by the settlement -------------------------------------------------------

    def _settles(self, action: actions.Action) -> bool:
        return self._settled_target is not None and self._settled_target.settles(action)

    async def _hand_over(
        self, handover: Handover, attempt: Attempt, firing: targets.Firing, started_us: int
    ) -> outcomes.Outcome | NotHeld | None:
        """As ``_fire``; delivered, the point is settled. None: the claim is lost."""
        assert self._settled_target is not None  # noqa: S101 - ``_settles`` said so
        if targets.seconds_left(firing, self._clock) <= 0:
            return targets.not_started()
        settler = handover.settler
        entry = self._settled_target.entry_of(firing)
        delivered = outcomes.Delivered(accepted_us=settler.now_us(), message=entry.message)
        closed = self._closing(settler, attempt, firing, delivered, started_us)
        answer = await handover.deliver(attempt.point.member, entry, closed, delivered)
        if answer is None or isinstance(answer, NotHeld):
            return answer
        self._settled_target.count(firing.action, answer)
        if isinstance(answer, outcomes.Delivered):
            answer = dataclasses.replace(answer, accepted_us=settler.now_us())
            self._observe(attempt, answer)
        return answer

    async def _check(self, settler: settlers.Settler, attempt: Attempt, ended: Ended) -> None:
        """Look at what the definition refers to, and tell; nothing is fired."""
        async with self._places.of_check(attempt.definition.namespace):
            action = await self._action(settler.claim.shard, attempt)
            found = (
                _Unchecked(message=action.message)
                if isinstance(action, ActionUnreadable)
                else await self._checked(self._firing(settler, attempt, action))
            )
        settler.add(settlers.checked(attempt, found, settler.now_us()))
        ended(1)

    async def _checked(self, firing: targets.Firing) -> targets.Checked | None:
        try:
            async with asyncio.timeout(_CHECK_SECONDS):
                return await self._target.check(firing)
        except TimeoutError:
            return _Unchecked(message=f"not read within {_CHECK_SECONDS:g} s")
        except Exception as bug:  # noqa: BLE001 - one schedule's trouble is not its neighbours'
            telemetry.logger.exception(
                "check failed", namespace=firing.namespace, schedule=firing.name
            )
            return _Unchecked(message=f"{type(bug).__name__} in the worker")

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

    async def _fire_told(
        self,
        settler: settlers.Settler,
        attempt: Attempt,
        firing: targets.Firing,
        started_us: int,
    ) -> outcomes.Outcome:
        """As ``_fire``; a delivery that takes long is told of meanwhile."""
        if isinstance(firing.action.target, actions.JobAction):
            return await self._fire(firing)
        settler.begin(attempt, started_us)
        try:
            return await self._fire(firing)
        finally:
            settler.end(attempt)

    async def _fire(self, firing: targets.Firing) -> outcomes.Outcome:
        try:
            return await self._target.fire(firing)
        except Exception as bug:  # noqa: BLE001 - one schedule's trouble is not its neighbours'
            if self._failures.note(
                firing.name,
                now=self._clock.monotonic(),
                namespace=firing.namespace,
                reason=type(bug).__name__,
            ):
                telemetry.logger.exception(
                    "target failed", namespace=firing.namespace, schedule=firing.name
                )
            return outcomes.Retry(
                reason=Reason.INTERNAL_ERROR, message=f"{type(bug).__name__} in the worker"
            )

    def _observe(self, attempt: Attempt, answer: outcomes.Outcome) -> None:
        match answer:
            case outcomes.Delivered():
                # A slot that was let wait for a run to end is no later than its author wants it.
                if attempt.number == 1 and attempt.point.kind is not points.PointKind.QUEUED:
                    lateness_us = max(0, answer.accepted_us - attempt.due_us)
                    telemetry.start_lateness_seconds.observe(lateness_us / 1_000_000)
            case outcomes.Retry() | outcomes.Rejected() | outcomes.Skipped():
                self._failures.note(
                    attempt.definition.name,
                    now=self._clock.monotonic(),
                    namespace=attempt.definition.namespace,
                    reason=answer.reason,
                    slot_us=attempt.slot_us,
                    attempt=attempt.number,
                    error=answer.message,
                )
        if attempt.first_try_us == 0 and (isinstance(answer, outcomes.Delivered) or answer.started):
            telemetry.slots_total.labels("Started", "").inc()

    # -- giving back ---------------------------------------------------------------------------

    async def _give_back(self, settler: settlers.Settler) -> None:
        """What has ended is settled; the rest is due again at once, for another worker."""
        try:
            await settler.flush()
            await self._queue.claims.release(settler.claim)
        except (errors.TryLater, errors.WorldChanged) as trouble:
            telemetry.logger.warning("points not given back", error=str(trouble))

    async def _come_back(self, settler: settlers.Settler) -> None:
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


async def _step_aside() -> None:
    """Let every attempt get as far as its request; a turn of the loop is one step of each."""
    for _ in range(_TURNS_TO_REQUEST):
        await asyncio.sleep(0)


#: Stands in for an action that cannot be read: its retries are those of a Job.
_STAND_IN = actions.Action(target=actions.JobAction(template={}))


def _in_parts(work: Assignment) -> Iterator[list[messages.Planning]]:
    """The splits, few enough for one script each, and with each part the news of its slots.

    In the same script, because whatever a later slot tells is to be read after it.
    """
    part: list[messages.Planning] = []
    news: list[RunEvent] = []
    planned = 0
    for planning, opened in zip(work.splits, work.opened, strict=True):
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


def _too_late(
    attempt: Attempt, action: actions.Action, firing: targets.Firing, now_us: int
) -> outcomes.Rejected | None:
    """A retry that nobody claimed in time: it was put off to before its end, and is claimed after.

    First tries are judged when their chain is claimed, and never again.
    """
    give_up_us = targets.retry_limits(action, firing, _deadline_us(attempt)).give_up_us
    if not attempt.is_retry or now_us < give_up_us:
        return None
    message = "no worker could try again before the time for it was over"
    if cause := attempt.record.last_cause or attempt.record.last_error:
        message += f"; the last try: {cause}"
    return outcomes.Rejected(reason=Reason.DEADLINE_EXCEEDED, message=message, started=False)


def _closing_of(work: Assignment) -> settlers.Closing:
    return settlers.Closing(
        finished=tuple(work.finished),
        chains=tuple(work.chains),
        ended=tuple(work.ended),
        dead=tuple(work.dead),
        events=tuple(work.events),
        occurrences=tuple(work.held),
    )


def _count_ended(events: Iterable[RunEvent | run.Together]) -> None:
    """Slots that ended without a run."""
    for event in events:
        if isinstance(event, run.Together):
            continue
        if event.state is RunState.SUPERSEDED:
            telemetry.superseded_total.inc()
        elif event.state in (RunState.MISSED, RunState.SKIPPED) and event.count:
            telemetry.slots_total.labels(event.state, event.reason).inc(event.count)


def _had_owner(claim: messages.Claim) -> bool:
    """Whether another worker held these points, and may have asked a target."""
    return claim.reclaimed > 0 or claim.first_us not in (0, claim.now_us)


def _deadline_us(attempt: Attempt) -> int | None:
    deadline_us = attempt.definition.rule.policy.deadline_us
    return None if deadline_us is None else attempt.due_us + deadline_us
