"""The seam between a claimed slot and the thing that happens because of it.

A ``Firing`` is one attempt of one slot; a ``Target`` makes it and answers with an
``runs.outcome.Outcome``. Expected trouble (refused, unreachable, slow, throttled) is an answer,
never an exception; cancellation passes through and leaves nothing open. A target may be fired
twice for one slot, after a crash or a lost reply: ``identity`` and the Job's name make the second
time recognisable to the other side.

Two instants bound an attempt. Nothing is sent after ``not_after_monotonic``, when the claim may
belong to another worker. And it ends, answered or not, at ``ends_by_monotonic`` or after
``limit_seconds`` of its action, whichever is sooner. Deciding whether and when to try again is the
worker's; the limits it goes by are made here, because they are the target's.

Entries of streams in the queue's own Redis are not fired: the target says what they are
(``WorkerTarget.entries``), and the queue appends them with the ends of their points.

A ``Trouble`` says why nothing was delivered, before or instead of an answer. What a server says is
shown through ``excerpt`` alone: one line, bounded, without any value that was read from a Secret.

Receivers recognise a slot by its ids, which are the same for every attempt, by any worker at any
time: ``webhook_id`` is the receiver's idempotency key, ``event_id`` the same fact in a form that
people can read. Receivers store these texts.
"""

from __future__ import annotations

import datetime as dt
import functools
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from duepoint import clock as clocks
from duepoint import errors, telemetry
from duepoint.delayqueue import messages
from duepoint.runs import outcome
from duepoint.schedules import actions, points
from duepoint.schedules.conditions import Reason

#: Jobs and stream entries are retried this long where ``startingDeadlineSeconds`` is unset.
MAX_AGE_US = 86_400_000_000
#: Attempts of a Job or a stream entry are not counted; their age ends them.
_UNCOUNTED = 1_000_000
_FIRST_WAIT_US = 1_000_000
_MOST_WAIT_US = 60_000_000

#: How much of a text is shown, in bytes.
EXCERPT_BYTES = 1024

#: Values shorter than this are no secrets, and replacing them would garble the text.
_SHORTEST_SECRET = 8
_SHORTEST_CUT = 4
_UNPRINTABLE = re.compile(r"[^\x20-\x7e\xa0-\uffff]+")


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
            right for a claim that is not extended; for one that is, the instant up to
            which it will be held, else a 30 s webhook would be cut at the lease's 10 s.
        owner: the set whose member fires; its id is the name then.
        traceparent: W3C context of the attempt's span, to hand on; empty where traces are off.
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
    owner: points.SetIdentity | None = None
    traceparent: str = ""

    @property
    def schedule_id(self) -> str:
        """What ids of events begin with: a Schedule's uid; of a member the id that it has."""
        return self.uid if self.owner is None else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """No answer.

    Attributes:
        code_class: the metric's label in place of ``2xx``.
        final: whether trying again cannot help.
        unsent: nothing was sent because something of ours was missing: tried again, and the
            rule of the webhook, which is about receivers, does not count.
    """

    reason: Reason
    message: str
    code_class: str = "error"
    final: bool = False
    unsent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Firings:
    """What entries of one stream are made from: attempts alike but for these columns.

    ``uids``, ``generations``, ``slots_us`` and, of members of a set, ``names`` belong together row
    by row, and so do ``payloads`` where there are any: an empty one stands for the action's. The
    other fields are those of a ``Firing``.
    """

    action: actions.Action
    namespace: str
    trigger: str
    uids: Sequence[str]
    generations: Sequence[int]
    slots_us: Sequence[int]
    attempt: int = 1
    run_uid: str = ""
    owner: points.SetIdentity | None = None
    names: Sequence[str] = ()
    payloads: Sequence[bytes] = ()

    @property
    def schedule_ids(self) -> Sequence[str]:
        """As ``Firing.schedule_id``, row by row."""
        return self.uids if self.owner is None else self.names

    @classmethod
    def of(cls, firing: Firing) -> Firings:
        """One attempt, as one row."""
        return cls(
            action=firing.action,
            namespace=firing.namespace,
            trigger=firing.trigger,
            uids=(firing.uid,),
            generations=(firing.generation,),
            slots_us=(firing.slot_us,),
            attempt=firing.attempt,
            run_uid=firing.run_uid,
            owner=firing.owner,
            names=(firing.name,),
        )


