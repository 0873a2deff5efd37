"""Records the outcome of an attempt: its metrics, log line, span, and part of the settlement.

The span of an attempt lasts from before the request to its answer. The span of its slot, the parent
of all its attempts, is written when the worker is done with the slot: delivered, given up or
skipped; for a Job that is its creation. Both carry the same names and the same slot. Entries of
streams in Duepoint's own Redis are appended by hundreds in one script and have no spans.

Attributes have OpenTelemetry's names if it defines one; ours begin with ``duepoint.``.
"""

from __future__ import annotations

import collections
import dataclasses
import random
from collections.abc import Callable, Iterable, Sequence

from duepoint import telemetry
from duepoint.clock import Clock
from duepoint.delayqueue.messages import Settlement
from duepoint.kube import times
from duepoint.runs import run
from duepoint.runs.run import RunEvent, RunState
from duepoint.schedules import actions, points
from duepoint.targets import outcome as outcomes
from duepoint.targets import target as targets
from duepoint.tracing import spans
from duepoint.worker import endings
from duepoint.worker.plan import Attempt
from duepoint.worker.settler import Settler

#: Seconds between two log lines of one schedule and reason.
WINDOW_SECONDS = 60.0
#: Most pairs of schedule and reason in a namespace with lines of their own; the others share one.
MOST_OF_NAMESPACE = 100
#: The name under which these others are logged; no Schedule or member has it.
OTHERS = "(others)"

#: Namespace, schedule and reason.
_Line = tuple[str, str, str]


