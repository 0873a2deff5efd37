"""The reports of the reconciler about one generation of a Schedule, with their conditions.

A ``Report`` is complete: it has the conditions, the definition in the queue, and the new watermark;
the reporter turns it into a status.
Texts do not contain the current time, so that the status of an unchanged object is not written
again. Pure.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from duepoint import errors
from duepoint.controller import plan
from duepoint.kube import errors as kube_errors
from duepoint.kube import times
from duepoint.runs.run import RunEvent
from duepoint.schedules import actions, conditions
from duepoint.schedules.conditions import Condition, Reason
from duepoint.schedules.definition import Definition, State
from duepoint.schedules.spec import ScheduleSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of reconciling one generation.

    Attributes:
        generation: its metadata.generation.
        made: what the queue holds; None = the queue has no definition of this generation.
        target: the target in one line; None leaves the published line.
        settled_us: no slot up to here belongs to this generation; 0 = unchanged.
        awaits_check: whether the conditions hold only once a worker has found the Secrets of the
            spec; until then, the conditions of its check hold instead.
    """

    generation: int
    conditions: tuple[Condition, ...]
    made: plan.ArmingPlan | None = None
    target: str | None = None
    settled_us: int = 0
    awaits_check: bool = False

    @property
    def is_settled(self) -> bool:
        """Whether the generation is accepted (Ready) or refused (Stalled)."""
        return self.conditions[0].status != "Unknown"

    @property
    def definition(self) -> Definition | None:
        """The definition in the queue."""
        return None if self.made is None else self.made.definition


ARMED = (Reason.ARMED, "the next slot is in the queue")

#: After this many refused slots in a row, none is tried any more.
REFUSALS = 3
#: The beginning of the message about that; a later leader recognises it by this.
REFUSED = f"spec.jobTemplate: refused at {REFUSALS} slots in a row, not tried before an edit: "


def stored(
    spec: ScheduleSpec, made: plan.ArmingPlan, *, is_new: bool = True, pending: str = ""
) -> Report:
    """Return the report of a stored generation.

    Args:
        is_new: whether it was not accepted before, so that a worker checks its Secrets first.
        pending: why its Jobs have no dry-run verdict yet; "" = they have one, or need none.
    """
    listed = conditions.ready(*_reason_and_message(made.definition, spec.suspend_reason))
    if pending:
        message = f"the API server gave no verdict on spec.jobTemplate: {pending}"
        listed = conditions.reconciling(Reason.FORBIDDEN, message)
    return Report(
        generation=spec.generation,
        conditions=listed,
        made=made,
        target=spec.action.target.text,
        settled_us=made.definition.not_before_us,
        awaits_check=is_new and spec.action.target.needs_secrets and not pending,
    )


def as_checked(report: Report, check: RunEvent | None) -> Report:
    """Return a report with the result of its check, if it awaits one; None = no result yet."""
    if not report.awaits_check:
        return report
    if check is None or check.generation < report.generation:
        unread = "no worker has read the Secrets that the spec refers to yet"
        return dataclasses.replace(
            report, conditions=conditions.reconciling(Reason.PENDING, unread)
        )
    if not check.reason:
        return report
    # Even if only an edit can mend it: it becomes Stalled once it has left the queue.
    reason = known_reason(check.reason, Reason.PENDING)
    return dataclasses.replace(report, conditions=conditions.reconciling(reason, check.message))


def known_reason(text: str, otherwise: Reason) -> Reason:
    """Return the Reason of a text, or ``otherwise``: another version may have other reasons."""
    try:
        return Reason(text)
    except ValueError:
        return otherwise


def invalid(generation: int, error: errors.InvalidSpec) -> Report:
    """Return the report of an invalid spec, which has left the queue until an edit mends it."""
    reason = Reason(error.errors[0].reason) if error.errors else Reason.INVALID_SPEC
    return stalled(generation, reason, str(error))


NO_OWN_STREAMS = errors.FieldError(
    reason=Reason.TARGET_UNAVAILABLE, path="spec.stream", message=actions.NO_OWN_STREAMS
)


def not_applied(trouble: Exception) -> tuple[Condition, ...]:
    """Return the conditions of a generation that this error has kept from being applied."""
    if isinstance(trouble, kube_errors.ApiError):  # first: one that is away is a TryLater, too
        return conditions.reconciling(Reason.API_UNAVAILABLE, str(trouble))
    if isinstance(trouble, errors.TryLater):
        return conditions.reconciling(Reason.QUEUE_UNAVAILABLE, f"Redis cannot be asked: {trouble}")
    return conditions.reconciling(
        Reason.INTERNAL_ERROR,
        f"Duepoint could not apply this generation ({type(trouble).__name__}); this is a bug, "
        "please report it with the operator's log; it is tried again",
    )


def stalled(generation: int, reason: Reason, message: str) -> Report:
    """Return the report of a generation that is refused until an edit."""
    return Report(generation=generation, conditions=conditions.stalled(reason, message))


def completion(known: Definition | None, started: int) -> str:
    """Return why no slot is left after ``started`` runs."""
    most = None if known is None else known.rule.timing.max_runs
    if most is not None and started >= most:
        runs = "1 run has" if started == 1 else f"{started} runs have"
        return f"{runs} started; spec.maxRuns is {most}"
    if known is not None and known.rule.timing.is_by_hand:
        return "runs only when it is triggered: spec.schedule is @never"
    return "no slot is left"


def reason_without_slots(known: Definition | None) -> Reason:
    """Return the reason of Ready if no slot is left, or none is meant to be."""
    is_by_hand = known is not None and known.rule.timing.is_by_hand
    return Reason.BY_HAND if is_by_hand else Reason.COMPLETED


def _reason_and_message(known: Definition, why: str) -> tuple[Reason, str]:
    """Return reason and message for a stored Schedule; ``why`` is its author's suspend reason."""
    timing = known.rule.timing
    if known.is_complete:
        return reason_without_slots(known), completion(known, known.started)
    if known.state is State.SUSPENDED:
        return Reason.SUSPENDED, _because("spec.suspend is true", why)
    if timing.suspend and timing.suspend_until_us is not None:
        until = times.time_text(timing.suspend_until_us)
        return Reason.SUSPENDED, _because(f"suspended until {until}, slots from then on run", why)
    return ARMED


def _because(fact: str, why: str) -> str:
    return f"{fact}: {why}" if why else fact
