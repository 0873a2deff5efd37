"""The queue of spans: bounded, counted, and never in the way of who fills it."""

from __future__ import annotations

import threading
import time

import pytest
from structlog.testing import capture_logs

from duepoint import telemetry
from duepoint.tracing import exporting, spans


def a_span(number: int = 0) -> spans.Span:
    return spans.Span(
        name="slot", trace_id=1, span_id=number + 1, parent_id=None, kind=spans.INTERNAL,
        start_us=0, end_us=1, attributes={},
    )  # fmt: skip


@pytest.fixture
def counted():
    """What became of spans since the test began, by outcome."""
    names = ("exported", "failed", "dropped")
    before = {name: telemetry.spans_of(name)._value.get() for name in names}

    def since() -> dict[str, float]:
        now = {name: telemetry.spans_of(name)._value.get() for name in names}
        return {name: now[name] - before[name] for name in names if now[name] != before[name]}

    return since


class Held:
    """An export that hangs until it may end."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.may_end = threading.Event()
        self.batches: list[int] = []

    def export(self, batch) -> bool:
        self.batches.append(len(batch))
        self.begun.set()
        return self.may_end.wait(20)


def test_a_span_is_sent_within_seconds_and_many_are_sent_in_batches(counted):
    sent: list[list[spans.Span]] = []
    done = threading.Event()

    def export(batch) -> bool:
        sent.append(batch)
        if sum(map(len, sent)) == 1300:
            done.set()
        return True

    queue = exporting.SpanQueue(export)
    for number in range(1300):
        queue.put_nowait(a_span(number))
    assert done.wait(20)
    queue.close()
    assert max(map(len, sent)) <= 512
    assert [span.span_id for batch in sent for span in batch] == list(range(1, 1301))
    assert counted() == {"exported": 1300}


def test_while_the_collector_hangs_the_queue_stays_bounded_and_nobody_waits(counted):
    held = Held()
    queue = exporting.SpanQueue(held.export, most=100)
    queue.put_nowait(a_span())
    assert held.begun.wait(20)
    began = time.monotonic()
    for number in range(1000):
        queue.put_nowait(a_span(number))
    assert time.monotonic() - began < 10
    assert counted() == {"dropped": 900}
    held.may_end.set()
    queue.close()
    assert counted() == {"dropped": 900, "exported": 101}


def test_what_the_collector_refuses_is_counted_and_not_kept(counted):
    queue = exporting.SpanQueue(lambda _: False)
    queue.put_nowait(a_span())
    queue.close()
    assert counted() == {"failed": 1}


def test_a_bug_in_the_exporter_ends_no_later_export(counted):
    answers = iter([RuntimeError("bug"), None])
    failed = threading.Event()

    def export(_) -> bool:
        if (bug := next(answers)) is not None:
            failed.set()
            raise bug
        return True

    with capture_logs() as logs:
        queue = exporting.SpanQueue(export)
        queue.put_nowait(a_span())
        assert failed.wait(20)
        queue.put_nowait(a_span())
        queue.close()
    assert counted() == {"failed": 1, "exported": 1}
    assert [line["event"] for line in logs] == ["spans not exported"]


def test_the_end_waits_for_no_collector_that_hangs(counted):
    held = Held()
    queue = exporting.SpanQueue(held.export, held.may_end.set, closing_seconds=0.2)
    queue.put_nowait(a_span())
    assert held.begun.wait(20)
    queue.put_nowait(a_span())
    queue.close()
    queue.put_nowait(a_span())
    assert held.may_end.is_set()
    assert counted() == {"exported": 2, "dropped": 1}