class Results:
    """Records the outcomes of one worker's attempts.

    Args:
        dice: uniform in [0, 1), the jitter of retries.
        traces: None if traces are off.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        dice: Callable[[], float] = random.random,
        traces: AttemptTraces | None = None,
    ) -> None:
        self._clock = clock
        self._dice = dice
        self._traces = traces
        self._failures = FailureLog()

    def record(
        self,
        settler: Settler,
        attempt: Attempt,
        firing: targets.Firing,
        answer: outcomes.Outcome,
        started_us: int,
    ) -> Settlement:
        """Count, log and trace the answer; return its settlement."""
        self.observe(attempt, answer)
        settlement = self.settlement(settler, attempt, firing, answer, started_us)
        if self._traces is not None:
            self._traces.end(
                firing,
                answer,
                started_us=started_us,
                ended_us=settler.now_us(),
                first_try_us=attempt.first_try_us,
                is_over=not settlement.occurrences,
            )
        count_ended(settlement.events)
        for event in settlement.events:
            if isinstance(event, RunEvent) and event.state in run.ENDED:
                targets.count_result(event.namespace, firing.action.target, event.state)
        return settlement

    def settlement(
        self,
        settler: Settler,
        attempt: Attempt,
        firing: targets.Firing,
        answer: outcomes.Outcome,
        started_us: int,
    ) -> Settlement:
        """Return the settlement of the answer."""
        claim = settler.claim
        tried = endings.Tried(
            attempt=attempt,
            firing=firing,
            outcome=answer,
            started_us=started_us,
            now_us=settler.now_us(),
            fraction=self._dice(),
            # Another worker that held these points may have sent requests.
            had_owner=claim.reclaimed > 0 or claim.first_us not in (0, claim.now_us),
        )
        return endings.settlement(tried)

    def observe(self, attempt: Attempt, answer: outcomes.Outcome) -> None:
        """Count how late the slot was, that it has started, and log a failure."""
        if isinstance(answer, outcomes.Delivered):
            # A slot that waited for a run to end is not late: its policy asks for that.
            if attempt.number == 1 and attempt.point.kind is not points.PointKind.QUEUED:
                lateness_us = max(0, answer.accepted_us - attempt.due_us)
                telemetry.start_lateness_seconds.observe(lateness_us / 1_000_000)
        else:
            self._failures.record(
                attempt.definition.name,
                now=self._clock.monotonic(),
                namespace=attempt.definition.namespace,
                reason=answer.reason,
                slot=times.time_text(attempt.slot_us),
                attempt=attempt.number,
                error=answer.message,
            )
        if attempt.first_try_us == 0 and (isinstance(answer, outcomes.Delivered) or answer.started):
            _count_started(attempt.definition.namespace)

    def report_bug(self, firing: targets.Firing, bug: Exception) -> None:
        """Log that a target raised, which it must not; rate-limited for each schedule."""
        if self._failures.record(
            firing.name,
            now=self._clock.monotonic(),
            namespace=firing.namespace,
            reason=type(bug).__name__,
        ):
            telemetry.logger.exception(
                "target failed", namespace=firing.namespace, schedule=firing.name
            )


def observe_batch(namespace: str, accepted_us: int, slots_us: Sequence[int]) -> None:
    """Count slots of a namespace that started together, and how late they were."""
    late: collections.Counter[float] = collections.Counter()
    for slot_us, count in collections.Counter(slots_us).items():
        late[max(0, accepted_us - slot_us) / 1_000_000] += count
    telemetry.start_lateness_seconds.observe_many(late)
    _count_started(namespace, len(slots_us))


def _count_started(namespace: str, times: int = 1) -> None:
    telemetry.slots_of(telemetry.namespace_label(namespace), "Started", "").inc(times)


def count_ended(events: Iterable[RunEvent | run.Together]) -> None:
    """Count slots that ended without a run."""
    for event in events:
        if isinstance(event, run.Together):
            continue
        if event.state in (RunState.MISSED, RunState.SKIPPED) and event.count:
            label = telemetry.namespace_label(event.namespace)
            telemetry.slots_of(label, event.state, event.reason).inc(event.count)


class FailureLog:
    """Writes ``attempt failed`` lines, a bounded number of them.

    A receiver that is down fails a thousand attempts a minute, and a line for each would bury the
    one that matters. For each schedule and reason the first failure is logged at once, and later
    ones once a minute with their number. If very many of a namespace fail, such as the members of a
    set, all but the first hundred share a line for each reason. Times are monotonic seconds.
    """

    def __init__(self) -> None:
        #: For each line, when it was last written, and the failures since.
        self._lines: dict[_Line, tuple[float, int]] = {}
        self._of_namespace: collections.Counter[str] = collections.Counter()
        self._swept_at = float("-inf")

    def record(
        self, schedule: str, *, now: float, namespace: str, reason: str, **fields: object
    ) -> bool:
        """Count a failure; return whether it was logged, so that the caller may log more."""
        if now - self._swept_at >= 2 * WINDOW_SECONDS:
            self._forget_quiet(now)
        key = (namespace, schedule, reason)
        if key not in self._lines and self._of_namespace[namespace] >= MOST_OF_NAMESPACE:
            key = (namespace, OTHERS, reason)
        if key not in self._lines:
            self._of_namespace[namespace] += 1
        logged_at, unlogged = self._lines.get(key, (float("-inf"), 0))
        if now - logged_at < WINDOW_SECONDS:
            self._lines[key] = logged_at, unlogged + 1
            return False
        self._lines[key] = now, 0
        _log(key, unlogged + 1, fields)
        return True

    def _forget_quiet(self, now: float) -> None:
        """Drop the lines of schedules that have not failed for a while."""
        since = now - 2 * WINDOW_SECONDS
        self._lines = {key: line for key, line in self._lines.items() if line[0] > since}
        self._of_namespace = collections.Counter(namespace for namespace, _, _ in self._lines)
        self._swept_at = now


def _log(key: _Line, count: int, fields: dict[str, object]) -> None:
    namespace, schedule, reason = key
    telemetry.logger.info(
        "attempt failed",
        namespace=namespace,
        schedule=schedule,
        reason=reason,
        attempts_failed=count,
        **fields,
    )


# -- spans ----------------------------------------------------------------------------------------

#: If a slot began later than this after its due, as in a backfill, its span begins with its first
#: attempt: tracing backends take no spans of months.
_LONGEST_WAIT_US = 3_600_000_000

#: Targets whose attempts are client calls with an answer; the others produce messages.
_CALLS = frozenset({"job", "webhook"})


class AttemptTraces:
    """Writes the spans of one worker's attempts and slots.

    Args:
        record: takes each span that has ended, without waiting.
        ratio: share of slots that are traced, 0 to 1.
    """

    def __init__(self, record: Callable[[spans.Span], None], *, ratio: float = 1.0) -> None:
        self._record = record
        self._ratio = ratio

    def begin(self, firing: targets.Firing) -> targets.Firing:
        """Return the attempt with the trace context that it propagates."""
        header = spans.traceparent(self._trace(firing), spans.new_span_id())
        return dataclasses.replace(firing, traceparent=header)

    def end(
        self,
        firing: targets.Firing,
        answer: outcomes.Outcome,
        *,
        started_us: int,
        ended_us: int,
        first_try_us: int,
        is_over: bool,
    ) -> None:
        """Report an attempt that was made, and its slot if that is over.

        Args:
            first_try_us: when the first attempt of the slot began; 0 = with this one.
            is_over: no further attempt follows.
        """
        trace = self._trace(firing)
        if not trace.is_sampled or actions.own_stream(firing.action.target) is not None:
            return
        kind, error = firing.action.target.kind, _error(answer)
        common = {**_slot_attributes(firing), **_answer_attributes(answer)}
        if firing.traceparent:
            late_us = max(0, started_us - firing.due_us)
            self._record(
                spans.Span(
                    name=f"{kind} attempt",
                    trace_id=trace.trace_id,
                    span_id=spans.span_id_of(firing.traceparent),
                    parent_id=trace.span_id,
                    kind=spans.CLIENT if kind in _CALLS else spans.PRODUCER,
                    start_us=started_us,
                    end_us=ended_us,
                    attributes=common
                    | {"duepoint.attempt": firing.attempt}
                    | {"duepoint.lateness_seconds": late_us / 1_000_000},
                    error=error,
                )
            )
        if is_over:
            first_us = first_try_us or started_us
            late_us = max(0, first_us - firing.due_us)
            self._record(
                spans.Span(
                    name="slot",
                    trace_id=trace.trace_id,
                    span_id=trace.span_id,
                    parent_id=None,
                    kind=spans.INTERNAL,
                    start_us=first_us - (late_us if late_us <= _LONGEST_WAIT_US else 0),
                    end_us=ended_us,
                    attributes=common
                    | {"duepoint.attempts": firing.attempt}
                    | {"duepoint.lateness_seconds": late_us / 1_000_000},
                    error=error,
                )
            )

    def _trace(self, firing: targets.Firing) -> spans.SlotTrace:
        webhook_id = targets.webhook_id(firing.uid, firing.slot_us, firing.run_uid)
        return spans.slot_trace(webhook_id, self._ratio)


def _slot_attributes(firing: targets.Firing) -> dict[str, str | int | float]:
    found: dict[str, str | int | float] = {
        "k8s.namespace.name": firing.namespace,
        "duepoint.schedule.name": firing.name,
        "duepoint.schedule.uid": firing.uid,
        "duepoint.slot": times.time_text(firing.slot_us),
        "duepoint.trigger": firing.trigger,
        "duepoint.target": firing.action.target.kind,
    }
    if firing.owner is not None:
        found["duepoint.scheduleset.name"] = firing.owner.name
    return found


def _answer_attributes(answer: outcomes.Outcome) -> dict[str, str | int | float]:
    found: dict[str, str | int | float] = {"duepoint.outcome": answer.label}
    if isinstance(answer, outcomes.Delivered):
        if answer.job_name:
            found["k8s.job.name"] = answer.job_name
    else:
        found["duepoint.reason"] = answer.reason
    if not isinstance(answer, outcomes.Skip) and answer.http_status is not None:
        found["http.response.status_code"] = answer.http_status
    return found


def _error(answer: outcomes.Outcome) -> str:
    """Return the error message for a span; it has no secrets, as statuses show it too."""
    return answer.message if isinstance(answer, outcomes.Retry | outcomes.Rejected) else ""
