"""The seam between a claimed slot and the thing that happens because of it.

A ``Firing`` is one attempt of one slot; a ``Target`` makes it and answers with an
``runs.outcome.Outcome``. Expected trouble (refused, unreachable, slow, throttled) is an answer,
never an exception; cancellation passes through and leaves nothing open. A target may be fired
twice for one slot, after a crash or a lost reply: ``identity`` and the Job's name make the second
time recognisable to the other side.

Two instants bound an attempt. Nothing is sent after ``not_after_monotonic``, when the claim may
belong to another worker. And it ends, answered or not, at ``ends_by_monotonic`` or after
``attempt_limit_seconds``, whichever is sooner. Deciding whether and when to try again is the
worker's; the limits it goes by are made here, because they are the target's.

Entries of streams in the queue's own Redis are not fired: an ``Appender`` says what they are, and
the queue appends them with the ends of their points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from duepoint import clock as clocks
from duepoint import errors, telemetry
from duepoint.delayqueue import messages
from duepoint.runs import outcome
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason

#: How long a POST of a Job may take, and an XADD; the webhook's limit stands in its spec.
JOB_LIMIT_SECONDS = 10.0
STREAM_LIMIT_SECONDS = 5.0
#: A record's, with the first connection to the brokers.
KAFKA_LIMIT_SECONDS = 10.0

#: Jobs and stream entries are retried this long where ``startingDeadlineSeconds`` is unset.
MAX_AGE_US = 86_400_000_000
#: Attempts of a Job or a stream entry are not counted; their age ends them.
_UNCOUNTED = 1_000_000
_FIRST_WAIT_US = 1_000_000
_MOST_WAIT_US = 60_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """One attempt of one slot.

    Attributes:
        action: what to do, with the payload.
        namespace, name, uid, generation: of the Schedule.
        slot_us: the slot, in microseconds since the epoch.
        due_us: slot + jitter; ages and deadlines count from here.
        previous_us: the slot before this one; None where there is none.
        trigger: ``Schedule``, ``CatchUp``, ``Manual`` or ``Backfill``.
        attempt: 1 for the first.
        run_uid: uid of the ScheduleRun; empty for regular slots.
        time_zone: IANA name of the Schedule's zone.
        not_after_monotonic: nothing is sent from this instant on: the claim's ``held_until``.
        ends_by_monotonic: the attempt is over by then. None = ``not_after_monotonic``, which is
            right for a claim that nobody extends; who keeps extending it gives the instant up to
            which it will be held, else a 30 s webhook would be cut at the lease's 10 s.
    """

    action: actions.Action
    namespace: str
    name: str
    uid: str
    generation: int
    slot_us: int
    due_us: int
    previous_us: int | None
    trigger: str
    attempt: int
    run_uid: str
    time_zone: str
    not_after_monotonic: float
    ends_by_monotonic: float | None = None


class Target(Protocol):
    """One kind of effect that a slot can have."""

    async def fire(self, firing: Firing) -> outcome.Outcome:
        """What came of one attempt; raises nothing but CancelledError and bugs."""
        ...


class Checked(Protocol):
    """What a check found: why a Schedule cannot be delivered now.

    ``final`` = only an edit, or the operator's settings, can mend it.
    """

    @property
    def reason(self) -> Reason: ...

    @property
    def message(self) -> str: ...

    @property
    def final(self) -> bool: ...


class Checker(Protocol):
    """A target that can tell beforehand whether what it needs is there."""

    async def check(self, firing: Firing) -> Checked | None:
        """None = all is there. Sends nothing; raises as ``Target.fire``."""
        ...


class CheckedTarget(Target, Checker, Protocol):
    """A target that can be fired and checked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Firings:
    """What entries of one stream are made from: attempts alike but for these columns.

    ``uids``, ``generations`` and ``slots_us`` belong together row by row; the other fields are
    those of a ``Firing``.
    """

    action: actions.Action
    namespace: str
    trigger: str
    uids: Sequence[str]
    generations: Sequence[int]
    slots_us: Sequence[int]
    attempt: int = 1
    run_uid: str = ""


class Appender(Protocol):
    """A target some of whose deliveries are entries that the queue appends for it."""

    def appends(self, action: actions.Action) -> bool:
        """Whether ``entries`` is to be asked for this action, and ``fire`` is not."""
        ...

    def entries(self, firings: Firings, members: Sequence[bytes]) -> messages.Entries:
        """What is appended because of these members, one for each row."""
        ...

    def message(self, action: actions.Action) -> str:
        """What the status says of an appended entry."""
        ...


class StreamTarget(CheckedTarget, Appender, Protocol):
    """The target of streams: entries in our own Redis, requests to another one."""


