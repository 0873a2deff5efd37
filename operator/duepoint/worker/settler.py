"""Outcomes -> what the queue and the ledger are told.

``closing`` is the decision, pure: one attempt and its outcome become finished points, a retry, the
chain's next due, a dead letter, a run event. ``Settler`` is the performer for one claim: it gathers
closings for a few milliseconds and settles them together, as often as needed, so that a slow
delivery holds up nobody else's next slot. What could not be settled while the claim was held is
left to whoever reclaims it: the slot is fired again under the same name and id.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from duepoint import clock as clocks
from duepoint import errors, services, telemetry
from duepoint.clock import Clock
from duepoint.delayqueue import messages
from duepoint.delayqueue.claims import nextdues, retrylimit
from duepoint.delayqueue.concurrency import activeruns
from duepoint.delayqueue.definitions import records
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.delayqueue.wire import scripting
from duepoint.runs import outcome as outcomes
from duepoint.runs import retries, run, unanswered
from duepoint.runs.run import RunEvent, RunState
from duepoint.schedules import actions, points
from duepoint.schedules import definition as definitions
from duepoint.schedules.conditions import Reason
from duepoint.schedules.points import DuePoint, PointKind
from duepoint.targets import target as targets
from duepoint.worker import runlimits
from duepoint.worker.assignment import Attempt

#: How long closings are gathered before they are settled together. Nobody waits for a settlement
#: (a chain whose next slot is near has moved on already), and one script less leaves the loop to
#: attempts that are due now. A batch whose attempts have all ended is settled at once.
GATHER_SECONDS = 0.025
#: A settlement is repeated against an ailing Redis for as long as the claim is held, and this
#: long for its outcomes' sake.
_LAST_TRY_SECONDS = 1.0
#: A request that has been open for so long is told of as a run that goes on.
OPEN_SECONDS = 2.0
#: Closings in one settlement: one script stays short, and below what Lua can unpack.
MOST_CLOSINGS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """How one attempt, or one point without an attempt, ends; or many that went together."""

    finished: tuple[bytes, ...] = ()
    occurrences: tuple[messages.Occurrence, ...] = ()
    chains: tuple[DuePoint, ...] = ()
    rearmed: Sequence[nextdues.Pair] = ()
    ended: tuple[points.ScheduleId, ...] = ()
    counted: tuple[bytes, ...] = ()
    dead: tuple[messages.DeadLetter, ...] = ()
    events: Sequence[RunEvent | run.Together] = ()
    left: tuple[Left, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A run that counted for its schedule's concurrency policy and has ended."""

    definition: definitions.Definition
    run: activeruns.ActiveRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """A first attempt that is under way, begun at this instant of the monotonic clock."""

    attempt: Attempt
    started_us: int
    since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """An attempt with what came of it.

    Attributes:
        kind: the target's type, because a Job counts as started only once it exists.
        had_owner: another worker held this point before, and may have asked the target.
        fraction: uniform in [0, 1), the dice of the backoff.
    """

    attempt: Attempt
    outcome: outcomes.Outcome
    kind: type[actions.Target]
    limits: retries.RetryLimits
    started_us: int
    now_us: int
    fraction: float
    had_owner: bool = False


# -- the decision ----------------------------------------------------------------------------


def closing(tried: Tried) -> Closing:
    """What to tell the queue about an attempt."""
    match tried.outcome:
        case outcomes.Delivered() as delivered:
            return _delivered(tried, delivered)
        case outcomes.Rejected() as rejected:
            return _given_up(tried, rejected)
        case outcomes.Retry() as wanted:
            return _tried_again(tried, wanted)
        case outcomes.Skipped() as skipped:
            event = _event(tried, RunState.SKIPPED, skipped.reason, skipped.message)
            return _end(tried, Closing(events=(event,)))


def _delivered(tried: Tried, delivered: outcomes.Delivered) -> Closing:
    running = delivered.running
    event = _event(
        tried,
        RunState.RUNNING if running else RunState.SUCCEEDED,
        Reason.CREATED if running else Reason.SUCCEEDED,
        delivered.message,
        finished_us=0 if running else delivered.accepted_us,
        job_name=delivered.job_name,
        http_status=delivered.http_status,
    )
    if delivered.job_name and _may_come_again(tried, delivered):
        event = msgspec.structs.replace(event, may_come_again=True)
    return _end(tried, Closing(events=(event,)))


