"""Plans points one by one: which attempts to make, and which points end without one. Pure.

Definitions and the claim come in, a Plan goes out. Catch-up and deadline judge a chain as of its
first claim, however often it was taken over since: the slots that a former owner may have started
are then those that run, and no others. ``grouping`` decides the same for ordinary points in fewer
steps; slots that wait because the server went back are planned in ``held_slots``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping

from duepoint.delayqueue import activeruns, messages
from duepoint.runs.run import RunState
from duepoint.schedules import definition as definitions
from duepoint.schedules import points, policies, slots
from duepoint.schedules.conditions import Reason
from duepoint.schedules.points import DuePoint, PointKind
from duepoint.schedules.slots import DueSlot, Slots
from duepoint.worker import closing, held_slots, runlimits
from duepoint.worker.plan import NO_RECORD, TRIGGER_CHECK, Attempt, Plan, attempt_of, planned

Definitions = Mapping[points.ScheduleId, definitions.Definition]

_NO_LIMITS: runlimits.RunsLeft = {}
_RELEASED = "it had waited for a run to end until concurrencyPolicy was edited"


def plan(
    claim: messages.Claim,
    found: Definitions,
    *,
    attempt_limit_us: Callable[[definitions.Definition], int],
    unreadable: Collection[points.ScheduleId] = (),
    runs_left: runlimits.RunsLeft = _NO_LIMITS,
) -> Plan:
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
    made = Plan()
    for member, score in claim.unknown_members:
        made.dead.append(closing.stranger(member, score))
    for point in sorted(claim.points, key=_turn_us):
        known = found.get(point.schedule_id)
        if known is None and point.schedule_id in unreadable:
            made.dead.append(closing.undefined(point))
            continue
        try:
            left = runs_left.get(point.schedule_id)
            made.add(_plan_point(claim, point, known, attempt_limit_us, left))
        except Exception as trouble:  # noqa: BLE001 - one point's trouble is not its neighbours'
            made.unplanned.append((point, trouble))
            if claim.reclaimed >= messages.POISON_RECLAIMS and known is not None:
                made.dead.append(closing.dead(claim, point, known, Reason.POISON, repr(trouble)))
    return made


def _turn_us(point: DuePoint) -> int:
    """Oldest slot first; what a ScheduleRun wants goes in the order in which it was asked for."""
    return point.due_us if point.kind in points.RUN_KINDS else point.slot_us


def _plan_point(
    claim: messages.Claim,
    point: DuePoint,
    known: definitions.Definition | None,
    attempt_limit_us: Callable[[definitions.Definition], int],
    runs_left: int | None,
) -> Plan:
    made = Plan()
    if claim.is_poison:
        _bury(made, claim, point, known)
    elif known is not None and point.member in claim.unreadable:
        _give_up(made, claim, point, known, "the record of its attempts cannot be read")
    elif known is None or _is_superseded(point, known):
        made.finished.append(point.member)
        _supersede(made, point, known, claim.now_us)
    elif point.kind is PointKind.CHAIN and point.due_us <= claim.back_us:
        held_slots.hold(made, claim, point, known)
    elif point.kind is PointKind.HELD:
        held_slots.plan(made, claim, point, known, runs_left=runs_left)
    elif point.kind is PointKind.CHAIN:
        limit_us = attempt_limit_us(known)
        _plan_chain(made, claim, point, known, limit_us=limit_us, runs_left=runs_left)
    else:
        _plan_occurrence(made, claim, point, known)
    return made


def _is_superseded(point: DuePoint, known: definitions.Definition) -> bool:
    if point.kind not in points.TIMED_KINDS:
        return False
    return point.timing_version != known.timing_version or (
        point.kind is PointKind.CHAIN and known.state is not definitions.State.ARMED
    )


def _supersede(
    made: Plan, point: DuePoint, known: definitions.Definition | None, now_us: int
) -> None:
    """Slots of an old timing end as Superseded; those of a deleted schedule have no reader.

    What stood ready or waited when its schedule was suspended is skipped, like what comes after.
    """
    if known is None:
        return
    if known.rule.timing.suspend and point.kind is not PointKind.CHAIN:
        made.events.append(
            closing.slot_event(
                known,
                point.slot_us,
                RunState.SKIPPED,
                Reason.SUSPENDED,
                now_us,
                message="it had not started when its Schedule was suspended",
            )
        )
        return
    made.events.append(
        closing.slot_event(known, point.slot_us, RunState.SUPERSEDED, Reason.STALE_VERSION, now_us)
    )


def _bury(
    made: Plan,
    claim: messages.Claim,
    point: DuePoint,
    known: definitions.Definition | None,
) -> None:
    """Give up on a slot that no worker survives; its schedule goes on with the next one."""
    if known is None:
        made.finished.append(point.member)
        return
    reason = f"claimed alone {claim.alone} times and never settled"
    letter = closing.dead(claim, point, known, Reason.POISON, reason)
    if point.kind is not PointKind.CHECK:
        made.events.append(closing.given_up(known, claim, point, Reason.POISON, reason))
    if point.kind is not PointKind.CHAIN:
        made.dead.append(letter)
        return
    timeline = slots.for_rule(known.rule, identity=known.identity, created_us=known.created_us)
    made.dead.append(dataclasses.replace(letter, member=b""))
    made.close_chain(point, timeline.next_after(point.slot_us))


# -- chains ----------------------------------------------------------------------------------


def _plan_chain(
    made: Plan,
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
            made.close_chain(chain, following)
            if following is None:
                made.events.append(closing.completed(known, chain.due_us, claim.now_us))
            return
        chain = dataclasses.replace(chain, due_us=following.due_us)
    first_us = timeline.at_or_before(chain.due_us) or 0
    if known.runs_left == 0:
        made.close_chain(chain, None)
        made.events.append(closing.completed(known, first_us, claim.now_us))
        return
    decided = policies.decide(
        timeline, known.rule.policy, chain_due_us=chain.due_us, now_us=claim.judged_us
    )
    decision, skipped = runlimits.within(decided, runs_left)
    decision = runlimits.within_share(decision, claim)
    missed = [closing.missed(known, group, first_us, claim.now_us) for group in decision.missed]
    if skipped is not None:
        missed.append(closing.out_of_runs(known, skipped, claim.now_us))
    is_last = runs_left == 1  # the chain has nothing else to hand over while this one is tried
    match decision.run:
        case ():
            made.close_chain(chain, decision.following)
            made.events.extend(missed)
            if missed and decision.following is None:
                made.events.append(closing.completed(known, decision.newest_us, claim.now_us))
        case (only,) if (
            not missed
            and not _is_judged(known)
            and (is_last or _may_hold(decision.following, claim.now_us, limit_us))
        ):
            attempt = attempt_of(known, chain, only, timeline, following=decision.following)
            made.attempts.append((attempt,))
        case _:
            made.events.extend(missed)
            _split(made, chain, known, timeline, decision)
            made.opened.append(closing.opened(known, made.attempts[-1], claim.now_us))


def _has_slot(timeline: Slots, due_us: int) -> bool:
    """Whether a chain's due is that of a slot.

    It is not where it was computed with other zone data: that slot never was, and those before it
    that only the present data name are in the past.
    """
    slot_us = timeline.at_or_before(due_us)
    return slot_us is not None and timeline.due_slot(slot_us).due_us == due_us


def _is_judged(known: definitions.Definition) -> bool:
    """Whether a policy decides if a slot starts: only a slot of its own can wait."""
    return known.rule.policy.concurrency != activeruns.ALLOW


def _may_hold(following: DueSlot | None, now_us: int, limit_us: int) -> bool:
    return following is None or following.due_us >= now_us + limit_us


def _split(
    made: Plan,
    chain: DuePoint,
    known: definitions.Definition,
    timeline: Slots,
    decision: policies.Decision,
) -> None:
    following = decision.following
    alone = len(decision.run) == 1 and not decision.missed and not _is_judged(known)
    attempts = tuple(
        attempt_of(known, planned(chain, one), one, timeline, following=following, eager=alone)
        for one in decision.run
    )
    occurrences = tuple(
        messages.Occurrence(
            point=attempt.point, record=messages.OccurrenceRecord(trigger=attempt.trigger)
        )
        for attempt in attempts
    )
    made.attempts.append(attempts)
    made.splits.append(
        messages.Planning(
            chain=chain,
            slots=occurrences,
            next_due_us=None if following is None else following.due_us,
        )
    )


def _give_up(
    made: Plan,
    claim: messages.Claim,
    point: DuePoint,
    known: definitions.Definition,
    message: str,
) -> None:
    made.dead.append(closing.dead(claim, point, known, Reason.UNSUPPORTED, message))
    if point.kind is not PointKind.CHECK:
        made.events.append(closing.given_up(known, claim, point, Reason.UNSUPPORTED, message))


# -- occurrences ------------------------------------------------------------------------------


def _plan_occurrence(
    made: Plan,
    claim: messages.Claim,
    point: DuePoint,
    known: definitions.Definition,
) -> None:
    if point.kind is PointKind.CHECK:
        _plan_check(made, claim, point, known)
        return
    timeline = slots.for_rule(known.rule, identity=known.identity, created_us=known.created_us)
    record = claim.records.get(point.member, NO_RECORD)
    if _has_no_run(point, known, record):
        made.finished.append(point.member)
        gone = runlimits.SkippedRuns(oldest_us=point.slot_us, newest_us=point.slot_us, count=1)
        made.events.append(closing.out_of_runs(known, gone, claim.now_us))
        return
    if (reason := _refused_release(claim, point, known, timeline)) is not None:
        made.finished.append(point.member)
        made.events.append(closing.given_up(known, claim, point, reason, _RELEASED))
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
    made.attempts.append((attempt,))


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


def _plan_check(
    made: Plan,
    claim: messages.Claim,
    point: DuePoint,
    known: definitions.Definition,
) -> None:
    """Of the newest generation only: with that one a check of its own was stored."""
    if point.slot_us < known.generation:
        made.finished.append(point.member)
        return
    record = claim.records.get(point.member, NO_RECORD)
    made.checks.append(
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
