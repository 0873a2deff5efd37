"""What a claim asks of this worker: which attempts to make, and which points end without one.

Pure: definitions and the claim come in, an Assignment goes out; the dispatcher performs it. Every
point of the claim ends up in exactly one place: an attempt, a split (an attempt whose chain moves
on first), or the closing settlement. A chain is judged by catch-up and deadline as of its first
claim, however often it was taken over since: the slots that a former owner may have started are
then those that run, and no others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import msgspec

from duepoint.delayqueue import messages
from duepoint.delayqueue.concurrency import activeruns
from duepoint.delayqueue.definitions import records
from duepoint.runs.run import RunEvent, RunState
from duepoint.schedules import definition as definitions
from duepoint.schedules import points, policies, slots
from duepoint.schedules.conditions import Reason
from duepoint.schedules.points import DuePoint, PointKind
from duepoint.schedules.slots import DueSlot, Slots
from duepoint.worker import runlimits, waitingback

Definitions = Mapping[points.ScheduleId, definitions.Definition]

TRIGGER_SCHEDULE = "Schedule"
TRIGGER_CATCH_UP = "CatchUp"
TRIGGER_CHECK = "Check"

_RELEASED = "it had waited for a run to end until concurrencyPolicy was edited"

_NO_RECORD = messages.OccurrenceRecord()
_NO_LIMITS: runlimits.RunsLeft = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try of one slot.

    Attributes:
        point: the claimed point; settling it ends the attempt.
        due_us: slot plus jitter; lateness is measured from it.
        number: 1 for the first try.
        first_try_us: time of the first try, 0 for this one.
        record: what the queue held of an occurrence, with what a ScheduleRun overrides.
        following: for a chain point that is fired directly: where the chain goes on, None where
            no slot is left. Unused for occurrences.
        completes: no slot of the schedule is left after this one.
        eager: may be tried while its chain is still being moved on: it is the chain's own slot,
            so whoever finds the chain unmoved after a crash fires this very slot again.
    """

    point: DuePoint
    definition: definitions.Definition
    slot_us: int
    due_us: int
    previous_us: int | None
    trigger: str
    number: int = 1
    first_try_us: int = 0
    record: messages.OccurrenceRecord = _NO_RECORD
    following: DueSlot | None = None
    completes: bool = False
    eager: bool = False

    @property
    def is_chain(self) -> bool:
        return self.point.kind is PointKind.CHAIN

    @property
    def run_uid(self) -> str:
        """Of the ScheduleRun that wants this slot; empty for regular ones."""
        return self.record.run_uid

    @property
    def is_retry(self) -> bool:
        return self.point.kind is PointKind.RETRY or self.number > 1

    @property
    def is_regular(self) -> bool:
        """Whether the slot belongs to the schedule's own sequence (and moves its watermark)."""
        return self.trigger in (TRIGGER_SCHEDULE, TRIGGER_CATCH_UP)


@dataclass(slots=True)
class Assignment:
    """The work of one claim.

    Attributes:
        attempts: groups of attempts; a group is made in its order, oldest slot first, and groups
            do not wait for one another (a retry that hangs must not hold up the next slot).
        checks: points at which nothing is fired: what the definition refers to is looked at.
        splits: chain points that move on before their slots are tried.
        opened: beside each split, what is told of its slots, which are open from then on.
        finished, chains, ended, dead, events: what the closing settlement says of the others.
        held: points in the name of slots that wait, because the server went back.
        unjudged: points on which a bug or an unreadable rule came up. They stay the claim's until
            it runs out; reclaimed often enough, they are buried like any poison.
    """

    attempts: list[tuple[Attempt, ...]] = field(default_factory=list)
    checks: list[Attempt] = field(default_factory=list)
    splits: list[messages.Planning] = field(default_factory=list)
    opened: list[RunEvent] = field(default_factory=list)
    finished: list[bytes] = field(default_factory=list)
    chains: list[DuePoint] = field(default_factory=list)
    ended: list[points.ScheduleId] = field(default_factory=list)
    dead: list[messages.DeadLetter] = field(default_factory=list)
    events: list[RunEvent] = field(default_factory=list)
    held: list[messages.Occurrence] = field(default_factory=list)
    unjudged: list[tuple[DuePoint, Exception]] = field(default_factory=list)

    def take(self, other: Assignment) -> None:
        """Everything of the other one too."""
        for part in _PARTS:
            if taken := getattr(other, part):
                getattr(self, part).extend(taken)

    @property
    def closes_points(self) -> bool:
        """Whether anything is to be settled before an attempt has ended."""
        return any((self.finished, self.chains, self.ended, self.dead, self.events))


