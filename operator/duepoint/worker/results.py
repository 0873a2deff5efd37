"""What came of an attempt: its metrics, its line in the log, its part of the settlement."""

from __future__ import annotations

import collections
import random
from collections.abc import Callable, Iterable, Sequence

from duepoint import telemetry
from duepoint.clock import Clock
from duepoint.delayqueue.messages import Settlement
from duepoint.kube import times
from duepoint.runs import outcome as outcomes
from duepoint.runs import run
from duepoint.runs.run import RunEvent, RunState
from duepoint.schedules import points
from duepoint.targets import target as targets
from duepoint.worker import attempttraces, endings
from duepoint.worker.plan import Attempt
from duepoint.worker.settler import Settler

#: Seconds between two lines of one schedule and reason.
WINDOW_SECONDS = 60.0
#: Schedules and reasons of a namespace with lines of their own; the others share one.
MOST_OF_NAMESPACE = 100
#: Stands for these; no Schedule or member has this name.
OTHERS = "(others)"

#: Namespace, schedule and reason.
_Line = tuple[str, str, str]


class Results:
    """Of one worker.

    Args:
        dice: uniform in [0, 1), spreads retries.
        traces: None where traces are off.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        dice: Callable[[], float] = random.random,
        traces: attempttraces.AttemptTraces | None = None,
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
        """Count, log and trace the answer; what it means for the settlement."""
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
        """What the answer means for the settlement."""
        claim = settler.claim
        attempted = endings.Tried(
            attempt=attempt,
            outcome=answer,
            kind=type(firing.action.target),
            limits=targets.retry_limits(firing, deadline_us(attempt)),
            started_us=started_us,
            now_us=settler.now_us(),
            fraction=self._dice(),
            # Another worker that held these points may have asked a target.
            had_owner=claim.reclaimed > 0 or claim.first_us not in (0, claim.now_us),
        )
        return endings.settlement(attempted)

    def observe(self, attempt: Attempt, answer: outcomes.Outcome) -> None:
        """Count how late the slot was, that it has started, and log a failure."""
        if isinstance(answer, outcomes.Delivered):
            # A slot that waited for a run to end is no later than its author wants it.
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
        """A target raised, which it must not; its schedule's log line comes once in a while."""
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
    telemetry.slots_of(telemetry.namespaces.label(namespace), "Started", "").inc(times)


def count_ended(events: Iterable[RunEvent | run.Together]) -> None:
    """Count slots that ended without a run."""
    for event in events:
        if isinstance(event, run.Together):
            continue
        if event.state in (RunState.MISSED, RunState.SKIPPED) and event.count:
            label = telemetry.namespaces.label(event.namespace)
            telemetry.slots_of(label, event.state, event.reason).inc(event.count)


def deadline_us(attempt: Attempt) -> int | None:
    """Until when the slot may start; None where its author has set no deadline."""
    limit_us = attempt.definition.rule.policy.deadline_us
    return None if limit_us is None else attempt.due_us + limit_us


class FailureLog:
    """Writes ``attempt failed`` lines, a bounded number of them.

    A receiver that is down fails a thousand attempts a minute, and a line for each would bury the
    one that matters. Per schedule and reason the first failure is logged at once and the others
    once a minute, with their number. Where very many of a namespace fail, such as the members of a
    set, all but the first share a line for each reason. Times are monotonic seconds.
    """

    def __init__(self) -> None:
        self._begun = float("-inf")
        #: Failures of this minute that no line has, with the fields of the newest; those before.
        self._unlogged: dict[_Line, tuple[int, dict[str, object]]] = {}
        self._before: set[_Line] = set()
        self._of_namespace: collections.Counter[str] = collections.Counter()

    def record(
        self, schedule: str, *, now: float, namespace: str, reason: str, **fields: object
    ) -> bool:
        """One more failure; True where it was logged, so that more may be said beside it."""
        if now - self._begun >= WINDOW_SECONDS:
            self._end_minute(now)
        key = (namespace, schedule, reason)
        if key not in self._unlogged:
            if self._of_namespace[namespace] >= MOST_OF_NAMESPACE:
                key = (namespace, OTHERS, reason)
            self._of_namespace[namespace] += 1
        if key in self._unlogged or key in self._before:
            count, _ = self._unlogged.get(key, (0, {}))
            self._unlogged[key] = count + 1, fields
            return False
        self._unlogged[key] = 0, {}
        _log(key, 1, fields)
        return True

    def _end_minute(self, now: float) -> None:
        for key, (count, fields) in self._unlogged.items():
            if count:
                _log(key, count, fields)
        self._begun, self._before, self._unlogged = now, set(self._unlogged), {}
        self._of_namespace.clear()


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
