"""The diagnosis of a Schedule: its health in one word, and the condition behind it.

``troubles`` orders the conditions that keep runs from succeeding; the operator publishes the worst
as the condition ``Failing``. ``of`` diagnoses from the conditions of a status; the list, ``why``,
``doctor`` and the dashboard all show its result. Pure.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

import msgspec

from duepoint.schedules.conditions import Condition, ConditionType, Reason

#: Causes that no status gives as a reason: they follow from several facts.
NO_OPERATOR = "NoOperator"
NO_WORKER = "NoWorker"
QUEUE_DOWN = "QueueUnavailable"
CLOCK = "WrongClock"
NOT_CLAIMED = "NotClaimed"
NOT_A_SLOT = "NotASlot"
NOT_YET = "NotYet"
BEFORE_CREATION = "BeforeCreation"
OUTSIDE_WINDOW = "OutsideWindow"
NOT_OBSERVED = "NotObserved"
POD_STARTING = "PodNotStarted"
NO_RECORD = "NoRecord"
WELL = "Well"


class ScheduleHealth(enum.StrEnum):
    """The health of a Schedule in one word."""

    #: The spec is refused, or needs something that is missing.
    PROBLEM = "problem"
    #: Its runs fail, are late or do not happen.
    FAILING = "failing"
    #: The newest edit is not in force yet.
    WAITING = "waiting"
    SUSPENDED = "suspended"
    COMPLETED = "completed"
    OK = "ok"


#: The health of Schedules that need attention.
TROUBLED = frozenset({ScheduleHealth.PROBLEM, ScheduleHealth.FAILING, ScheduleHealth.WAITING})

#: Conditions that say that runs are in trouble, the worst first: lasting causes before passing
#: ones. ``Failing`` repeats the worst of the others; without another one it says that runs fail.
_TROUBLES = (
    ConditionType.ENDPOINT_GONE,
    ConditionType.PODS_REFUSED,
    ConditionType.NAME_CONFLICT,
    ConditionType.CIRCUIT_OPEN,
    ConditionType.OVERDUE,
    ConditionType.MISSED,
    ConditionType.FAILING,
)
#: Reasons to wait that pass without anybody's help; then the generation is in force.
_PASSING = frozenset({Reason.PENDING, Reason.QUEUE_UNAVAILABLE, Reason.API_UNAVAILABLE})


class Shown(msgspec.Struct, frozen=True, rename="camel"):
    """A condition of a published status, with the generation that it is about."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    observed_generation: int = -1
    last_transition_time: str | None = ""