#: Slots that overdue chains of one claim become, all together: a claim is extended and given back
#: by one script, which takes the server some 3 us for each of its points.
MOST_PLANNED = 500

_PARTS = tuple(part.name for part in dataclasses.fields(Assignment))


def assign(
    claim: messages.Claim,
    found: Definitions,
    *,
    attempt_limit_us: Callable[[definitions.Definition], int],
    unreadable: Collection[points.ScheduleId] = (),
    runs_left: runlimits.RunsLeft = _NO_LIMITS,
) -> Assignment:
    """What to do with each point of the claim.

    Args:
        claim: fresh or reclaimed.
        found: the newest definitions, read after the claim.
        attempt_limit_us: how long one attempt of this definition's target may take; a chain whose
            next slot comes sooner is split, so that a slow target delays no later slot.
        unreadable: schedules whose definition cannot be read: their points are dead letters, and
            the operator's comparison with the objects writes definition and chain anew.
        runs_left: how many slots the chains of schedules with maxRuns may hand over.
    """
    assignment = Assignment()
    for member, score in claim.strangers:
        assignment.dead.append(_stranger(member, score))
    for point in sorted(claim.points, key=_turn_us):
        known = found.get(point.schedule_id)
        if known is None and point.schedule_id in unreadable:
            assignment.dead.append(_undefined(point))
            continue
        try:
            left = runs_left.get(point.schedule_id)
            assignment.take(_assign_point(claim, point, known, attempt_limit_us, left))
        except Exception as trouble:  # noqa: BLE001 - one point's trouble is not its neighbours'
            assignment.unjudged.append((point, trouble))
            if claim.reclaimed >= messages.POISON_RECLAIMS and known is not None:
                assignment.dead.append(_dead(claim, point, known, Reason.POISON, repr(trouble)))
    return assignment


def _turn_us(point: DuePoint) -> int:
    """Oldest slot first; what a ScheduleRun wants goes in the order in which it was asked for."""
    return point.due_us if point.kind in points.RUN_KINDS else point.slot_us


def _assign_point(
    claim: messages.Claim,
    point: DuePoint,
    known: definitions.Definition | None,
    attempt_limit_us: Callable[[definitions.Definition], int],
    runs_left: int | None,
) -> Assignment:
    assignment = Assignment()
    if claim.is_poison:
        _bury(assignment, claim, point, known)
    elif known is not None and point.member in claim.unreadable:
        _give_up(assignment, claim, point, known, "the record of its attempts cannot be read")
    elif known is None or _is_superseded(point, known):
        assignment.finished.append(point.member)
        _note_superseded(assignment, point, known, claim.now_us)
    elif point.kind is PointKind.CHAIN and point.due_us <= claim.back_us:
        _hold(assignment, claim, point, known)
    elif point.kind is PointKind.HELD:
        _assign_held(assignment, claim, point, known, runs_left=runs_left)
    elif point.kind is PointKind.CHAIN:
        limit_us = attempt_limit_us(known)
        _assign_chain(assignment, claim, point, known, limit_us=limit_us, runs_left=runs_left)
    else:
        _assign_occurrence(assignment, claim, point, known)
    return assignment


def _is_superseded(point: DuePoint, known: definitions.Definition) -> bool:
    if point.kind not in points.TIMED_KINDS:
        return False
    return point.timing_version != known.timing_version or (
        point.kind is PointKind.CHAIN and known.state is not definitions.State.ARMED
    )


def _note_superseded(
    assignment: Assignment, point: DuePoint, known: definitions.Definition | None, now_us: int
) -> None:
    """Slots of an old timing end as Superseded; those of a deleted schedule have no reader.

    What stood ready or waited when its schedule was suspended is skipped, like what comes after.
    """
    if known is None:
        return
    if known.rule.timing.suspend and point.kind is not PointKind.CHAIN:
        event = _event(known, point.slot_us, RunState.SKIPPED, Reason.SUSPENDED, now_us)
        message = "it had not started when its Schedule was suspended"
        assignment.events.append(msgspec.structs.replace(event, message=message))
        return
    assignment.events.append(
        _event(known, point.slot_us, RunState.SUPERSEDED, Reason.STALE_VERSION, now_us)
    )


