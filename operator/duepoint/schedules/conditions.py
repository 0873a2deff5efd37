"""Conditions and the one list of reasons.

A reason is spelled here and nowhere else; the condition, the event, the metric label and the log
line all use the same word, so that support can search for it. The rules of Ready, Reconciling and
Stalled are kstatus's (sigs.k8s.io/cli-utils, pkg/kstatus). Pure.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


class Reason(enum.StrEnum):
    """Every reason that a user may meet."""

    # Ready
    ARMED = "Armed"
    SUSPENDED = "Suspended"
    COMPLETED = "Completed"
    BY_HAND = "ByHand"
    # Reconciling
    QUEUE_UNAVAILABLE = "QueueUnavailable"
    API_UNAVAILABLE = "ApiUnavailable"
    MISSING_SECRET = "MissingSecret"  # noqa: S105 - a reason, not a secret
    SECRET_FORBIDDEN = "SecretForbidden"  # noqa: S105 - a reason, not a secret
    SECRETS_PENDING = "SecretsPending"
    TARGET_UNAVAILABLE = "TargetUnavailable"
    DRY_RUN_PENDING = "DryRunPending"
    INTERNAL_ERROR = "InternalError"
    # Reconciling, of a ScheduleRun
    RUNNING = "Running"
    RETRYING = "Retrying"
    SCHEDULE_NOT_FOUND = "ScheduleNotFound"
    SCHEDULE_NOT_READY = "ScheduleNotReady"
    # Reconciling, and more, of a ScheduleSet
    ROWS_PENDING = "RowsPending"
    ROWS_INVALID = "RowsInvalid"
    CONFIG_MAP_MISSING = "ConfigMapMissing"
    FORMER_SET = "FormerSet"
    MEMBERS_LOST = "MembersLost"
    DELETING = "Deleting"
    # Stalled
    INVALID_SCHEDULE = "InvalidSchedule"
    NEVER_FIRES = "NeverFires"
    OUT_OF_RANGE = "OutOfRange"
    UNKNOWN_TIME_ZONE = "UnknownTimeZone"
    INVALID_JOB_TEMPLATE = "InvalidJobTemplate"
    INVALID_WEBHOOK = "InvalidWebhook"
    PAYLOAD_TOO_LARGE = "PayloadTooLarge"
    UNSUPPORTED = "Unsupported"
    OWN_STREAMS_OFF = "OwnStreamsOff"
    TOO_MANY_STREAMS = "TooManyStreams"
    # Stalled, of a ScheduleRun
    INVALID_SPEC = "InvalidSpec"
    TOO_MANY_SLOTS = "TooManySlots"
    RUN_FAILED = "RunFailed"
    SCHEDULE_DELETED = "ScheduleDeleted"
    # waiting, of a slot of a ScheduleRun
    CONCURRENCY_QUEUED = "ConcurrencyQueued"
    # Skipped
    CONCURRENCY_FORBIDDEN = "ConcurrencyForbidden"
    QUEUE_FULL = "QueueFull"
    REPLACED = "Replaced"
    MAX_RUNS = "MaxRuns"
    ENDPOINT_GONE = "EndpointGone"
    # Missed
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    CATCH_UP_POLICY = "CatchUpPolicy"
    CATCH_UP_LIMIT = "CatchUpLimit"
    QUOTA_EXCEEDED = "QuotaExceeded"
    FORBIDDEN = "Forbidden"
    NAMESPACE_TERMINATING = "NamespaceTerminating"
    NAME_CONFLICT = "NameConflict"
    # Pending
    # Superseded
    STALE_VERSION = "StaleVersion"
    DELETED = "Deleted"
    RELEASED = "Released"
    # outcomes of a run
    SUCCEEDED = "Succeeded"
    CREATED = "Created"
    REJECTED = "Rejected"
    JOB_FAILED = "JobFailed"
    BLOCKED_ADDRESS = "BlockedAddress"
    NETWORK = "Network"
    TIMEOUT = "Timeout"
    CIRCUIT_OPEN = "CircuitOpen"
    RECEIVER_BUSY = "ReceiverBusy"
    WRONG_TYPE = "WrongType"
    PODS_REFUSED = "PodsRefused"
    # of an installation
    OTHER_INSTALL = "OtherInstall"
    POISON = "Poison"


#: Of a Schedule that is Ready and has no next slot.
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
    # of a ScheduleRun only
    COMPLETE = "Complete"
    FAILED = "Failed"
    # of a ScheduleSet only
    SUSPENDED = "Suspended"
    ROWS_INVALID = "RowsInvalid"
    DATA_LOST = "DataLost"
    DELETING = "Deleting"


#: Longest message kept in a condition, in characters.
MESSAGE_LIMIT = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition as a decision names it; times are added when it is written."""

    type: ConditionType
    status: str
    reason: Reason
    message: str = ""


def ready(reason: Reason, message: str) -> tuple[Condition, ...]:
    """Accepted, and armed or with nothing to arm."""
    return (Condition(type=ConditionType.READY, status="True", reason=reason, message=message),)


def reconciling(reason: Reason, message: str) -> tuple[Condition, ...]:
    """This generation is not ready to run yet, and no edit is needed."""
    return (
        Condition(type=ConditionType.READY, status="Unknown", reason=reason, message=message),
        Condition(type=ConditionType.RECONCILING, status="True", reason=reason, message=message),
    )


def stalled(reason: Reason, message: str) -> tuple[Condition, ...]:
    """Only an edit can mend this."""
    return (
        Condition(type=ConditionType.READY, status="False", reason=reason, message=message),
        Condition(type=ConditionType.STALLED, status="True", reason=reason, message=message),
    )


def last_run(*, succeeded: bool, reason: Reason, message: str) -> Condition:
    """The outcome of the newest finished run; it never changes Ready."""
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
    """The list for ``status.conditions``, in a stable order.

    Args:
        generation: metadata.generation that was looked at; it goes on every condition.
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