class Target(Protocol):
    """One kind of effect that a slot can have."""

    async def fire(self, firing: Firing) -> outcome.Outcome:
        """What came of one attempt; raises nothing but CancelledError and bugs."""
        ...

    async def check(self, firing: Firing) -> Trouble | None:
        """What of all that the firing refers to is missing; sends nothing, raises as ``fire``."""
        ...


class WorkerTarget(Target, Protocol):
    """A target some of whose deliveries are entries that the queue appends for it."""

    def appends(self, action: actions.Action) -> bool:
        """Whether ``entries`` is to be asked for this action, and ``fire`` is not."""
        ...

    def entries(self, firings: Firings, members: Sequence[bytes]) -> messages.StreamEntries:
        """What is appended because of these members, one for each row."""
        ...

    def message(self, action: actions.Action) -> str:
        """What the status says of an appended entry."""
        ...


def retry_limits(firing: Firing, policy_deadline_us: int | None) -> outcome.RetryLimits:
    """How often and how long the slot of a firing is tried, by its action as it is now.

    Args:
        policy_deadline_us: due + ``startingDeadlineSeconds``, None where unset. It ends the tries
            of a Job and of a stream entry; a webhook started with its first attempt, and has a
            ``maxAge`` of its own.
    """
    match firing.action.target:
        case actions.WebhookAction(retry=rule):
            return outcome.RetryLimits(
                first_us=rule.initial_backoff_us,
                most_us=rule.max_backoff_us,
                max_attempts=rule.max_attempts,
                give_up_us=firing.due_us + rule.max_age_us,
            )
        case _:
            deadline_us = firing.due_us + MAX_AGE_US
            return outcome.RetryLimits(
                first_us=_FIRST_WAIT_US,
                most_us=_MOST_WAIT_US,
                max_attempts=_UNCOUNTED,
                give_up_us=deadline_us if policy_deadline_us is None else policy_deadline_us,
            )


def seconds_left(firing: Firing, clock: clocks.Clock) -> float:
    """How long an attempt that starts now may take; 0.0 = it must not start."""
    return seconds_left_at(firing, clock.monotonic())


def seconds_left_at(firing: Firing, now: float) -> float:
    """How long an attempt that starts at this monotonic instant may take."""
    if now >= firing.not_after_monotonic:
        return 0.0
    ends_by = firing.ends_by_monotonic
    end = firing.not_after_monotonic if ends_by is None else ends_by
    return max(0.0, min(end - now, firing.action.target.limit_seconds))


def after_us(error: Exception) -> int | None:
    """How long the other side asks to be left alone; None where it does not say."""
    seconds = error.retry_after_seconds if isinstance(error, errors.TryLater) else None
    return None if seconds is None else int(seconds * 1_000_000)


def not_started() -> outcome.Retry:
    """The answer where the claim ran out before anything was sent."""
    return outcome.Retry(
        reason=Reason.NETWORK,
        message="the worker had no time left to begin this attempt; it is tried again",
        started=False,
        counted=False,
    )


#: Values of the metric's label.
_OUTCOMES: dict[type, str] = {
    outcome.Delivered: "delivered",
    outcome.Retry: "retry",
    outcome.Rejected: "rejected",
    outcome.Skip: "skipped",
}


def outcome_name(answer: outcome.Outcome) -> str:
    """``delivered``, ``retry``, ``rejected`` or ``skipped``."""
    return _OUTCOMES[type(answer)]


def count(namespace: str, action: actions.Action, answer: outcome.Outcome, times: int = 1) -> None:
    """Count an outcome of an action of a namespace, so many times."""
    label = telemetry.namespaces.label(namespace)
    telemetry.runs_of(label, action.target.kind, _OUTCOMES[type(answer)]).inc(times)


