"""Plans points one by one: which attempts to make, and which points end without one. Pure.

Definitions and the claim come in, a Plan goes out. Catch-up and deadline judge a chain as of its
first claim, however often it was taken over since: the slots that a former owner may have started
are then those that run, and no others. ``grouping`` decides the same for ordinary points in fewer
steps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping

import msgspec

from duepoint.delayqueue import activeruns, messages
from duepoint.runs.run import RunState
from duepoint.schedules import definition as definitions
from duepoint.schedules import points, policies, slots
from duepoint.schedules.conditions import Reason
from duepoint.schedules.points import DuePoint, PointKind
from duepoint.schedules.slots import DueSlot, Slots
from duepoint.worker import held_slots, occurrences, plan_events, runlimits
from duepoint.worker.plan import NO_RECORD, TRIGGER_CATCH_UP, TRIGGER_SCHEDULE, Attempt, Plan

Definitions = Mapping[points.ScheduleId, definitions.Definition]

_NO_LIMITS: runlimits.RunsLeft = {}

#: Slots that overdue chains of one claim become, all together: a claim is extended and given back
#: by one script, which takes the server some 3 us for each of its points.
MOST_PLANNED = 500


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
    for member, score in claim.strangers:
        made.dead.append(plan_events.stranger(member, score))
    for point in sorted(claim.points, key=_turn_us):
        known = found.get(point.schedule_id)
        if known is None and point.schedule_id in unreadable:
            made.dead.append(plan_events.undefined(point))
            continue
        try:
            left = runs_left.get(point.schedule_id)
            made.add(_plan_point(claim, point, known, attempt_limit_us, left))
        except Exception as trouble:  # noqa: BLE001 - one point's trouble is not its neighbours'
            made.unplanned.append((point, trouble))
            if claim.reclaimed >= messages.POISON_RECLAIMS and known is not None:
                made.dead.append(
                    plan_events.dead(claim, point, known, Reason.POISON, repr(trouble))
                )
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
        _hold(made, claim, point, known)
    elif point.kind is PointKind.HELD:
        _plan_held(made, claim, point, known, runs_left=runs_left)
    elif point.kind is PointKind.CHAIN:
        limit_us = attempt_limit_us(known)
        _plan_chain(made, claim, point, known, limit_us=limit_us, runs_left=runs_left)
    else:
        occurrences.plan(made, claim, point, known)
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
        event = plan_events.slot_event(
            known, point.slot_us, RunState.SKIPPED, Reason.SUSPENDED, now_us
        )
        message = "it had not started when its Schedule was suspended"
        made.events.append(msgspec.structs.replace(event, message=message))
        return
    made.events.append(
        plan_events.slot_event(
            known, point.slot_us, RunState.SUPERSEDED, Reason.STALE_VERSION, now_us
        )
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
    letter = plan_events.dead(claim, point, known, Reason.POISON, reason)
    if point.kind is not PointKind.CHECK:
        made.events.append(plan_events.given_up(known, claim, point, Reason.POISON, reason))
    if point.kind is not PointKind.CHAIN:
        made.dead.append(letter)
        return
    timeline = slots.for_rule(known.rule, identity=known.identity, created_us=known.created_us)
    made.dead.append(dataclasses.replace(letter, member=b""))
    _close_chain(made, point, timeline.next_after(point.slot_us))


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
            _close_chain(made, chain, following)
            if following is None:
                made.events.append(plan_events.completed(known, chain.due_us, claim.now_us))
            return
        chain = dataclasses.replace(chain, due_us=following.due_us)
    first_us = timeline.at_or_before(chain.due_us) or 0
    if known.runs_left == 0:
        _close_chain(made, chain, None)
        made.events.append(plan_events.completed(known, first_us, claim.now_us))
        return
    decided = policies.decide(
        timeline, known.rule.policy, chain_due_us=chain.due_us, now_us=claim.judged_us
    )
    decision, skipped = runlimits.within(decided, runs_left)
    decision = _within_share(decision, max(1, MOST_PLANNED // len(claim.points)))
    missed = [plan_events.missed(known, group, first_us, claim.now_us) for group in decision.missed]
    if skipped is not None:
        missed.append(plan_events.out_of_runs(known, skipped, claim.now_us))
    is_last = runs_left == 1  # the chain has nothing else to hand over while this one is tried
    match decision.run:
        case ():
            _close_chain(made, chain, decision.following)
            made.events.extend(missed)
            if missed and decision.following is None:
                made.events.append(plan_events.completed(known, decision.newest_us, claim.now_us))
        case (only,) if (
            not missed
            and not _is_judged(known)
            and (is_last or _may_hold(decision.following, claim.now_us, limit_us))
        ):
            attempt = _attempt(known, chain, only, timeline, following=decision.following)
            made.attempts.append((attempt,))
        case _:
            made.events.extend(missed)
            _split(made, chain, known, timeline, decision)
            made.opened.append(plan_events.opened(known, made.attempts[-1], claim.now_us))


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


def _close_chain(made: Plan, chain: DuePoint, following: DueSlot | None) -> None:
    if following is None:
        made.finished.append(chain.member)
        made.ended.append(chain.schedule_id)
    else:
        made.chains.append(points.chain(chain.schedule_id, chain.timing_version, following.due_us))


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
        _attempt(known, _planned(chain, one), one, timeline, following=following, eager=alone)
        for one in decision.run
    )
    planned = tuple(
        messages.Occurrence(
            point=attempt.point, record=messages.OccurrenceRecord(trigger=attempt.trigger)
        )
        for attempt in attempts
    )
    made.attempts.append(attempts)
    made.splits.append(
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
    made: Plan,
    claim: messages.Claim,
    chain: DuePoint,
    known: definitions.Definition,
) -> None:
    """What is due by the instant in doubt waits to be compared; the chain goes on after it."""
    timeline = slots.for_rule(known.rule, identity=known.identity, created_us=known.created_us)
    held = held_slots.hold(chain, known, timeline, claim.back_us)
    if held.occurrence is not None:
        made.held.append(held.occurrence)
        event = plan_events.slot_event(
            known, held.first_us, RunState.PENDING, Reason.REDIS_WENT_BACK, claim.now_us
        )
        made.events.append(msgspec.structs.replace(event, due_us=held.first_us))
    if held.is_whole:
        whole = points.chain(chain.schedule_id, chain.timing_version, points.HELD_US)
        made.chains.append(whole)
    else:
        _close_chain(made, chain, held.following)


def _plan_held(
    made: Plan,
    claim: messages.Claim,
    point: DuePoint,
    known: definitions.Definition,
    *,
    runs_left: int | None,
) -> None:
    """Slots that were compared and have not ended: as a chain, but with an end."""
    record = claim.records.get(point.member, NO_RECORD)
    timeline = slots.for_rule(known.rule, identity=known.identity, created_us=known.created_us)
    judged = held_slots.judge(point, record, known, timeline)
    decision, skipped = runlimits.within(judged.decision, runs_left)
    within = _within_share(decision, max(1, MOST_PLANNED // len(claim.points)))
    first_us = judged.first_us
    made.events += [
        plan_events.missed(known, group, first_us, claim.now_us) for group in decision.missed
    ]
    if skipped is not None:
        made.events.append(plan_events.out_of_runs(known, skipped, claim.now_us))
    if not within.run:
        made.finished.append(point.member)
        if decision.missed and decision.following is None:
            made.events.append(plan_events.completed(known, decision.newest_us, claim.now_us))
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
    made.attempts.append(attempts)
    made.splits.append(
        messages.Planning(
            chain=point, slots=tuple(planned), next_due_us=claim.now_us if is_part else None
        )
    )
    event = plan_events.opened(known, attempts, claim.now_us)
    made.opened.append(msgspec.structs.replace(event, more_us=tuple(opened[1:])))


def _give_up(
    made: Plan,
    claim: messages.Claim,
    point: DuePoint,
    known: definitions.Definition,
    message: str,
) -> None:
    made.dead.append(plan_events.dead(claim, point, known, Reason.UNSUPPORTED, message))
    if point.kind is not PointKind.CHECK:
        made.events.append(plan_events.given_up(known, claim, point, Reason.UNSUPPORTED, message))