class Row(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A slot, or several that ended alike, in a published status."""

    scheduled_time: str = ""
    since: str = ""
    count: int = 1
    trigger: str = ""
    start_time: str = ""
    finish_time: str = ""
    outcome: str = ""
    reason: str = ""
    message: str = ""
    job_name: str = ""
    http_status: int | None = None
    attempts: int = 0


ConditionT = TypeVar("ConditionT", Condition, Shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The health of a Schedule and its cause.

    Attributes:
        about: the condition that says why; None if there is nothing to explain.
    """

    health: ScheduleHealth
    about: Shown | None = None

    @property
    def is_troubled(self) -> bool:
        return self.health in TROUBLED


UNSEEN = Shown(reason=NOT_OBSERVED, message="no operator has processed it yet")


def troubles(conditions: Iterable[ConditionT]) -> list[ConditionT]:
    """Return the conditions that are True and say that runs are in trouble, the worst first."""
    by_type = {condition.type: condition for condition in conditions if condition.status == "True"}
    found = [by_type[type_] for type_ in _TROUBLES if type_ in by_type]
    return found[:-1] if found[1:] and found[-1].type == ConditionType.FAILING else found


def of(conditions: Iterable[Shown], *, is_current: bool, is_suspended: bool) -> Diagnosis:
    """Return the diagnosis of a Schedule.

    Args:
        conditions: those of its status.
        is_current: an operator has processed its newest generation.
        is_suspended: no slot runs until it resumes.
    """
    by_type = {one.type: one for one in conditions}
    active = {type_: one for type_, one in by_type.items() if one.status == "True"}
    ready = by_type.get(ConditionType.READY)
    if (stalled := active.get(ConditionType.STALLED)) is not None:
        return Diagnosis(health=ScheduleHealth.PROBLEM, about=stalled)
    if (waits := active.get(ConditionType.RECONCILING)) is not None:
        health = ScheduleHealth.WAITING if waits.reason in _PASSING else ScheduleHealth.PROBLEM
        return Diagnosis(health=health, about=waits)
    if not is_current or ready is None:
        return Diagnosis(health=ScheduleHealth.WAITING, about=UNSEEN)
    if is_suspended:
        return Diagnosis(health=ScheduleHealth.SUSPENDED)
    if found := troubles(active.values()):
        return Diagnosis(health=ScheduleHealth.FAILING, about=found[0])
    is_over = ready.reason == Reason.COMPLETED
    return Diagnosis(health=ScheduleHealth.COMPLETED if is_over else ScheduleHealth.OK)


# -- what to do about each reason ------------------------------------------------------------------

_RUN_IT_NOW = "then run it now: kubectl duepoint trigger {name} -n {ns}"
_OPERATORS = "only the people who run Duepoint can repair this; send them this line"
_SLOTS_RUN = "nothing else: deliveries continue by themselves"

_ADVICE: dict[str, tuple[str, ...]] = {
    # the object is in force
    Reason.ARMED: ("nothing",),
    Reason.SUSPENDED: ("kubectl duepoint resume {name} -n {ns}", _RUN_IT_NOW),
    Reason.COMPLETED: ("give it a new time, a later endTime or a higher maxRuns, or delete it",),
    Reason.BY_HAND: ("run it: kubectl duepoint trigger {name} -n {ns}",),
    # it waits
    Reason.PENDING: ("wait ten seconds; if it lasts, no worker runs: " + _OPERATORS,),
    Reason.QUEUE_UNAVAILABLE: (_OPERATORS, "duepoint doctor, with their rights, names the server"),
    Reason.API_UNAVAILABLE: ("wait a minute; if it lasts, tell the people who run the cluster",),
    Reason.SECRET_UNAVAILABLE: (
        (
            "create or correct what the message names, or run the command in it, or have an admin"
            " of {ns} do so; Duepoint reads it again every 30 s"
        ),
    ),
    Reason.INTERNAL_ERROR: (
        "report it with this message and the worker's log to the people who run Duepoint",
    ),
    # it is refused
    Reason.INVALID_SPEC: (
        "correct what the message says, and apply it; duepoint validate FILE finds most of it",
    ),
    Reason.INVALID_JOB_TEMPLATE: (
        (
            "correct the field below spec.jobTemplate that the message names; duepoint validate"
            " FILE finds most of them before"
        ),
    ),
    Reason.TARGET_UNAVAILABLE: (
        (
            "choose another target, stream or connectionSecretRef as the message says, or ask for"
            " an image that has the extra kafka"
        ),
    ),
    Reason.FORBIDDEN: (
        (
            "do what the message says: a quota (kubectl describe quota -n {ns}), rights, Pod"
            " Security or an admission webhook refused the object; Duepoint retries by itself"
        ),
        _RUN_IT_NOW,
    ),
    Reason.NAME_CONFLICT: ("do what the message says about the Job that has the slot's name",),
    Reason.PODS_REFUSED: (
        "do what the message says about the Pod; the Job then continues by itself, or delete it",
    ),
    Reason.DELETED: ("nothing, if that was intended", _RUN_IT_NOW),
    # slots that do not run
    Reason.CONCURRENCY_LIMIT: (
        (
            "shorten the runs, raise maxConcurrency, or write concurrencyPolicy: Queue; a run that"
            " hangs: kubectl delete job NAME -n {ns}"
        ),
        _RUN_IT_NOW,
    ),
    Reason.QUEUE_FULL: ("raise queueLimit or maxConcurrency, or shorten the runs", _RUN_IT_NOW),
    Reason.REPLACED: ("nothing: a newer slot took its place, as concurrencyPolicy: Replace says",),
    Reason.ENDPOINT_GONE: (
        "correct the URL of the receiver, which answered 410; any edit resumes the Schedule",
        _RUN_IT_NOW,
    ),
    Reason.DEADLINE_EXCEEDED: (
        (
            "find out what delayed it (see the slots before it); set a longer"
            " startingDeadlineSeconds, or none"
        ),
        _RUN_IT_NOW,
    ),
    Reason.CATCH_UP_POLICY: (
        (
            "nothing: of several late slots catchUpPolicy Latest runs the newest, and All as many"
            " as catchUpLimit; write All or a higher limit to run more"
        ),
        "run them again: kubectl duepoint backfill {name} -n {ns} --from TIME --to TIME",
    ),
    # runs
    Reason.RUNNING: (
        (
            "wait; spec.webhook.timeoutSeconds bounds a request, and kubectl duepoint logs {name}"
            " -n {ns} -f shows a Job's log"
        ),
    ),
    Reason.SUCCEEDED: ("nothing",),
    Reason.RUN_FAILED: ("kubectl duepoint logs {name} -n {ns}", _RUN_IT_NOW),
    Reason.REJECTED: (
        (
            "look at the receiver's log for the status code in the message; duepoint webhook test"
            " -f FILE shows its answer"
        ),
        _RUN_IT_NOW,
    ),
    Reason.BLOCKED_ADDRESS: (
        "write another address, or ask the people who run Duepoint for the setting in the message",
    ),
    Reason.NETWORK: (
        (
            "no answer: let the receiver answer first and work later, or raise timeoutSeconds; no"
            " connection: check its name and port, TLS and NetworkPolicies: is it running, and"
            " reachable from Duepoint's workers?"
        ),
    ),
    Reason.CIRCUIT_OPEN: ("repair the receiver; the message has its last failure", _SLOTS_RUN),
    Reason.RECEIVER_BUSY: ("find out why the receiver answers slowly; no attempt is used up",),
    # causes that follow from several facts
    NO_OPERATOR: (_OPERATORS + ": the operator's Lease is not renewed",),
    NO_WORKER: (_OPERATORS + ": no worker is running, so nothing starts",),
    CLOCK: (_OPERATORS + ": set that clock",),
    NOT_CLAIMED: ("wait ten seconds; if it lasts: " + _OPERATORS,),
    NOT_OBSERVED: ("wait ten seconds; if it lasts, no operator serves {ns}: " + _OPERATORS,),
    NOT_A_SLOT: (
        "compare the expression with the time zone: kubectl duepoint describe {name} -n {ns}",
    ),
    NOT_YET: ("wait",),
    BEFORE_CREATION: ("run it by hand: kubectl duepoint trigger {name} -n {ns} --at {at}",),
    OUTSIDE_WINDOW: ("move spec.startTime or spec.endTime",),
    POD_STARTING: ("kubectl describe pod -n {ns} shows what it waits for",),
    NO_RECORD: (
        "look at kubectl get events -n {ns}, and at duepoint dlq list -n {ns}",
        "run it by hand: kubectl duepoint trigger {name} -n {ns} --at {at}",
    ),
    WELL: ("nothing",),
}
ADVICE: Mapping[str, tuple[str, ...]] = MappingProxyType(_ADVICE)


def steps_for(cause: str, *, namespace: str, name: str, at: str = "TIME") -> tuple[str, ...]:
    """Return what to do about a cause; for one of another version, where to look its word up.

    Args:
        at: the slot in question, in the form that a command accepts.
    """
    steps = ADVICE.get(cause, (f"search the reference of errors and reasons for {cause}",))
    return tuple(step.format(ns=namespace, name=name, at=at) for step in steps)
