"""Reports of one generation of one Schedule, and plans, refusals and troubles in their words.

A ``Report`` is a full statement: the conditions, what the queue holds now, and how far it moves the
watermark; the reporter turns it into a status. Each function makes one Report. Texts are stable
from one look to the next (no times of now in them), so that an unchanged object is not written
again. Pure.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from duepoint import errors
from duepoint.controller import plan
from duepoint.kube import times
from duepoint.runs.run import RunEvent
from duepoint.schedules import actions, conditions
from duepoint.schedules.conditions import Condition, Reason
from duepoint.schedules.definition import Definition, State
from duepoint.schedules.rule import Policy
from duepoint.schedules.spec import ScheduleSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One generation, looked at.

    Attributes:
        generation: metadata.generation that was looked at.
        is_settled: Ready or Stalled: the generation is accepted or refused. It counts as observed
            either way.
        definition: what the queue holds; None where it holds nothing of this generation.
        target: the target in one line; None leaves the line that is shown.
        settled_us: every slot up to here is none of this generation's; 0 = says nothing.
        timing_hash: of a spec that was looked at and that the queue does not hold; "" = says
            nothing.
        missed, skipped: slots that ended without a run by this very change.
        keeps: the history limits of a spec that is refused, where it says any.
        awaits_check: the conditions hold once a worker has found what the spec refers to; until
            then, what its check says holds instead.
    """

    generation: int
    conditions: tuple[Condition, ...]
    is_settled: bool
    definition: Definition | None = None
    target: str | None = None
    settled_us: int = 0
    timing_hash: str = ""
    missed: int = 0
    skipped: int = 0
    awaits_check: bool = False
    keeps: Policy | None = None


_ARMED = (Reason.ARMED, "the next slot is in the queue")

#: How many slots in a row have to be refused until none is tried any more.
REFUSALS = 3
#: How the message of such a Schedule begins; a later leader knows it by this.
REFUSED = f"spec.jobTemplate: refused at {REFUSALS} slots in a row, not tried before an edit: "


def ready(spec: ScheduleSpec, made: plan.ArmingPlan, *, awaits_check: bool = False) -> Report:
    """The queue holds this generation; with ``awaits_check`` a worker has a word in it first."""
    reason, message = _standing(made.definition, spec.suspend_reason)
    report = _of_plan(spec, made, conditions.ready(reason, message), is_settled=True)
    return dataclasses.replace(report, awaits_check=True) if awaits_check else report


def as_checked(report: Report, check: RunEvent | None) -> Report:
    """A report that awaits a check, with what is known of that check; None = nothing yet."""
    if not report.awaits_check:
        return report
    if check is None or check.generation < report.generation:
        listed = conditions.reconciling(
            Reason.PENDING, "no worker has read the Secrets that the spec refers to yet"
        )
        return dataclasses.replace(report, conditions=listed, is_settled=False)
    if not check.reason:
        return report
    # Also of what only an edit mends: it is Stalled once the queue holds nothing of it.
    listed = conditions.reconciling(known_reason(check.reason, Reason.PENDING), check.message)
    return dataclasses.replace(report, conditions=listed, is_settled=False)


def is_final(check: RunEvent) -> bool:
    """Whether what a worker found can be mended by an edit only."""
    return check.reason == Reason.INVALID_SPEC


def known_reason(text: str, otherwise: Reason) -> Reason:
    """The reason of that text; another version may have reasons that this one does not know."""
    try:
        return Reason(text)
    except ValueError:
        return otherwise


def armed() -> tuple[Condition, ...]:
    """What is said of a Schedule that waits for its next slot."""
    return conditions.ready(*_ARMED)


def dry_run_pending(spec: ScheduleSpec, made: plan.ArmingPlan, message: str) -> Report:
    """The queue holds this generation, and it is unknown yet whether its Jobs can be created."""
    listed = conditions.reconciling(
        Reason.FORBIDDEN, f"the API server gave no verdict on spec.jobTemplate: {message}"
    )
    return _of_plan(spec, made, listed, is_settled=False)