def _may_come_again(tried: Tried, delivered: outcomes.Delivered) -> bool:
    """Whether anybody's request for this Job may be carried out once more."""
    asked_us = tried.attempt.record.unanswered_us
    is_late = unanswered.may_come(asked_us, tried.now_us)
    return delivered.may_come_again or tried.had_owner or is_late


def _tried_again(tried: Tried, wanted: outcomes.Retry) -> Closing:
    made = tried.attempt.number if wanted.counted else tried.attempt.number - 1
    limits = tried.limits
    if not wanted.counted:  # what never began uses up no attempt, not even the only one
        limits = dataclasses.replace(limits, max_attempts=limits.max_attempts + 1)
    due_us = retries.next_try(
        limits,
        attempts_made=max(made, 1),
        now_us=tried.now_us,
        # What waits for its turn has had its backoff, or never needed one.
        fraction=tried.fraction if wanted.counted or wanted.after_us is None else 0.0,
        after_us=wanted.after_us,
    )
    if due_us is None:
        return _given_up(tried, wanted)
    retry = _retry(tried, wanted, attempts_made=made, due_us=due_us)
    events = _news_of_retry(tried, wanted, due_us=due_us)
    return _end(tried, Closing(occurrences=(retry,), events=events))


#: A check that found something missing is repeated after this; the first one sooner, because what
#: it was told may have been remembered from right before it was mended.
CHECK_AGAIN_US = 30_000_000
_CHECK_SOON_US = 3_000_000


def checked(attempt: Attempt, found: targets.Checked | None, now_us: int) -> Closing:
    """What to tell of a check: asked again for as long as somebody may mend what it found."""
    known = attempt.definition
    event = RunEvent(
        uid=known.uid,
        namespace=known.namespace,
        name=known.name,
        generation=known.generation,
        slot_us=0,
        trigger=attempt.trigger,
        state=RunState.CHECKED,
        reason="" if found is None else found.reason,
        message="" if found is None else found.message,
        at_us=now_us,
    )
    if found is None or found.final:
        return Closing(finished=(attempt.point.member,), events=(event,))
    wait_us = _CHECK_SOON_US if attempt.number == 1 else CHECK_AGAIN_US
    again = messages.Occurrence(
        point=dataclasses.replace(attempt.point, due_us=now_us + wait_us),
        record=messages.OccurrenceRecord(
            attempt=attempt.number,
            trigger=attempt.trigger,
            last_error=found.reason,
            last_cause=run.cut(found.message, run.CAUSE_LIMIT),
        ),
        source=attempt.point.member,
    )
    return Closing(occurrences=(again,), events=(event,))


def _news_of_retry(tried: Tried, wanted: outcomes.Retry, *, due_us: int) -> tuple[RunEvent, ...]:
    """A slot that was tried has started; one that was put off before it started is open.

    A Job starts with its Job, so its slot is open for as long as it is tried.
    """
    attempt = tried.attempt
    status = wanted.http_status
    if wanted.started and tried.kind is not actions.JobAction:
        state = RunState.RUNNING
        told = f"{wanted.message}; next try at {run.instant_text(due_us)}"
        return (_event(tried, state, wanted.reason, told, http_status=status),)
    has_started = _has_started(tried)
    if has_started and wanted.reason is Reason.CIRCUIT_OPEN:
        return (_event(tried, RunState.RUNNING, wanted.reason, wanted.message),)
    if has_started or not (attempt.is_regular or attempt.run_uid):
        return ()
    put_off = _event(tried, RunState.PENDING, wanted.reason, wanted.message, settled=False)
    made = attempt.number if wanted.counted else attempt.number - 1
    return (
        msgspec.structs.replace(put_off, due_us=attempt.due_us, completed=False, attempts=made),
    )