class WorkerTarget(CheckedTarget, Appender, Protocol):
    """Everything that a worker can fire."""

    def count(self, action: actions.Action, answer: outcome.Outcome, times: int) -> None:
        """Count what came of entries, so many times."""
        ...


def attempt_limit_seconds(action: actions.Action) -> float:
    """How long one attempt may take."""
    match action.target:
        case actions.WebhookAction(timeout_seconds=seconds):
            return float(seconds)
        case actions.JobAction():
            return JOB_LIMIT_SECONDS
        case actions.StreamAction():
            return STREAM_LIMIT_SECONDS
        case actions.KafkaAction():
            return KAFKA_LIMIT_SECONDS


def retry_limits(
    action: actions.Action, firing: Firing, policy_deadline_us: int | None
) -> outcome.RetryLimits:
    """How often and how long the slot of a firing is tried.

    Args:
        action: the action, as it is now; an edit of the retry rule counts at once.
        firing: the attempt just made; its due is what ages count from.
        policy_deadline_us: due + ``startingDeadlineSeconds``, None where unset. It ends the tries
            of a Job and of a stream entry; a webhook started with its first attempt, and has a
            ``maxAge`` of its own.
    """
    match action.target:
        case actions.WebhookAction(retry=rule):
            return outcome.RetryLimits(
                first_us=rule.initial_backoff_us,
                most_us=rule.max_backoff_us,
                max_attempts=rule.max_attempts,
                give_up_us=firing.due_us + rule.max_age_us,
            )
        case actions.JobAction() | actions.StreamAction() | actions.KafkaAction():
            deadline_us = firing.due_us + MAX_AGE_US
            return outcome.RetryLimits(
                first_us=_FIRST_WAIT_US,
                most_us=_MOST_WAIT_US,
                max_attempts=_UNCOUNTED,
                give_up_us=deadline_us if policy_deadline_us is None else policy_deadline_us,
            )


def seconds_left(firing: Firing, clock: clocks.Clock) -> float:
    """How long an attempt that starts now may take; 0.0 = it must not start."""
    now = clock.monotonic()
    if now >= firing.not_after_monotonic:
        return 0.0
    ends_by = firing.ends_by_monotonic
    end = firing.not_after_monotonic if ends_by is None else ends_by
    return max(0.0, min(end - now, attempt_limit_seconds(firing.action)))


def not_started() -> outcome.Retry:
    """The answer where the claim ran out before anything was sent."""
    return outcome.Retry(
        reason=Reason.TIMEOUT,
        message="the worker had no time left to begin this attempt; it is tried again",
        started=False,
        counted=False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """Hands each firing to the target of its kind, and counts what came of it."""

    job: Target
    webhook: CheckedTarget
    stream: StreamTarget
    kafka: CheckedTarget | None = None

    async def fire(self, firing: Firing) -> outcome.Outcome:
        """What the target of this kind answers."""
        kind, target = self._of(firing.action)
        answer = await target.fire(firing)
        telemetry.runs_total.labels(kind, type(answer).__name__.lower()).inc()
        return answer

    async def check(self, firing: Firing) -> Checked | None:
        """What the target of this kind lacks, if it refers to things that may be missing."""
        if not actions.needs_secrets(firing.action.target):
            return None
        match firing.action.target:
            case actions.JobAction():
                return None
            case actions.WebhookAction():
                return await self.webhook.check(firing)
            case actions.StreamAction():
                return await self.stream.check(firing)
            case actions.KafkaAction():
                return await self._kafka().check(firing)

    def appends(self, action: actions.Action) -> bool:
        """Whether the queue appends an entry for this action."""
        return isinstance(action.target, actions.StreamAction) and self.stream.appends(action)

    def entries(self, firings: Firings, members: Sequence[bytes]) -> messages.Entries:
        """What is appended because of these members."""
        return self.stream.entries(firings, members)

    def message(self, action: actions.Action) -> str:
        """What the status says of an appended entry."""
        return self.stream.message(action)

    def count(self, action: actions.Action, answer: outcome.Outcome, times: int) -> None:
        """Count what came of entries, so many times."""
        kind, _ = self._of(action)
        telemetry.runs_total.labels(kind, type(answer).__name__.lower()).inc(times)

    def _of(self, action: actions.Action) -> tuple[str, Target]:
        match action.target:
            case actions.JobAction():
                return "job", self.job
            case actions.WebhookAction():
                return "webhook", self.webhook
            case actions.StreamAction():
                return "stream", self.stream
            case actions.KafkaAction():
                return "kafka", self._kafka()

    def _kafka(self) -> CheckedTarget:
        if self.kafka is None:
            raise errors.Bug("this worker has no Kafka target")
        return self.kafka
