"""What came of an attempt: its metrics, its line in the log, its closing for the settlement."""

from __future__ import annotations

import collections
import random
from collections.abc import Callable, Iterable, Sequence

from duepoint import telemetry
from duepoint.clock import Clock
from duepoint.delayqueue import messages
from duepoint.runs import outcome as outcomes
from duepoint.runs import run
from duepoint.runs.run import RunEvent, RunState
from duepoint.schedules import points
from duepoint.targets import target as targets
from duepoint.worker import closing as closings
from duepoint.worker.failurelog import FailureLog
from duepoint.worker.plan import Attempt
from duepoint.worker.settler import Settler


class Results:
    """Of one worker.

    Args:
        dice: uniform in [0, 1), spreads retries.
    """

    def __init__(self, *, clock: Clock, dice: Callable[[], float] = random.random) -> None:
        self._clock = clock
        self._dice = dice
        self._failures = FailureLog()

    def record(
        self,
        settler: Settler,
        attempt: Attempt,
        firing: targets.Firing,
        answer: outcomes.Outcome,
        started_us: int,
    ) -> closings.Closing:
        """Count and log the answer; what it means for the settlement."""
        self.observe(attempt, answer)
        closed = self.closing(settler, attempt, firing, answer, started_us)
        count_ended(closed.events)
        return closed

    def closing(
        self,
        settler: Settler,
        attempt: Attempt,
        firing: targets.Firing,
        answer: outcomes.Outcome,
        started_us: int,
    ) -> closings.Closing:
        """What the answer means for the settlement."""
        tried = closings.Tried(
            attempt=attempt,
            outcome=answer,
            kind=type(firing.action.target),
            limits=targets.retry_limits(firing.action, firing, deadline_us(attempt)),
            started_us=started_us,
            now_us=settler.now_us(),
            fraction=self._dice(),
            had_owner=_had_owner(settler.claim),
        )
        return closings.closing(tried)

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
                slot_us=attempt.slot_us,
                attempt=attempt.number,
                error=answer.message,
            )
        if attempt.first_try_us == 0 and (isinstance(answer, outcomes.Delivered) or answer.started):
            telemetry.slots_total.labels("Started", "").inc()

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


def observe_group(accepted_us: int, slots_us: Sequence[int]) -> None:
    """Count slots that started together, and how late they were."""
    late: collections.Counter[float] = collections.Counter()
    for slot_us, count in collections.Counter(slots_us).items():
        late[max(0, accepted_us - slot_us) / 1_000_000] += count
    telemetry.start_lateness_seconds.observe_many(late)
    telemetry.slots_total.labels("Started", "").inc(len(slots_us))


def count_ended(events: Iterable[RunEvent | run.Together]) -> None:
    """Count slots that ended without a run."""
    for event in events:
        if isinstance(event, run.Together):
            continue
        if event.state is RunState.SUPERSEDED:
            telemetry.superseded_total.inc()
        elif event.state in (RunState.MISSED, RunState.SKIPPED) and event.count:
            telemetry.slots_total.labels(event.state, event.reason).inc(event.count)


def deadline_us(attempt: Attempt) -> int | None:
    """Until when the slot may start; None where its author has set no deadline."""
    limit_us = attempt.definition.rule.policy.deadline_us
    return None if limit_us is None else attempt.due_us + limit_us


def _had_owner(claim: messages.Claim) -> bool:
    """Whether another worker held these points, and may have asked a target."""
    return claim.reclaimed > 0 or claim.first_us not in (0, claim.now_us)