def _given_up(tried: Tried, last: outcomes.Retry | outcomes.Rejected) -> Closing:
    """No further attempt: what never started is a missed slot, the rest a failed run.

    A Job starts with its Job, a delivery with the first request: one that waited for a circuit
    until its time was over has not.
    """
    waited = not last.started and not tried.attempt.first_try_us
    missed = tried.kind is actions.JobAction or waited
    is_late = waited and isinstance(last, outcomes.Retry) and not last.counted
    event = _event(
        tried,
        RunState.MISSED if missed else RunState.FAILED,
        Reason.DEADLINE_EXCEEDED if is_late else last.reason,
        last.message,
        finished_us=0 if missed else tried.now_us,
        http_status=last.http_status,
    )
    # A chain goes on when its slot is given up on: the letter must not take the chain with it.
    member = b"" if tried.attempt.is_chain else tried.attempt.point.member
    letter = messages.DeadLetter(member=member, entry=_letter(tried, last))
    return _end(tried, Closing(dead=(letter,), events=(event,)))


def _retry(
    tried: Tried, wanted: outcomes.Retry, *, attempts_made: int, due_us: int
) -> messages.Occurrence:
    attempt = tried.attempt
    kind = attempt.point.kind
    # A delivery without its Secret was never begun, so it has not started.
    was_tried = wanted.counted and (wanted.started or tried.kind is actions.JobAction)
    again = kind if kind in points.RUN_KINDS else PointKind.RETRY
    point = DuePoint(
        schedule_id=attempt.point.schedule_id,
        timing_version=attempt.point.timing_version,
        kind=again,
        due_us=due_us,
        slot_us=attempt.slot_us,
        run_tag=attempt.point.run_tag,
    )
    record = dataclasses.replace(
        attempt.record,
        attempt=attempts_made,
        first_try_us=attempt.first_try_us or (tried.started_us if was_tried else 0),
        trigger=attempt.trigger,
        last_error=wanted.reason,
        last_cause=run.cut(wanted.message, run.CAUSE_LIMIT),
        unanswered_us=tried.now_us if wanted.unanswered else attempt.record.unanswered_us,
    )
    policy = attempt.definition.rule.policy
    origin = _origin(attempt.definition)
    if tried.kind is actions.JobAction:
        origin["target"] = retrylimit.JOB
    return messages.Occurrence(
        point=point,
        record=record,
        source=attempt.point.member,
        origin=origin,
        open_limit=policy.catch_up_limit if policy.catch_up == "All" else 0,
    )


def _end(tried: Tried, closed: Closing) -> Closing:
    """The attempt's own point ends: a chain moves on, an occurrence goes unless tried again."""
    attempt = tried.attempt
    if _is_counted(tried):
        closed = dataclasses.replace(closed, counted=(attempt.point.member,))
    if not attempt.is_chain:
        stays = any(one.point.member == attempt.point.member for one in closed.occurrences)
        buried = any(letter.member == attempt.point.member for letter in closed.dead)
        finished = () if stays or buried else (attempt.point.member,)
        return dataclasses.replace(closed, finished=finished)
    if attempt.following is None or _is_last(tried):
        return dataclasses.replace(
            closed, finished=(attempt.point.member,), ended=(attempt.point.schedule_id,)
        )
    following = points.chain(
        attempt.point.schedule_id, attempt.point.timing_version, attempt.following.due_us
    )
    return dataclasses.replace(closed, chains=(following,))


def _is_counted(tried: Tried) -> bool:
    """Whether the slot has started by this attempt and its schedule counts that."""
    attempt = tried.attempt
    return (
        runlimits.is_limited(attempt.definition)
        and attempt.is_regular
        and runlimits.starts(attempt.definition, attempt.first_try_us, tried.outcome)
    )


def _is_last(tried: Tried) -> bool:
    """Whether the slot took the last run that ``maxRuns`` allows."""
    return tried.attempt.definition.runs_left == 1 and _is_counted(tried)


def running(one: Open, now_us: int) -> Closing:
    """The attempt goes on; its slot has started, and has not ended."""
    attempt, known = one.attempt, one.attempt.definition
    event = RunEvent(
        uid=known.uid,
        namespace=known.namespace,
        name=known.name,
        generation=known.generation,
        slot_us=attempt.slot_us,
        trigger=attempt.trigger,
        state=RunState.RUNNING,
        reason=Reason.RUNNING,
        message="the request is open",
        at_us=now_us,
        started_us=one.started_us,
        attempts=attempt.number - 1,
        run_uid=attempt.run_uid,
    )
    return Closing(events=(event,))


