"""What to do about each reason, in words for readers with access to one namespace.

One entry for each reason that a slot or a Schedule may show; ``{ns}`` and ``{name}`` are the
Schedule's, ``{at}`` is the slot. The first line is the step that removes the cause. What only the
people who run Duepoint can do says so, and says what to tell them. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from duepoint.schedules.conditions import Reason

#: Causes that are no reason of a status: they follow from several facts.
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

_RUN_IT_NOW = "then run it now: kubectl duepoint trigger {name} -n {ns}"
_OPERATORS = "only the people who run Duepoint can repair this; tell them this line"
_SLOTS_RUN = "nothing else: deliveries continue by themselves"

_ADVICE: dict[str, tuple[str, ...]] = {
    # Ready
    Reason.ARMED: ("nothing",),
    Reason.SUSPENDED: ("kubectl duepoint resume {name} -n {ns}", _RUN_IT_NOW),
    Reason.COMPLETED: ("give it a new time, a later endTime or a higher maxRuns, or delete it",),
    Reason.BY_HAND: ("run it: kubectl duepoint trigger {name} -n {ns}",),
    # Reconciling
    Reason.QUEUE_UNAVAILABLE: (_OPERATORS, "duepoint doctor, with their rights, names the server"),
    Reason.API_UNAVAILABLE: ("wait a minute; if it lasts, tell the people who run the cluster",),
    Reason.DRY_RUN_PENDING: (
        "do what the message says: free the quota, or allow the Job; it is asked again by itself",
    ),
    Reason.INTERNAL_ERROR: ("report it with this message to the people who run Duepoint",),
    Reason.TARGET_UNAVAILABLE: (
        (
            "this installation cannot send to such a target; ask for an image that has the extra"
            " kafka, or use webhook or stream"
        ),
    ),
    Reason.SECRETS_PENDING: ("wait ten seconds; if it lasts, no worker runs: " + _OPERATORS,),
    Reason.MISSING_SECRET: (
        "create or correct what the message names; it is looked at again every 30 s",
    ),
    Reason.SECRET_FORBIDDEN: (
        (
            "run the command named above, or have an admin of {ns} run it; it is looked at again"
            " every 30 s"
        ),
    ),
    # Stalled
    Reason.INVALID_SCHEDULE: ("write what the message says, and apply it",),
    Reason.NEVER_FIRES: ("write a date that comes; duepoint next EXPRESSION shows what it means",),
    Reason.OUT_OF_RANGE: ("write what the message says, and apply it",),
    Reason.UNKNOWN_TIME_ZONE: ("write an IANA name such as Europe/Rome in spec.timeZone",),
    Reason.INVALID_JOB_TEMPLATE: (
        (
            "correct the field below spec.jobTemplate that the message names; duepoint validate"
            " FILE finds most of them before"
        ),
    ),
    Reason.INVALID_WEBHOOK: ("write what the message says, and apply it",),
    Reason.PAYLOAD_TOO_LARGE: ("put a reference to the data in spec.payload, not the data",),
    Reason.OWN_STREAMS_OFF: (
        "name another Redis in spec.stream.connectionSecretRef, or use kafka or webhook",
    ),
    Reason.TOO_MANY_STREAMS: ("write the name of a stream that {ns} has, or delete an unused one",),
    Reason.UNSUPPORTED: (_OPERATORS + ": a worker is older than what wrote this slot",),
    # a run that goes on
    Reason.RUNNING: ("wait; spec.webhook.timeoutSeconds bounds a request",),
    Reason.CREATED: ("wait, or look into it: kubectl duepoint logs {name} -n {ns} -f",),
    Reason.PODS_REFUSED: (
        "do what the message says about the Pod; the Job then continues by itself, or delete it",
    ),
    Reason.CONCURRENCY_QUEUED: ("wait for the former run, or look at it in status.active",),
    Reason.RECEIVER_BUSY: ("find out why the receiver answers slowly; no attempt is used up",),
    # Skipped
    Reason.CONCURRENCY_FORBIDDEN: (
        (
            "shorten the runs, raise maxConcurrency, or write concurrencyPolicy: Queue; a run that"
            " hangs: kubectl delete job NAME -n {ns}"
        ),
        _RUN_IT_NOW,
    ),
    Reason.QUEUE_FULL: ("raise queueLimit or maxConcurrency, or shorten the runs", _RUN_IT_NOW),
    Reason.REPLACED: ("nothing: a newer slot took its place, as concurrencyPolicy: Replace says",),
    Reason.MAX_RUNS: ("raise spec.maxRuns",),
    Reason.ENDPOINT_GONE: (
        "correct the URL of the receiver, which answered 410; each edit of the Schedule counts",
        _RUN_IT_NOW,
    ),
    # Missed
    Reason.DEADLINE_EXCEEDED: (
        (
            "find out what delayed it (the slots before it say); write a longer"
            " startingDeadlineSeconds, or none"
        ),
        _RUN_IT_NOW,
    ),
    Reason.CATCH_UP_POLICY: (
        "nothing: of several late slots catchUpPolicy runs the newest; write All to run each",
        "run them again: kubectl duepoint backfill {name} -n {ns} --from TIME --to TIME",
    ),
    Reason.CATCH_UP_LIMIT: ("raise spec.catchUpLimit", _RUN_IT_NOW),
    Reason.QUOTA_EXCEEDED: ("free or raise the quota: kubectl describe quota -n {ns}", _RUN_IT_NOW),
    Reason.FORBIDDEN: (
        "read the message: rights, Pod Security or an admission webhook refused the object",
        _RUN_IT_NOW,
    ),
    Reason.NAMESPACE_TERMINATING: ("nothing: the namespace is being deleted",),
    Reason.NAME_CONFLICT: ("do what the message says about the Job that has the slot's name",),
    # outcomes
    Reason.SUCCEEDED: ("nothing",),
    Reason.JOB_FAILED: ("kubectl duepoint logs {name} -n {ns}", _RUN_IT_NOW),
    Reason.DELETED: ("nothing, if that was intended", _RUN_IT_NOW),
    Reason.RELEASED: ("nothing, if that was intended", _RUN_IT_NOW),
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
            "check the receiver's name, port, TLS and NetworkPolicies: is it running, and reachable"
            " from Duepoint's workers?"
        ),
    ),
    Reason.TIMEOUT: (
        (
            "no answer: let the receiver answer first and work later, or raise timeoutSeconds; no"
            " connection: check its port, whether it speaks TLS, and NetworkPolicies"
        ),
    ),
    Reason.CIRCUIT_OPEN: ("repair the receiver; the message has its last failure", _SLOTS_RUN),
    Reason.WRONG_TYPE: ("choose another spec.stream.name: that key holds something else",),
    Reason.POISON: ("report it with the worker's log to the people who run Duepoint",),
    # causes that follow from several facts
    NO_OPERATOR: (_OPERATORS + ": the operator's Lease is not renewed",),
    NO_WORKER: (_OPERATORS + ": no worker lives, so nothing starts",),
    CLOCK: (_OPERATORS + ": set that clock",),
    NOT_CLAIMED: ("wait ten seconds; if it lasts: " + _OPERATORS,),
    NOT_OBSERVED: ("wait ten seconds; if it lasts, no operator looks after {ns}: " + _OPERATORS,),
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


def of(cause: str, *, namespace: str, name: str, at: str = "TIME") -> tuple[str, ...]:
    """The steps for a cause; for one of another version its own word, to search for.

    Args:
        at: the slot that is meant, as a command takes it.
    """
    steps = ADVICE.get(cause, (f"search the reference of errors and reasons for {cause}",))
    return tuple(step.format(ns=namespace, name=name, at=at) for step in steps)
