"""What attempts and slots look like as spans.

The span of an attempt lasts from before the request to its answer. The span of its slot, the parent
of all its attempts, is made when the slot is over for the worker: delivered, given up or skipped;
for a Job that is its creation. Both carry the same names and the same slot. Entries of streams in
Duepoint's own Redis are appended by hundreds in one script: they have no spans.

Names of attributes are OpenTelemetry's where it has one; ours begin with ``duepoint.``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from duepoint.kube import times
from duepoint.runs import outcome as outcomes
from duepoint.schedules import actions, ownstreams
from duepoint.targets import target as targets
from duepoint.tracing import spans

#: A slot that began much later than it was due, as in a backfill, has a span that begins with its
#: first attempt: no backend takes one of months.
_LONGEST_WAIT_US = 3_600_000_000

_PRODUCED = (actions.StreamAction, actions.KafkaAction)


class AttemptTraces:
    """Of one worker.

    Args:
        record: takes each span that has ended; it never waits.
        ratio: share of slots that are traced, 0 to 1.
    """

    def __init__(self, record: Callable[[spans.Span], None], *, ratio: float = 1.0) -> None:
        self._record = record
        self._ratio = ratio

    def begin(self, firing: targets.Firing) -> targets.Firing:
        """The attempt with the context that it hands on."""
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
        """Report an attempt that was made, and its slot where it is over.

        Args:
            first_try_us: when the first attempt of the slot began; 0 = with this one.
            is_over: no further attempt follows.
        """
        trace = self._trace(firing)
        if not trace.is_sampled or ownstreams.own(firing.action.target) is not None:
            return
        attributes = {**_slot_attributes(firing), **_answer_attributes(answer)}
        error = _error(answer)
        if firing.traceparent:
            late_us = max(0, started_us - firing.due_us)
            attempt = {
                "duepoint.attempt": firing.attempt,
                "duepoint.lateness_seconds": late_us / 1_000_000,
            }
            self._record(
                spans.Span(
                    name=f"{targets.kind_name(firing.action)} attempt",
                    trace_id=trace.trace_id,
                    span_id=spans.span_id_of(firing.traceparent),
                    parent_id=trace.span_id,
                    kind=spans.PRODUCER
                    if isinstance(firing.action.target, _PRODUCED)
                    else spans.CLIENT,
                    start_us=started_us,
                    end_us=ended_us,
                    attributes=attributes | attempt,
                    error=error,
                )
            )
        if is_over:
            first_us = first_try_us or started_us
            was_soon = first_us - firing.due_us <= _LONGEST_WAIT_US
            late_us = max(0, first_us - firing.due_us)
            self._record(
                spans.Span(
                    name="slot",
                    trace_id=trace.trace_id,
                    span_id=trace.span_id,
                    parent_id=None,
                    kind=spans.INTERNAL,
                    start_us=min(firing.due_us, first_us) if was_soon else first_us,
                    end_us=ended_us,
                    attributes=attributes
                    | {
                        "duepoint.attempts": firing.attempt,
                        "duepoint.lateness_seconds": late_us / 1_000_000,
                    },
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
        "duepoint.target": targets.kind_name(firing.action),
    }
    if firing.owner is not None:
        found["duepoint.scheduleset.name"] = firing.owner.name
    return found


def _answer_attributes(answer: outcomes.Outcome) -> dict[str, str | int | float]:
    found: dict[str, str | int | float] = {"duepoint.outcome": targets.outcome_name(answer)}
    if isinstance(answer, outcomes.Delivered):
        if answer.job_name:
            found["k8s.job.name"] = answer.job_name
    else:
        found["duepoint.reason"] = answer.reason
    if not isinstance(answer, outcomes.Skip) and answer.http_status is not None:
        found["http.response.status_code"] = answer.http_status
    return found


def _error(answer: outcomes.Outcome) -> str:
    """Messages hold no secrets: a status shows them too."""
    return answer.message if isinstance(answer, outcomes.Retry | outcomes.Rejected) else ""