def withdrawn(attempt: Attempt, now_us: int) -> Closing | None:
    """The occurrence was taken out of the queue before its attempt; its ScheduleRun is told."""
    told = "taken out of the queue before it ran"
    return _note_to_run(attempt, Reason.DELETED, told, attempts=attempt.number, now_us=now_us)


def replacing(
    known: definitions.Definition, runs: Iterable[activeruns.ActiveRun], told: str, *, now_us: int
) -> Closing:
    """The Jobs of these runs are about to be deleted; how each of them ends is seen by its Job."""
    events = tuple(
        RunEvent(
            uid=known.uid,
            namespace=known.namespace,
            name=known.name,
            generation=known.generation,
            slot_us=one.slot_us,
            trigger="Manual" if one.is_wanted else "Schedule",
            state=RunState.REPLACING,
            reason=Reason.REPLACED,
            message=told,
            at_us=now_us,
            job_name=one.job,
        )
        for one in runs
    )
    return Closing(events=events)


def waiting(attempt: Attempt, message: str, *, now_us: int) -> Closing | None:
    """The slot waits for other runs to end; its ScheduleRun is told."""
    reason, made = Reason.CONCURRENCY_QUEUED, attempt.number - 1
    return _note_to_run(attempt, reason, message, attempts=made, now_us=now_us)


def _note_to_run(
    attempt: Attempt, reason: Reason, message: str, *, attempts: int, now_us: int
) -> Closing | None:
    """News of a slot that has not ended; None where no ScheduleRun wants it."""
    if not attempt.run_uid:
        return None
    known = attempt.definition
    event = RunEvent(
        uid=known.uid,
        namespace=known.namespace,
        name=known.name,
        generation=known.generation,
        slot_us=attempt.slot_us,
        trigger=attempt.trigger,
        state=RunState.PENDING,
        reason=reason,
        message=message,
        at_us=now_us,
        attempts=attempts,
        run_uid=attempt.run_uid,
    )
    return Closing(events=(event,))


def unrun(
    attempt: Attempt, state: RunState, reason: Reason, message: str, *, now_us: int
) -> Closing:
    """The slot of an occurrence ends without this attempt."""
    known = attempt.definition
    is_run = state in run.ENDED
    event = RunEvent(
        uid=known.uid,
        namespace=known.namespace,
        name=known.name,
        generation=known.generation,
        slot_us=attempt.slot_us,
        trigger=attempt.trigger,
        state=state,
        reason=reason,
        message=message,
        at_us=now_us,
        started_us=attempt.first_try_us,
        finished_us=now_us if is_run else 0,
        attempts=attempt.number - 1,
        again=attempt.first_try_us > 0 and is_run,
        settled_us=attempt.slot_us if attempt.is_regular else 0,
        completed=attempt.completes and attempt.is_regular,
        run_uid=attempt.run_uid,
    )
    return Closing(finished=(attempt.point.member,), events=(event,))


def _event(
    tried: Tried,
    state: RunState,
    reason: Reason,
    message: str,
    *,
    finished_us: int = 0,
    job_name: str = "",
    http_status: int | None = None,
    settled: bool = True,
) -> RunEvent:
    attempt = tried.attempt
    known = attempt.definition
    return RunEvent(
        uid=known.uid,
        namespace=known.namespace,
        name=known.name,
        generation=known.generation,
        slot_us=attempt.slot_us,
        trigger=attempt.trigger,
        state=state,
        reason=reason,
        message=message,
        at_us=tried.now_us,
        started_us=attempt.first_try_us or tried.started_us,
        finished_us=finished_us,
        attempts=attempt.number,
        job_name=job_name,
        http_status=http_status,
        settled_us=attempt.slot_us if attempt.is_regular and settled else 0,
        completed=attempt.is_regular and (attempt.completes or _is_last(tried)),
        run_uid=attempt.run_uid,
        again=_has_started(tried),
    )


def _has_started(tried: Tried) -> bool:
    """Whether an attempt before has started the slot: a Job starts with its Job, at the end."""
    return tried.kind is not actions.JobAction and tried.attempt.first_try_us > 0


