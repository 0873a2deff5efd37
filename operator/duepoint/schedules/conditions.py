"""The condition types of our objects, and the list of all reasons.

Each reason is defined only here. The condition, the event, the metric label and the log line use
the same word, so that support can search for it. Ready, Reconciling and Stalled follow the rules
of kstatus (sigs.k8s.io/cli-utils, pkg/kstatus). Pure.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


class Reason(enum.StrEnum):
    """Every reason that a user may see; each calls for a different step."""

    # the object is in force
    ARMED = "Armed"
    SUSPENDED = "Suspended"
    COMPLETED = "Completed"
    BY_HAND = "ByHand"
    # it waits
    PENDING = "Pending"
    QUEUE_UNAVAILABLE = "QueueUnavailable"
    API_UNAVAILABLE = "ApiUnavailable"
    SECRET_UNAVAILABLE = "SecretUnavailable"  # noqa: S105 - a reason, not a secret
    SCHEDULE_NOT_FOUND = "ScheduleNotFound"
    INTERNAL_ERROR = "InternalError"
    # it is refused, by us, by this installation or by the API server
    INVALID_SPEC = "InvalidSpec"
    INVALID_JOB_TEMPLATE = "InvalidJobTemplate"
    TARGET_UNAVAILABLE = "TargetUnavailable"
    FORBIDDEN = "Forbidden"
    NAME_CONFLICT = "NameConflict"
    PODS_REFUSED = "PodsRefused"
    OTHER_INSTALL = "OtherInstall"
    # sets only
    ROWS_INVALID = "RowsInvalid"
    MEMBERS_LOST = "MembersLost"
    DELETED = "Deleted"
    # slots that do not run
    CONCURRENCY_LIMIT = "ConcurrencyLimit"
    QUEUE_FULL = "QueueFull"
    REPLACED = "Replaced"
    ENDPOINT_GONE = "EndpointGone"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    CATCH_UP_POLICY = "CatchUpPolicy"
    # runs
    RUNNING = "Running"
    RETRYING = "Retrying"
    SUCCEEDED = "Succeeded"
    RUN_FAILED = "RunFailed"
    REJECTED = "Rejected"
    BLOCKED_ADDRESS = "BlockedAddress"
    NETWORK = "Network"
    CIRCUIT_OPEN = "CircuitOpen"
    RECEIVER_BUSY = "ReceiverBusy"


#: Reasons of a Schedule that is Ready and has no next slot.
WITHOUT_SLOTS = frozenset({Reason.COMPLETED, Reason.BY_HAND})


class ConditionType(enum.StrEnum):
    """Every condition type of a Schedule, a ScheduleRun and a ScheduleSet."""

    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"
    LAST_RUN_SUCCEEDED = "LastRunSucceeded"
    FAILING = "Failing"
    ENDPOINT_GONE = "EndpointGone"
    CIRCUIT_OPEN = "CircuitOpen"
    OVERDUE = "Overdue"
    NAME_CONFLICT = "NameConflict"
    MISSED = "Missed"
    PODS_REFUSED = "PodsRefused"
    # ScheduleRun only
    COMPLETE = "Complete"
    FAILED = "Failed"
    # ScheduleSet only
    SUSPENDED = "Suspended"
    ROWS_INVALID = "RowsInvalid"
    DATA_LOST = "DataLost"
    DELETING = "Deleting"


#: Longest message kept in a condition, in characters.
MESSAGE_LIMIT = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition without its times, which are added when it is written."""

    type: ConditionType
    status: str
    reason: Reason
    message: str = ""


def true(type_: ConditionType, reason: Reason, message: str) -> Condition:
    """Return a condition whose status is True."""
    return Condition(type=type_, status="True", reason=reason, message=message)


def ready(reason: Reason, message: str) -> tuple[Condition, ...]:
    """Return the conditions of an accepted object, armed or with nothing to arm."""
    return (true(ConditionType.READY, reason, message),)


def reconciling(reason: Reason, message: str) -> tuple[Condition, ...]:
    """Return the conditions of a generation that is not ready yet and needs no edit."""
    return (
        Condition(type=ConditionType.READY, status="Unknown", reason=reason, message=message),
        true(ConditionType.RECONCILING, reason, message),
    )


def stalled(reason: Reason, message: str) -> tuple[Condition, ...]:
    """Return the conditions of an object that only an edit can repair."""
    return (
        Condition(type=ConditionType.READY, status="False", reason=reason, message=message),
        true(ConditionType.STALLED, reason, message),
    )


def last_run(*, succeeded: bool, reason: Reason, message: str) -> Condition:
    """Return the condition for the outcome of the newest finished run; it never changes Ready."""
    return Condition(
        type=ConditionType.LAST_RUN_SUCCEEDED,
        status="True" if succeeded else "False",
        reason=reason,
        message=message,
    )


def rendered(
    conditions: Iterable[Condition],
    *,
    generation: int,
    now: str,
    previous: Sequence[Mapping[str, Any]] = (),
) -> list[dict[str, Any]]:
    """Return the list for ``status.conditions``, in a stable order.

    Args:
        generation: metadata.generation that was observed; every condition carries it.
        now: RFC 3339 time of this write.
        previous: the conditions last written; lastTransitionTime moves only when the value does.
    """
    since = {
        (str(old.get("type")), str(old.get("status"))): str(old.get("lastTransitionTime") or now)
        for old in previous
    }
    return [
        {
            "type": condition.type.value,
            "status": condition.status,
            "reason": condition.reason.value,
            "message": condition.message[:MESSAGE_LIMIT],
            "observedGeneration": generation,
            "lastTransitionTime": since.get((condition.type.value, condition.status), now),
        }
        for condition in conditions
    ]
