"""What a collector receives, by OpenTelemetry's own exporter."""

from __future__ import annotations

import time

import pytest

import duepoint
from duepoint.tracing import otlp, spans
from tests.support import collector as collectors

START_US = 1_795_311_000_000_000
ROOT = spans.Span(
    name="slot", trace_id=0xABC, span_id=0x1, parent_id=None, kind=spans.INTERNAL,
    start_us=START_US, end_us=START_US + 250_000,
    attributes={"duepoint.slot": "2026-11-21T10:30:00Z", "duepoint.lateness_seconds": 0.125},
)  # fmt: skip
ATTEMPT = spans.Span(
    name="webhook attempt", trace_id=0xABC, span_id=0x2, parent_id=0x1, kind=spans.CLIENT,
    start_us=START_US + 1, end_us=START_US + 2, attributes={"duepoint.attempt": 3},
    error="503 Unavailable",
)  # fmt: skip


@pytest.fixture
def collector(monkeypatch):
    with collectors.collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        yield collector


def test_spans_arrive_with_their_ids_times_and_attributes(collector):
    exporter = otlp.Exporter(component="worker", instance="worker-1")
    exporter.record(ROOT)
    exporter.record(ATTEMPT)
    exporter.close()
    root, attempt = collector.spans
    assert (root.trace_id, root.span_id, root.parent_id) == (f"{0xABC:032x}", f"{1:016x}", "")
    assert (attempt.trace_id, attempt.parent_id) == (root.trace_id, root.span_id)
    assert (root.start_ns, root.end_ns) == (START_US * 1000, (START_US + 250_000) * 1000)
    assert root.attributes == ROOT.attributes
    assert (root.kind, attempt.kind) == (1, 3)  # of the protocol: INTERNAL, CLIENT
    assert (root.is_error, attempt.is_error, attempt.message) == (False, True, "503 Unavailable")
    assert collector.requests[0][0] == "/v1/traces"


def test_the_process_names_itself_and_the_environment_may_say_otherwise(collector, monkeypatch):
    def resource() -> dict:
        exporter = otlp.Exporter(component="worker", instance="worker-1")
        exporter.record(ROOT)
        exporter.close()
        return collector.spans[-1].resource

    usual = resource()
    assert usual["service.name"] == "duepoint-worker"
    assert usual["service.instance.id"] == "worker-1"
    assert usual["service.version"] == duepoint.__version__
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.cluster.name=north")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "schedules")
    assert resource()["service.name"] == "schedules"
    assert resource()["k8s.cluster.name"] == "north"


def test_headers_for_the_collector_come_from_the_usual_variable(collector, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20token")
    exporter = otlp.Exporter(component="worker", instance="worker-1")
    exporter.record(ROOT)
    exporter.close()
    assert collector.requests[0][1]["authorization"] == "Bearer token"


def test_the_end_waits_for_no_collector_that_is_unwell(collector, monkeypatch):
    monkeypatch.setattr(otlp, "_CLOSING_SECONDS", 0.2)
    collector.answer = 503
    exporter = otlp.Exporter(component="worker", instance="worker-1")
    exporter.record(ROOT)
    began = time.monotonic()
    exporter.close()
    assert collector.requests
    assert time.monotonic() - began < 60