def _letter(tried: Tried, last: outcomes.Retry | outcomes.Rejected) -> dict[str, str]:
    attempt = tried.attempt
    return {
        **_origin(attempt.definition),
        "slot_us": str(attempt.slot_us),
        **records.for_letter(attempt.record),
        "trigger": attempt.trigger,
        "attempts": str(attempt.number),
        "reason": str(last.reason),
        "message": last.message,
        "http_status": "" if last.http_status is None else str(last.http_status),
        "given_up_us": str(tried.now_us),
    }


def _origin(known: definitions.Definition) -> dict[str, str]:
    return {
        "namespace": known.namespace,
        "name": known.name,
        "uid": known.uid,
        "generation": str(known.generation),
    }


# -- the performer ---------------------------------------------------------------------------


class Settler:
    """Settles what has become of one claim, in as few scripts as its attempts allow."""

    def __init__(self, queue: DelayQueue, clock: Clock, claim: messages.Claim) -> None:
        self._queue = queue
        self._clock = clock
        self.claim = claim
        self.lost = False
        #: The queue could not be reached at some time while the claim was held.
        self.cut_off = False
        self._begun = clock.monotonic()
        self._gathered: list[Closing] = []
        #: First attempts that are under way and of which nothing has been told, by member.
        self._open: dict[bytes, Open] = {}
        #: Runs that have ended and still count in the queue.
        self._left: list[Left] = []
        self._number = 0
        self._current: messages.Settlement | None = None
        self._news = asyncio.Event()
        self._complete = asyncio.Event()
        #: Numbers rise in the order in which settlements reach the queue.
        self._turn = asyncio.Lock()

    def now_us(self) -> int:
        """The claim's time and what has passed since.

        Not this machine's UTC: were that an hour ahead, retries would come an hour late or, by
        ``maxAge``, never.
        """
        return self.at_us(self._clock.monotonic())

    def at_us(self, monotonic: float) -> int:
        """The same for an instant of the monotonic clock."""
        return self.claim.now_us + int((monotonic - self._begun) * 1_000_000)

    def add(self, closed: Closing) -> None:
        """Take note of one more point that has ended."""
        self._gathered.append(closed)
        self._left += closed.left
        self._news.set()

    def begin(self, attempt: Attempt, started_us: int) -> None:
        """An attempt whose target takes as long as it likes is under way."""
        if attempt.first_try_us == 0:  # of a later one the first has told
            since = self._clock.monotonic()
            self._open[attempt.point.member] = Open(
                attempt=attempt, started_us=started_us, since=since
            )

    def end(self, attempt: Attempt) -> None:
        """It has ended."""
        self._open.pop(attempt.point.member, None)

    async def tell(self, closed: Closing) -> bool:
        """The queue is told now, with all that was gathered; False where the claim is lost."""
        self.add(closed)
        await self.flush()
        return not self.lost

    def note_open(self) -> None:
        """Tell of attempts that have been under way for long, each once."""
        began_before = self._clock.monotonic() - OPEN_SECONDS
        for member, one in list(self._open.items()):
            if one.since <= began_before:
                del self._open[member]
                self.add(running(one, self.now_us()))

    def put_off(self, what: str, trouble: errors.TryLater) -> None:
        """The queue could not be reached for this claim; the log is told so once."""
        if not self.cut_off:
            telemetry.logger.warning(what, shard=self.claim.shard, error=str(trouble))
        self.cut_off = True

    def over(self, schedule_id: points.ScheduleId) -> tuple[activeruns.ActiveRun, ...]:
        """Runs of a schedule that have ended, of which the queue has not been told."""
        return tuple(left.run for left in self._left if left.definition.id == schedule_id)

    def finish(self) -> None:
        """Nothing more will come: ``run`` returns after the last settlement."""
        self._complete.set()
        self._news.set()

    async def run(self) -> None:
        """Settle until everything is told."""
        while not (self._complete.is_set() and not self._gathered):
            await self._news.wait()
            await clocks.wait_for(self._complete, GATHER_SECONDS, self._clock)
            self._news.clear()
            await self.flush()

    async def flush(self) -> None:
        """Settle what has been gathered; one that was cut short is sent again, as the same."""
        async with self._turn:
            if self._current is not None:
                await self._settle(self._current)
            while self._gathered:
                part = self._gathered[:MOST_CLOSINGS]
                self._gathered = self._gathered[MOST_CLOSINGS:]
                self._number += 1
                self._current = _settlement(part, number=self._number)
                await self._settle(self._current)
            if self._left:
                await self._leave()

    async def _leave(self) -> None:
        """What waits for the ended runs has its turn; untold, it looks again by itself."""
        pending = [left for closed in self._gathered for left in closed.left]
        ended = [left for left in self._left if left not in pending]
        runs: dict[points.ScheduleId, tuple[definitions.Definition, list[activeruns.Run]]] = {}
        for left in ended:
            _, listed = runs.setdefault(left.definition.id, (left.definition, []))
            listed.append(left.run.run)
        self._left = pending
        try:
            for known, listed in runs.values():
                await self._queue.concurrency.leave(self.claim, known, listed)
        except (errors.TryLater, errors.WorldChanged) as trouble:
            telemetry.logger.warning("ends of runs not told", error=str(trouble))

    async def hand_over(
        self, entries: Sequence[messages.Entries], closed: Sequence[Closing]
    ) -> messages.Handed | None:
        """Settle these closings and append their entries, both or neither; None = nobody knows.

        Asked for as long as the claim is held, since a lost answer may hide that they are in. Then
        the queue knows, and whoever reclaims the points finds out. Raises ``scripting.WrongType``
        and ``scripting.Refused`` as ``DelayQueue.deliver`` does: nothing was done.
        """
        async with self._turn:
            self._number += 1
            return await self._deliver(entries, _settlement(closed, number=self._number))

    async def _deliver(
        self, entries: Sequence[messages.Entries], settlement: messages.Settlement
    ) -> messages.Handed | None:
        waits = services.backoff(first_seconds=0.05, most_seconds=1.0)
        while not self.lost and self._clock.monotonic() < self.claim.held_until:
            try:
                return await self._queue.settlements.deliver(self.claim, settlement, *entries)
            except scripting.Refused:
                raise
            except errors.TryLater as trouble:
                self.put_off("entries put off", trouble)
                await self._clock.sleep(next(waits))
            except errors.WorldChanged as change:
                telemetry.logger.warning("entries refused", error=str(change))
                break
        self.lost = True
        return None

    async def _settle(self, settlement: messages.Settlement) -> None:
        waits = services.backoff(first_seconds=0.05, most_seconds=1.0)
        last_try = self._clock.monotonic() + _LAST_TRY_SECONDS
        while self._clock.monotonic() < max(last_try, self.claim.held_until):
            try:
                self._note(await self._queue.settlements.settle(self.claim, settlement), settlement)
                break
            except errors.TryLater as trouble:
                self.put_off("settlement put off", trouble)
                await self._clock.sleep(next(waits))
            except errors.WorldChanged as change:
                # The index was made anew under us: the claim is gone, the rebuild arms again.
                telemetry.logger.warning("settlement refused", error=str(change))
                self.lost = True
                break
        else:
            # Its points are still the claim's: kept alive, they would be nobody's to fire.
            telemetry.logger.warning("settlement given up; others will fire its slots again")
            self.lost = True
        self._current = None

    def _note(self, settled: messages.Settled, settlement: messages.Settlement) -> None:
        self.lost = self.lost or settled.lost
        telemetry.given_up_total.inc(len(settlement.dead) + len(settled.buried))


def _settlement(gathered: Iterable[Closing], *, number: int) -> messages.Settlement:
    listed = list(gathered)
    return messages.Settlement(
        occurrences=tuple(one for closed in listed for one in closed.occurrences),
        chains=tuple(one for closed in listed for one in closed.chains),
        rearmed=nextdues.joined(closed.rearmed for closed in listed),
        finished=tuple(one for closed in listed for one in closed.finished),
        ended=tuple(one for closed in listed for one in closed.ended),
        counted=tuple(one for closed in listed for one in closed.counted),
        dead=tuple(one for closed in listed for one in closed.dead),
        outcomes=run.pack(event for closed in listed for event in closed.events),
        number=number,
    )
