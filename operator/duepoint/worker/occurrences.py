"""Plans a single occurrence: a retry, a planned or waiting slot, a ScheduleRun, a check. Pure."""

from __future__ import annotations

from duepoint.delayqueue import activeruns, messages
from duepoint.schedules import definition as definitions
from duepoint.schedules import points, policies, slots
from duepoint.schedules.conditions import Reason
from duepoint.schedules.points import DuePoint, PointKind
from duepoint.schedules.slots import Slots
from duepoint.worker import plan_events, runlimits
from duepoint.worker.plan import NO_RECORD, TRIGGER_CHECK, Attempt, Plan

_RELEASED = "it had waited for a run to end until concurrencyPolicy was edited"


def plan(
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
        gone = runlimits.Skipped(oldest_us=point.slot_us, newest_us=point.slot_us, count=1)
        made.events.append(plan_events.out_of_runs(known, gone, claim.now_us))
        return
    if (reason := _refused_release(claim, point, known, timeline)) is not None:
        made.finished.append(point.member)
        made.events.append(plan_events.given_up(known, claim, point, reason, _RELEASED))
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
    """Of the newest generation only: whoever stored that one asked for a check of its own."""
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