def _of_plan(
    spec: ScheduleSpec, made: plan.ArmingPlan, listed: tuple[Condition, ...], *, is_settled: bool
) -> Report:
    return Report(
        generation=spec.generation,
        conditions=listed,
        is_settled=is_settled,
        definition=made.definition,
        target=spec.action.target.text,
        settled_us=made.definition.not_before_us,
        missed=made.missed,
        skipped=made.skipped,
    )


def invalid(generation: int, error: errors.InvalidSpec) -> Report:
    """Only an edit can mend the spec; the queue holds nothing of it any more."""
    reason = Reason(error.errors[0].reason) if error.errors else Reason.INVALID_SPEC
    return stalled(generation, reason, str(error))


NO_OWN_STREAMS = errors.FieldError(
    reason=Reason.TARGET_UNAVAILABLE, path="spec.stream", message=actions.NO_OWN_STREAMS
)


def too_many_streams(generation: int, namespace: str) -> Report:
    """The namespace has as many streams as it may; one that is deleted makes room."""
    return stalled(generation, Reason.TARGET_UNAVAILABLE, no_room_for_stream(namespace))


def no_room_for_stream(namespace: str) -> str:
    """Why a namespace gets no further stream, and what to write."""
    return (
        f"spec.stream.name: namespace {namespace} has as many streams in Duepoint's own Redis as it"
        " may have; write the name of one of them, name another Redis in connectionSecretRef, or"
        " have a stream deleted that is not used any more"
    )


def refused_again_and_again(generation: int, message: str) -> Report:
    """The API server took the template when asked, and refuses the Jobs of slot after slot."""
    text = message if message.startswith(REFUSED) else REFUSED + message
    return stalled(generation, Reason.INVALID_JOB_TEMPLATE, text)


def stalled(generation: int, reason: Reason, message: str) -> Report:
    """This generation is refused, for a reason that only an edit can mend."""
    return Report(
        generation=generation, conditions=conditions.stalled(reason, message), is_settled=True
    )


def waiting(
    generation: int,
    reason: Reason,
    message: str,
    *,
    settled_us: int = 0,
    timing_hash: str = "",
) -> Report:
    """This generation is not in the queue yet, for a reason that may pass.

    Args:
        settled_us: when it was first seen, where one with another timing was seen and never armed;
            else 0.
        timing_hash: of its timing, where nothing of the object was ever armed; "" = says nothing.
    """
    return Report(
        generation=generation,
        conditions=conditions.reconciling(reason, message),
        is_settled=False,
        settled_us=settled_us,
        timing_hash=timing_hash,
    )


def standing(reason: Reason, known: Definition | None, started: int) -> str:
    """How an armed or completed Schedule stands where nothing is wrong with it."""
    return completion(known, started) if reason in conditions.WITHOUT_SLOTS else _ARMED[1]


def completion(known: Definition | None, started: int) -> str:
    """Why no slot is left after so many started runs."""
    most = None if known is None else known.rule.timing.max_runs
    if most is not None and started >= most:
        runs = "1 run has" if started == 1 else f"{started} runs have"
        return f"{runs} started; spec.maxRuns is {most}"
    if known is not None and known.rule.timing.is_by_hand:
        return "runs only when it is triggered: spec.schedule is @never"
    return "no slot is left"


def reason_without_slots(known: Definition | None) -> Reason:
    """Of Ready, where no slot is left, or none is meant to be."""
    is_by_hand = known is not None and known.rule.timing.is_by_hand
    return Reason.BY_HAND if is_by_hand else Reason.COMPLETED


def _standing(known: Definition, why: str) -> tuple[Reason, str]:
    """Of a Schedule that the queue holds; ``why`` it is suspended, in its author's words."""
    timing = known.rule.timing
    if known.is_complete:
        return reason_without_slots(known), completion(known, known.started)
    if known.state is State.SUSPENDED:
        return Reason.SUSPENDED, _because("spec.suspend is true", why)
    if timing.suspend and timing.suspend_until_us is not None:
        until = times.time_text(timing.suspend_until_us)
        return Reason.SUSPENDED, _because(f"suspended until {until}, slots from then on run", why)
    return _ARMED


def _because(fact: str, why: str) -> str:
    return f"{fact}: {why}" if why else fact