def _bury(
    assignment: Assignment,
    claim: messages.Claim,
    point: DuePoint,
    known: definitions.Definition | None,
) -> None:
    """Give up on a slot that no worker survives; its schedule goes on with the next one."""
    if known is None:
        assignment.finished.append(point.member)
        return
    reason = f"claimed alone {claim.alone} times and never settled"
    letter = _dead(claim, point, known, Reason.POISON, reason)
    if point.kind is not PointKind.CHECK:
        assignment.events.append(_given_up(known, claim, point, Reason.POISON, reason))
    if point.kind is not PointKind.CHAIN:
        assignment.dead.append(letter)
        return
    timeline = slots.for_rule(known.rule, identity=known.identity, created_us=known.created_us)
    assignment.dead.append(dataclasses.replace(letter, member=b""))
    _close_chain(assignment, point, timeline.next_after(point.slot_us))


# -- chains ----------------------------------------------------------------------------------


def _assign_chain(
    assignment: Assignment,
    claim: messages.Claim,
    chain: DuePoint,
    known: definitions.Definition,
    *,
    limit_us: int,
    runs_left: int | None,
) -> None:
    timeline = slots.for_rule(known.rule, identity=known.identity, created_us=known.created_us)
    if known.rule.timing.zone_data and not _has_slot(timeline, chain.due_us):
        following = timeline.next_after(chain.due_us)
        if following is None or following.due_us > claim.now_us:
            _close_chain(assignment, chain, following)
            if following is None:
                assignment.events.append(_completed(known, chain.due_us, claim.now_us))
            return
        chain = dataclasses.replace(chain, due_us=following.due_us)
    first_us = timeline.at_or_before(chain.due_us) or 0
    if known.runs_left == 0:
        _close_chain(assignment, chain, None)
        assignment.events.append(_completed(known, first_us, claim.now_us))
        return
    decided = policies.decide(
        timeline, known.rule.policy, chain_due_us=chain.due_us, now_us=claim.judged_us
    )
    decision, skipped = runlimits.within(decided, runs_left)
    decision = _within_share(decision, max(1, MOST_PLANNED // len(claim.points)))
    missed = [_missed_event(known, group, first_us, claim.now_us) for group in decision.missed]
    if skipped is not None:
        missed.append(_out_of_runs(known, skipped, claim.now_us))
    is_last = runs_left == 1  # the chain has nothing else to hand over while this one is tried
    match decision.run:
        case ():
            _close_chain(assignment, chain, decision.following)
            assignment.events.extend(missed)
            if missed and decision.following is None:
                assignment.events.append(_completed(known, decision.newest_us, claim.now_us))
        case (only,) if (
            not missed
            and not _is_judged(known)
            and (is_last or _may_hold(decision.following, claim.now_us, limit_us))
        ):
            attempt = _attempt(known, chain, only, timeline, following=decision.following)
            assignment.attempts.append((attempt,))
        case _:
            assignment.events.extend(missed)
            _split(assignment, chain, known, timeline, decision)
            assignment.opened.append(_opened_event(known, assignment.attempts[-1], claim.now_us))


def _has_slot(timeline: Slots, due_us: int) -> bool:
    """Whether a chain's due is that of a slot.

    It is not where it was computed with other zone data: that slot never was, and those before it
    that only the present data name are in the past.
    """
    slot_us = timeline.at_or_before(due_us)
    return slot_us is not None and timeline.due_slot(slot_us).due_us == due_us


def _within_share(decision: policies.Decision, most: int) -> policies.Decision:
    """So many slots for now; the chain is due at once again, at the first of the others.

    What is not run at all was told of already: the others are all that the next look will find.
    """
    if len(decision.run) <= most:
        return decision
    waiting = decision.run[most]
    return dataclasses.replace(
        decision,
        run=decision.run[:most],
        following=slots.DueSlot(slot_us=waiting.slot_us, due_us=waiting.due_us),
    )


def _is_judged(known: definitions.Definition) -> bool:
    """Whether a policy decides if a slot starts: only a slot of its own can be told to wait."""
    return known.rule.policy.concurrency != activeruns.ALLOW


def _may_hold(following: DueSlot | None, now_us: int, limit_us: int) -> bool:
    return following is None or following.due_us >= now_us + limit_us


def _close_chain(assignment: Assignment, chain: DuePoint, following: DueSlot | None) -> None:
    if following is None:
        assignment.finished.append(chain.member)
        assignment.ended.append(chain.schedule_id)
    else:
        assignment.chains.append(
            points.chain(chain.schedule_id, chain.timing_version, following.due_us)
        )


def _split(
    assignment: Assignment,
    chain: DuePoint,
    known: definitions.Definition,
    timeline: Slots,
    decision: policies.Decision,
) -> None:
    following = decision.following
    alone = len(decision.run) == 1 and not decision.missed and not _is_judged(known)
    attempts = tuple(
        _attempt(known, _planned(chain, one), one, timeline, following=following, eager=alone)
        for one in decision.run
    )
    planned = tuple(
        messages.Occurrence(
            point=attempt.point, record=messages.OccurrenceRecord(trigger=attempt.trigger)
        )
        for attempt in attempts
    )
    assignment.attempts.append(attempts)
    assignment.splits.append(
        messages.Planning(
            chain=chain,
            slots=planned,
            next_due_us=None if following is None else following.due_us,
        )
    )


def _planned(chain: DuePoint, chosen: policies.Chosen) -> DuePoint:
    return DuePoint(
        schedule_id=chain.schedule_id,
        timing_version=chain.timing_version,
        kind=PointKind.PLANNED,
        due_us=chosen.due_us,
        slot_us=chosen.slot_us,
    )


def _attempt(
    known: definitions.Definition,
    point: DuePoint,
    chosen: policies.Chosen,
    timeline: Slots,
    *,
    following: DueSlot | None,
    eager: bool = False,
) -> Attempt:
    return Attempt(
        point=point,
        definition=known,
        slot_us=chosen.slot_us,
        due_us=chosen.due_us,
        previous_us=timeline.previous_before(chosen.slot_us),
        trigger=TRIGGER_CATCH_UP if chosen.catch_up else TRIGGER_SCHEDULE,
        following=following,
        completes=following is None and timeline.next_after(chosen.slot_us) is None,
        eager=eager,
    )


# -- a server that went back -------------------------------------------------------------------


def _hold(
    assignment: Assignment,
    claim: messages.Claim,
    chain: DuePoint,
    known: definitions.Definition,
) -> None:
    """What is due by the instant in doubt waits to be compared; the chain goes on after it."""
    timeline = slots.for_rule(known.rule, identity=known.identity, created_us=known.created_us)
    held = waitingback.hold(chain, known, timeline, claim.back_us)
    if held.occurrence is not None:
        assignment.held.append(held.occurrence)
        event = _event(known, held.first_us, RunState.PENDING, Reason.REDIS_WENT_BACK, claim.now_us)
        assignment.events.append(msgspec.structs.replace(event, due_us=held.first_us))
    if held.is_whole:
        whole = points.chain(chain.schedule_id, chain.timing_version, points.HELD_US)
        assignment.chains.append(whole)
    else:
        _close_chain(assignment, chain, held.following)


def _assign_held(
    assignment: Assignment,
    claim: messages.Claim,
    point: DuePoint,
    known: definitions.Definition,
    *,
    runs_left: int | None,
) -> None:
    """Slots that were compared and have not ended: as a chain, but with an end."""
    record = claim.records.get(point.member, _NO_RECORD)
    timeline = slots.for_rule(known.rule, identity=known.identity, created_us=known.created_us)
    judged = waitingback.judge(point, record, known, timeline)
    decision, skipped = runlimits.within(judged.decision, runs_left)
    within = _within_share(decision, max(1, MOST_PLANNED // len(claim.points)))
    first_us = judged.first_us
    assignment.events += [
        _missed_event(known, group, first_us, claim.now_us) for group in decision.missed
    ]
    if skipped is not None:
        assignment.events.append(_out_of_runs(known, skipped, claim.now_us))
    if not within.run:
        assignment.finished.append(point.member)
        if decision.missed and decision.following is None:
            assignment.events.append(_completed(known, decision.newest_us, claim.now_us))
        return
    attempts = tuple(
        _attempt(known, _planned(point, one), one, timeline, following=decision.following)
        for one in within.run
    )
    planned = [
        messages.Occurrence(point=one.point, record=messages.OccurrenceRecord(trigger=one.trigger))
        for one in attempts
    ]
    opened = [one.slot_us for one in within.run]
    is_part = len(within.run) < len(decision.run)
    if is_part:
        following_us = decision.run[len(within.run)].slot_us
        rest = dataclasses.replace(record, from_us=following_us)
        planned.append(messages.Occurrence(point=point, record=rest))
        opened.append(following_us)
    assignment.attempts.append(attempts)
    assignment.splits.append(
        messages.Planning(
            chain=point, slots=tuple(planned), next_due_us=claim.now_us if is_part else None
        )
    )
    event = _opened_event(known, attempts, claim.now_us)
    assignment.opened.append(msgspec.structs.replace(event, more_us=tuple(opened[1:])))


# -- occurrences -----------------------------------------------------------------------------


def _assign_occurrence(
    assignment: Assignment,
    claim: messages.Claim,
    point: DuePoint,
    known: definitions.Definition,
) -> None:
    if point.kind is PointKind.CHECK:
        _assign_check(assignment, claim, point, known)
        return
    timeline = slots.for_rule(known.rule, identity=known.identity, created_us=known.created_us)
    record = claim.records.get(point.member, _NO_RECORD)
    if _has_no_run(point, known, record):
        assignment.finished.append(point.member)
        gone = runlimits.Skipped(oldest_us=point.slot_us, newest_us=point.slot_us, count=1)
        assignment.events.append(_out_of_runs(known, gone, claim.now_us))
        return
    if (reason := _refused_release(claim, point, known, timeline)) is not None:
        assignment.finished.append(point.member)
        assignment.events.append(_given_up(known, claim, point, reason, _RELEASED))
        return
    attempt = Attempt(
        point=point,
        definition=known,
        slot_us=point.slot_us,
        due_us=_occurrence_due_us(point, record, timeline),
        previous_us=timeline.previous_before(point.slot_us),
        trigger=record.trigger,
        # A slot that waited was not tried: its record counts how often it was put off.
        number=1 if point.kind is PointKind.QUEUED else record.attempt + 1,
        first_try_us=record.first_try_us,
        record=record,
        completes=timeline.next_after(point.slot_us) is None,
    )
    assignment.attempts.append((attempt,))


def _has_no_run(
    point: DuePoint, known: definitions.Definition, record: messages.OccurrenceRecord
) -> bool:
    """Of a slot whose run went to others: an edit of maxRuns has left fewer than there were."""
    if known.runs_left != 0 or point.kind in points.RUN_KINDS:
        return False
    return not runlimits.has_started(known, record.first_try_us)


def _refused_release(
    claim: messages.Claim, point: DuePoint, known: definitions.Definition, timeline: Slots
) -> Reason | None:
    """Why a slot that waited does not run, now that its schedule's policy lets none wait.

    All that waited are released together by such an edit, as after an outage.
    """
    policy = known.rule.policy
    if point.kind is not PointKind.QUEUED or policy.concurrency == activeruns.QUEUE:
        return None
    return policies.refusal(timeline, policy, slot_us=point.slot_us, now_us=claim.judged_us)


def _occurrence_due_us(point: DuePoint, record: messages.OccurrenceRecord, timeline: Slots) -> int:
    """Ages count from here: of what a ScheduleRun wants from when it was wanted, not its slot.

    Of what was taken back from the dead letters, from then on.
    """
    if record.replayed_us:
        return record.replayed_us
    if point.kind in points.RUN_KINDS:
        return record.first_try_us or point.due_us
    return timeline.due_slot(point.slot_us).due_us


def _give_up(
    assignment: Assignment,
    claim: messages.Claim,
    point: DuePoint,
    known: definitions.Definition,
    message: str,
) -> None:
    assignment.dead.append(_dead(claim, point, known, Reason.UNSUPPORTED, message))
    if point.kind is not PointKind.CHECK:
        assignment.events.append(_given_up(known, claim, point, Reason.UNSUPPORTED, message))


def _assign_check(
    assignment: Assignment,
    claim: messages.Claim,
    point: DuePoint,
    known: definitions.Definition,
) -> None:
    """Of the newest generation only: whoever stored that one asked for a check of its own."""
    if point.slot_us < known.generation:
        assignment.finished.append(point.member)
        return
    record = claim.records.get(point.member, _NO_RECORD)
    assignment.checks.append(
        Attempt(
            point=point,
            definition=known,
            slot_us=claim.now_us,
            due_us=claim.now_us,
            previous_us=None,
            trigger=TRIGGER_CHECK,
            number=record.attempt + 1,
        )
    )


# -- what is said of points without an attempt -----------------------------------------------


def _given_up(
    known: definitions.Definition,
    claim: messages.Claim,
    point: DuePoint,
    reason: Reason,
    message: str,
) -> RunEvent:
    """No slot ends without a trace, not even one that nobody survives."""
    event = _event(known, point.slot_us, RunState.MISSED, reason, claim.now_us)
    if point.kind in points.RUN_KINDS:
        record = claim.records.get(point.member, _NO_RECORD)
        return msgspec.structs.replace(
            event, message=message, trigger=record.trigger, run_uid=record.run_uid
        )
    return msgspec.structs.replace(event, message=message, settled_us=point.slot_us)


def _event(
    known: definitions.Definition, slot_us: int, state: RunState, reason: str, now_us: int
) -> RunEvent:
    return RunEvent(
        uid=known.uid,
        namespace=known.namespace,
        name=known.name,
        generation=known.generation,
        slot_us=slot_us,
        trigger=TRIGGER_SCHEDULE,
        state=state,
        reason=reason,
        at_us=now_us,
    )


def _opened_event(
    known: definitions.Definition, attempts: tuple[Attempt, ...], now_us: int
) -> RunEvent:
    """The slots of a chain that moves on: no later slot's end speaks for them."""
    oldest, *others = attempts
    return msgspec.structs.replace(
        _event(known, oldest.slot_us, RunState.PENDING, "", now_us),
        trigger=oldest.trigger,
        due_us=oldest.due_us,
        more_us=tuple(attempt.slot_us for attempt in others),
    )


def _missed_event(
    known: definitions.Definition, group: policies.Missed, first_us: int, now_us: int
) -> RunEvent:
    return msgspec.structs.replace(
        _event(known, group.newest_us, RunState.MISSED, group.reason, now_us),
        count=group.count,
        settled_us=group.newest_us,
        since_us=first_us,
    )


def _out_of_runs(
    known: definitions.Definition, skipped: runlimits.Skipped, now_us: int
) -> RunEvent:
    return msgspec.structs.replace(
        _event(known, skipped.newest_us, RunState.SKIPPED, Reason.MAX_RUNS, now_us),
        message="every run that spec.maxRuns allows has started or is being started",
        count=skipped.count,
        settled_us=skipped.newest_us,
        since_us=skipped.oldest_us,
    )


def _completed(known: definitions.Definition, newest_us: int, now_us: int) -> RunEvent:
    return msgspec.structs.replace(
        _event(known, newest_us, RunState.MISSED, Reason.COMPLETED, now_us),
        count=0,
        settled_us=newest_us,
        completed=True,
    )


def _stranger(member: bytes, score: float) -> messages.DeadLetter:
    return messages.DeadLetter(
        member=member,
        entry={
            "reason": Reason.UNSUPPORTED,
            "message": "the member is of no known format",
            "member": member.hex(),
            "score": repr(score),
        },
    )


def _undefined(point: DuePoint) -> messages.DeadLetter:
    return messages.DeadLetter(
        member=point.member,
        entry={
            "schedule_id": point.schedule_id.hex(),
            "slot_us": str(point.slot_us),
            "kind": point.kind.name,
            "reason": Reason.UNSUPPORTED,
            "message": "the definition of its schedule cannot be read by this version",
        },
    )


def _dead(
    claim: messages.Claim,
    point: DuePoint,
    known: definitions.Definition,
    reason: Reason,
    message: str,
) -> messages.DeadLetter:
    return messages.DeadLetter(
        member=point.member,
        entry={
            "namespace": known.namespace,
            "name": known.name,
            "uid": known.uid,
            "slot_us": str(point.slot_us),
            "kind": point.kind.name,
            **records.for_letter(claim.records.get(point.member, _NO_RECORD)),
            "reason": reason,
            "message": message,
        },
    )
