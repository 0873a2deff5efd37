"""The interface between the worker and its targets: attempts, outcomes and ids for deduplication.

A ``Firing`` is one attempt of one slot. A ``Target`` makes the attempt and returns a
``outcome.Outcome``. Expected trouble (refused, unreachable, slow, throttled) is an outcome,
never an exception. Cancellation passes through and leaves nothing open. After a crash or a lost
reply a target may be fired twice for one slot: the ids below and the Job's name let the other side
recognise the duplicate.

Two instants bound an attempt. The target sends nothing after ``not_after_monotonic``, when the
lease may belong to another worker. The attempt ends, answered or not, at ``ends_by_monotonic`` or
after its action's ``limit_seconds``, whichever is sooner. The worker decides whether and when to
retry, by ``next_try``.

Entries for streams in the queue's own Redis are not fired. The target composes them
(``EntryTarget.entries``), and the queue appends them when it settles their points.

A ``Trouble`` says why nothing was delivered, before or instead of an answer. Text from a server is
shown only through ``excerpt``: one bounded line, without any value that was read from a Secret.

Receivers recognise a slot by its ids, which are the same for every attempt by any worker.
``webhook_id`` is the receiver's idempotency key; ``event_id`` identifies the same run in a form
that people can read. Receivers store both.
"""

from __future__ import annotations

import datetime as dt
import functools
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from duepoint import clock as clocks
from duepoint import errors, telemetry
from duepoint.delayqueue import messages
from duepoint.kube import jobbuilder
from duepoint.schedules import actions, points
from duepoint.schedules.conditions import Reason
from duepoint.targets import outcome

#: How Jobs and stream entries are retried: attempts are not counted, their age ends them, unless
#: ``startingDeadlineSeconds`` is set.
UNCOUNTED = actions.RetryRule(
    max_attempts=1_000_000,
    initial_backoff_us=1_000_000,
    max_backoff_us=60_000_000,
    max_age_us=86_400_000_000,
)
#: The shortest wait before a retry.
LEAST_WAIT_US = 100_000

#: Longest excerpt of a server's text that is shown.
EXCERPT_BYTES = 1024