def count_result(namespace: str, target: actions.Target, result: str, times: int = 1) -> None:
    """Count runs that ended with this result: of a Job, the operator sees its end."""
    label = telemetry.namespaces.label(namespace)
    telemetry.run_results_of(label, target.kind, result).inc(times)


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """Hands each firing to the target of its kind, and counts what came of it.

    Attributes:
        others: targets of further kinds, by the ``kind`` of their actions.
    """

    job: Target
    webhook: Target
    stream: WorkerTarget
    others: Mapping[str, Target] = field(default_factory=dict)

    async def fire(self, firing: Firing) -> outcome.Outcome:
        """What the target of this kind answers; each target gets actions of its kind alone."""
        answer = await self._of_kind(firing).fire(firing)
        count(firing.namespace, firing.action, answer)
        return answer

    async def check(self, firing: Firing) -> Trouble | None:
        """What the target of this kind lacks, if it refers to things that may be missing."""
        if not firing.action.target.needs_secrets:
            return None
        return await self._of_kind(firing).check(firing)

    def _of_kind(self, firing: Firing) -> Target:
        kind = firing.action.target.kind
        known: dict[str, Target] = {
            "job": self.job, "webhook": self.webhook, "stream": self.stream
        }  # fmt: skip
        return known.get(kind) or self.others[kind]

    def appends(self, action: actions.Action) -> bool:
        """Whether the queue appends an entry for this action."""
        return isinstance(action.target, actions.StreamAction) and self.stream.appends(action)

    def entries(self, firings: Firings, members: Sequence[bytes]) -> messages.StreamEntries:
        """What is appended because of these members."""
        return self.stream.entries(firings, members)

    def message(self, action: actions.Action) -> str:
        """What the status says of an appended entry."""
        return self.stream.message(action)


def excerpt(body: bytes, shown: Iterable[str] = (), unspeakable: Iterable[str] = ()) -> str:
    """The start of a text as one readable line, without texts that were sent as secrets.

    Args:
        shown: values that stand in the spec and might be secrets all the same; short ones, which
            would garble the text, are left alone.
        unspeakable: values read from Secrets. Where one too short to be cut out is in the text,
            nothing of the text is kept.
    """
    if not body:
        return ""
    text = body.decode(errors="replace")
    for secret in sorted(unspeakable, key=len, reverse=True):
        if len(secret) < _SHORTEST_CUT and secret and secret in text:
            return "[redacted]"
        if secret:
            text = text.replace(secret, "[redacted]")
    for value in shown:
        if len(value) >= _SHORTEST_SECRET:
            text = text.replace(value, "[redacted]")
    return _UNPRINTABLE.sub(" ", text)[:EXCERPT_BYTES].strip()


# -- how a receiver recognises a slot --------------------------------------------------------------

_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - UTC; its text ends in Z


def webhook_id(uid: str, slot_us: int, run_uid: str = "") -> str:
    """``msg_`` and 32 hex digits: one per (Schedule, slot, ScheduleRun), for all attempts."""
    digest = hashlib.sha256(f"{uid}\n{slot_us}\n{run_uid}".encode()).hexdigest()
    return f"msg_{digest[:32]}"


def event_id(uid: str, slot_us: int, run_uid: str = "") -> str:
    """``<uid>-<slot in seconds>``, with ``.mmm`` off the second and a mark of the run if any."""
    mark = f"-{hashlib.sha256(run_uid.encode()).hexdigest()[:10]}" if run_uid else ""
    return f"{uid}-{seconds_text(slot_us)}{mark}"


def seconds_text(instant_us: int) -> str:
    """Unix seconds, with ``.mmm`` off the second."""
    seconds, rest_us = divmod(instant_us, 1_000_000)
    return f"{seconds}.{rest_us // 1000:03d}" if rest_us else str(seconds)


def instant_text(instant_us: int) -> str:
    """RFC 3339 in UTC, to the second, or to the millisecond where the instant is off it."""
    seconds, rest_us = divmod(instant_us, 1_000_000)
    if rest_us:
        return f"{_second_text(seconds)}.{rest_us // 1000:03d}Z"
    return _second_text(seconds) + "Z"


@functools.lru_cache(maxsize=1024)  # many deliveries share their slot and their second
def _second_text(seconds: int) -> str:
    return (_EPOCH + dt.timedelta(seconds=seconds)).isoformat(timespec="seconds")
