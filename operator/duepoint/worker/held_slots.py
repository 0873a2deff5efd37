"""On a server that went back: which slots wait, and what becomes of them once they were compared.

A chain that is due by the instant in doubt is moved on to its first slot after it, and a *held*
point stays beside it in the name of the slots in between. Nothing of them is fired or judged before
the leader has compared them with what it knows. A held point that comes back from there is a chain
with an end: its slots are judged as of the instant in doubt, the first at which they could be
looked at. Pure.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import msgspec

from duepoint.delayqueue import messages
from duepoint.runs.run import RunState
from duepoint.schedules import definition as definitions
from duepoint.schedules import points, policies, slots
from duepoint.schedules.conditions import Reason
from duepoint.schedules.points import DuePoint, PointKind
from duepoint.schedules.slots import DueSlot, Slots
from duepoint.worker import closing, runlimits
from duepoint.worker.plan import NO_RECORD, Plan, attempt_of, planned


def hold(
    made: Plan,
    claim: messages.Claim,
    chain: DuePoint,
    known: definitions.Definition,
) -> None:
    """What is due by the instant in doubt waits to be compared; the chain goes on after it."""
    timeline = slots.for_rule(known.rule, identity=known.identity, created_us=known.created_us)
    held = _held(chain, known, timeline, claim.back_us)
    if held.occurrence is not None:
        made.held.append(held.occurrence)
        made.events.append(
            closing.slot_event(
                known,
                held.first_us,
                RunState.PENDING,
                Reason.REDIS_WENT_BACK,
                claim.now_us,
                due_us=held.first_us,
            )
        )
    if held.is_whole:
        whole = points.chain(chain.schedule_id, chain.timing_version, points.HELD_US)
        made.chains.append(whole)
    else:
        made.close_chain(chain, held.following)


def plan(
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
    judged = _judge(point, record, known, timeline)
    decision, skipped = runlimits.within(judged.decision, runs_left)
    within = runlimits.within_share(decision, claim)
    first_us = judged.first_us
    made.events += [
        closing.missed(known, group, first_us, claim.now_us) for group in decision.missed
    ]
    if skipped is not None:
        made.events.append(closing.out_of_runs(known, skipped, claim.now_us))
    if not within.run:
        made.finished.append(point.member)
        if decision.missed and decision.following is None:
            made.events.append(closing.completed(known, decision.newest_us, claim.now_us))
        return
    attempts = tuple(
        attempt_of(known, planned(point, one), one, timeline, following=decision.following)
        for one in within.run
    )
    occurrences = [
        messages.Occurrence(point=one.point, record=messages.OccurrenceRecord(trigger=one.trigger))
        for one in attempts
    ]
    opened = [one.slot_us for one in within.run]
    is_part = len(within.run) < len(decision.run)
    if is_part:
        following_us = decision.run[len(within.run)].slot_us
        rest = msgspec.structs.replace(record, from_us=following_us)
        occurrences.append(messages.Occurrence(point=point, record=rest))
        opened.append(following_us)
    made.attempts.append(attempts)
    made.splits.append(
        messages.Planning(
            chain=point, slots=tuple(occurrences), next_due_us=claim.now_us if is_part else None
        )
    )
    event = closing.opened(known, attempts, claim.now_us)
    made.opened.append(msgspec.structs.replace(event, more_us=tuple(opened[1:])))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """What a chain leaves behind.

    Attributes:
        following: the chain's first slot after the instant in doubt; None where no slot is left.
        is_whole: the chain waits too, because its count of runs went back.
        first_us: the first slot that waits.
    """

    occurrence: messages.Occurrence | None
    following: DueSlot | None
    is_whole: bool
    first_us: int


def _held(chain: DuePoint, known: definitions.Definition, timeline: Slots, back_us: int) -> _Held:
    """The slots of a claimed chain that are due by ``back_us`` wait."""
    first_us = timeline.at_or_before(chain.due_us)
    newest_us = timeline.newest_due(back_us)
    is_whole = known.runs_left is not None
    if first_us is None or newest_us is None or newest_us < first_us:
        following = timeline.next_after(back_us)
        return _Held(occurrence=None, following=following, is_whole=False, first_us=0)
    point = DuePoint(
        schedule_id=chain.schedule_id,
        timing_version=chain.timing_version,
        kind=PointKind.HELD,
        due_us=points.HELD_US,
        slot_us=first_us,
    )
    record = messages.OccurrenceRecord(back_us=back_us, from_us=first_us)
    return _Held(
        occurrence=messages.Occurrence(point=point, record=record, source=chain.member),
        following=timeline.next_after(newest_us),
        is_whole=is_whole,
        first_us=first_us,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """What becomes of the slots of a held point.

    Attributes:
        decision: its ``following`` is no slot of the held point any more.
        first_us: the first slot that was judged.
    """

    decision: policies.Decision
    first_us: int


def _judge(
    point: DuePoint,
    record: messages.OccurrenceRecord,
    known: definitions.Definition,
    timeline: Slots,
) -> _Judged:
    """The slots of a held point that was compared, judged as of the instant in doubt."""
    first_us = record.from_us or point.slot_us
    due = timeline.due_slot(first_us)
    policy = known.rule.policy
    made = policies.decide(timeline, policy, chain_due_us=due.due_us, now_us=record.back_us)
    missed = made.missed
    if missed and record.settled_us >= first_us:  # these have ended once already
        rest = timeline.next_after(record.settled_us)
        missed = ()
        if rest is not None and rest.due_us <= record.back_us:
            of_rest = policies.decide(
                timeline, policy, chain_due_us=rest.due_us, now_us=record.back_us
            )
            missed = of_rest.missed
    run = tuple(one for one in made.run if one.slot_us not in record.ended_us)
    not_missed = set(record.ended_us) - {one.slot_us for one in made.run}
    decision = dataclasses.replace(made, run=run, missed=_without(missed, not_missed))
    return _Judged(decision=decision, first_us=first_us)


def _without(
    missed: tuple[policies.Missed, ...], ended_us: set[int]
) -> tuple[policies.Missed, ...]:
    """Groups of missed slots, oldest first, less those that have ended otherwise."""
    left = []
    for group in missed:
        among = {slot_us for slot_us in ended_us if slot_us <= group.newest_us}
        ended_us = ended_us - among
        if group.count > len(among):
            left.append(dataclasses.replace(group, count=group.count - len(among)))
    return tuple(left)