#: Shorter values are hardly secrets, and redacting them would garble the text.
_SHORTEST_SECRET = 8
_SHORTEST_CUT = 4
_UNPRINTABLE = re.compile(r"[^\x20-\x7e\xa0-\uffff]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing(jobbuilder.SlotFacts):
    """One attempt of one slot: its facts, and what only an attempt has.

    Attributes:
        action: what to do, with the payload.
        generation: of the Schedule.
        due_us: slot + jitter; ages and deadlines count from here.
        attempt: 1 for the first.
        not_after_monotonic: the target sends nothing from here on: the claim's ``held_until``.
        ends_by_monotonic: when the attempt must be over. It may be later than that instant, because
            the lease is extended: otherwise a 30 s webhook would be cut off at the lease's 10 s.
    """

    action: actions.Action
    generation: int
    due_us: int
    attempt: int
    not_after_monotonic: float
    ends_by_monotonic: float

    @property
    def schedule_id(self) -> str:
        """The first part of event ids: a Schedule's uid, or a member's id."""
        return self.uid if self.owner is None else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why nothing was delivered, when there is no answer to judge.

    Attributes:
        code_class: the metric's label in place of ``2xx``.
        final: whether a retry cannot help.
        unsent: nothing was sent because something on our side was missing. The worker retries
            this whatever the webhook's ``retryOn`` says, because that rule is about receivers.
    """

    reason: Reason
    message: str
    code_class: str = "error"
    final: bool = False
    unsent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Firings:
    """Attempts that become entries of one stream: columns, and the facts that all share.

    ``uids``, ``generations``, ``slots_us`` and, for members of a set, ``names`` belong together row
    by row. So do ``payloads`` if there are any: an empty payload stands for the action's. The
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
        """``Firing.schedule_id`` of each row."""
        return self.uids if self.owner is None else self.names

    @classmethod
    def of(cls, firing: Firing) -> Firings:
        """Return a single attempt as one row."""
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
        """Make one attempt and return its outcome; raises only CancelledError and bugs."""
        ...

    async def check(self, firing: Firing) -> Trouble | None:
        """Return the trouble with what the firing refers to; sends nothing, raises as ``fire``."""
        ...


class EntryTarget(Target, Protocol):
    """A target that leaves some of its deliveries to the queue, which appends them to a stream."""

    def appends(self, action: actions.Action) -> bool:
        """Whether the caller must use ``entries`` for this action instead of ``fire``."""
        ...

    def entries(self, firings: Firings, members: Sequence[bytes]) -> messages.StreamEntries:
        """Return the entries to append for these queue members, one for each row."""
        ...

    def message(self, action: actions.Action) -> str:
        """Return the status message for an appended entry."""
        ...


def give_up_us(firing: Firing, policy_deadline_us: int | None) -> int:
    """Return the instant when attempts of the slot may no longer start.

    Args:
        policy_deadline_us: due + ``startingDeadlineSeconds``, None if unset. It ends the retries
            of a Job and of a stream entry. A webhook has started with its first attempt and has
            its own ``maxAge``.
    """
    if isinstance(firing.action.target, actions.WebhookAction):
        return firing.due_us + firing.action.target.retry.max_age_us
    if policy_deadline_us is not None:
        return policy_deadline_us
    return firing.due_us + UNCOUNTED.max_age_us


def next_try(
    firing: Firing,
    policy_deadline_us: int | None,
    *,
    attempts_made: int,
    now_us: int,
    fraction: float,
    tried_for_us: int,
    after_us: int | None = None,
) -> int | None:
    """Return when to try again after a failure; None = give up.

    The backoff has full jitter over a doubling ceiling (M. Brooker, "Exponential Backoff And
    Jitter"), so that many deliveries to a receiver that has just recovered do not arrive together.

    Args:
        policy_deadline_us: as for ``give_up_us``.
        attempts_made: attempts so far.
        fraction: uniform in [0, 1).
        tried_for_us: the time since the first attempt. No wait but the first is longer than this,
            so a delivery that an outage held up is retried within as long again as the outage
            lasted. The waits of a webhook, which its spec sets, double without this limit.
        after_us: the wait that the receiver asked for, as a minimum.
    """
    action, rule = firing.action.target, UNCOUNTED
    if isinstance(action, actions.WebhookAction):
        rule = action.retry
    if attempts_made >= rule.max_attempts:
        return None
    first_us = rule.initial_backoff_us
    ceiling_us = min(rule.max_backoff_us, first_us << min(max(attempts_made - 1, 0), 40))
    if rule is UNCOUNTED:  # jitter makes many waits short: attempts say little about time
        ceiling_us = min(ceiling_us, max(first_us, tried_for_us))
    due_us = now_us + max(int(ceiling_us * fraction), LEAST_WAIT_US, after_us or 0)
    return due_us if due_us < give_up_us(firing, policy_deadline_us) else None


def seconds_left(firing: Firing, clock: clocks.Clock) -> float:
    """Return how long an attempt that starts now may take; 0.0 = it must not start."""
    now = clock.monotonic()
    if now >= firing.not_after_monotonic:
        return 0.0
    return max(0.0, min(firing.ends_by_monotonic - now, firing.action.target.limit_seconds))


def after_us(error: Exception) -> int | None:
    """Return how long the other side asks us to wait; None if it does not say."""
    seconds = error.retry_after_seconds if isinstance(error, errors.TryLater) else None
    return None if seconds is None else int(seconds * 1_000_000)


def not_started() -> outcome.Retry:
    """Return the outcome of an attempt whose lease ran out before anything was sent."""
    return outcome.Retry(
        reason=Reason.NETWORK,
        message="the worker had no time left to begin this attempt; it is tried again",
        started=False,
        counted=False,
    )


def count(namespace: str, action: actions.Action, answer: outcome.Outcome, times: int = 1) -> None:
    """Add ``times`` to the metric for this outcome of the action."""
    label = telemetry.namespace_label(namespace)
    telemetry.runs_of(label, action.target.kind, answer.label).inc(times)


def count_result(namespace: str, target: actions.Target, result: str, times: int = 1) -> None:
    """Count runs that ended with this result. The operator calls it for Jobs: it sees them end."""
    label = telemetry.namespace_label(namespace)
    telemetry.run_results_of(label, target.kind, result).inc(times)


def excerpt(body: bytes, shown: Iterable[str] = (), unspeakable: Iterable[str] = ()) -> str:
    """Return the start of a text as one readable line, with secrets redacted.

    Args:
        shown: values from the spec, which might be secrets all the same. Short ones stay, because
            redacting them would garble the text.
        unspeakable: values from Secrets. If the text contains one that is too short to cut out,
            the whole text is redacted.
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
    """Return ``msg_`` and 32 hex digits, one for all attempts of (Schedule, slot, ScheduleRun)."""
    digest = hashlib.sha256(f"{uid}\n{slot_us}\n{run_uid}".encode()).hexdigest()
    return f"msg_{digest[:32]}"


def event_id(uid: str, slot_us: int, run_uid: str = "") -> str:
    """Return ``<uid>-<slot in seconds>``, with ``.mmm`` if needed and a suffix for a run."""
    suffix = f"-{hashlib.sha256(run_uid.encode()).hexdigest()[:10]}" if run_uid else ""
    return f"{uid}-{seconds_text(slot_us)}{suffix}"


def seconds_text(instant_us: int) -> str:
    """Return Unix seconds, with ``.mmm`` if the instant is not a whole second."""
    seconds, rest_us = divmod(instant_us, 1_000_000)
    return f"{seconds}.{rest_us // 1000:03d}" if rest_us else str(seconds)


def instant_text(instant_us: int) -> str:
    """Return RFC 3339 in UTC, with milliseconds if the instant is not a whole second."""
    seconds, rest_us = divmod(instant_us, 1_000_000)
    if rest_us:
        return f"{_second_text(seconds)}.{rest_us // 1000:03d}Z"
    return _second_text(seconds) + "Z"


@functools.lru_cache(maxsize=1024)  # many deliveries share their slot and their second
def _second_text(seconds: int) -> str:
    return (_EPOCH + dt.timedelta(seconds=seconds)).isoformat(timespec="seconds")
