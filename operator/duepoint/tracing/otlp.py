"""Sends spans to an OpenTelemetry collector, by OTLP over HTTP; the optional extra ``otel``.

Imported only where traces are on. The SDK makes its own spans of ours, with our ids, and hands them
to its exporter, which tries a batch again for up to ten seconds and then gives it up. What the SDK
reads from the environment holds: ``OTEL_EXPORTER_OTLP_HEADERS`` and ``_CERTIFICATE``,
``OTEL_SERVICE_NAME``, ``OTEL_RESOURCE_ATTRIBUTES``.
"""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_VERSION, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider, sampling
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator

import duepoint
from duepoint.tracing import spans

_SAMPLED = trace.TraceFlags(trace.TraceFlags.SAMPLED)
_US = 1000  # nanoseconds


class Exporter:
    """Sends batches of spans to one collector.

    Args:
        endpoint: base URL of the collector; spans go to its ``/v1/traces``.
        component: name of the process, which becomes ``service.name`` after "duepoint-".
        instance: name of this replica.
    """

    def __init__(self, endpoint: str, *, component: str, instance: str) -> None:
        self._exporter = OTLPSpanExporter(endpoint=endpoint.rstrip("/") + "/v1/traces")
        self._ids = _GivenIds()
        self._ended = _EndedSpans()
        facts = {
            "service.name": f"duepoint-{component}",
            SERVICE_VERSION: duepoint.__version__,
            "service.instance.id": instance,
        }
        provider = TracerProvider(
            sampler=sampling.ALWAYS_ON,
            # What the environment says of them wins.
            resource=Resource.create({**facts, **OTELResourceDetector().detect().attributes}),
            id_generator=self._ids,
            shutdown_on_exit=False,
        )
        provider.add_span_processor(self._ended)
        self._tracer = provider.get_tracer("duepoint", duepoint.__version__)

    def export(self, batch: Sequence[spans.Span]) -> bool:
        """Send a batch; False where the collector did not accept it. Blocks."""
        for span in batch:
            self._repeat(span)
        return self._exporter.export(self._ended.taken()) is SpanExportResult.SUCCESS

    def stop(self) -> None:
        """End an export that is under way."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]

    def _repeat(self, span: spans.Span) -> None:
        """The same span by the SDK."""
        self._ids.trace_id, self._ids.span_id = span.trace_id, span.span_id
        parent = Context()
        if span.parent_id is not None:
            context = trace.SpanContext(
                span.trace_id, span.parent_id, is_remote=True, trace_flags=_SAMPLED
            )
            parent = trace.set_span_in_context(trace.NonRecordingSpan(context), parent)
        made = self._tracer.start_span(
            span.name,
            context=parent,
            kind=trace.SpanKind[span.kind],
            attributes=span.attributes,
            start_time=span.start_us * _US,
        )
        if span.error:
            made.set_status(trace.StatusCode.ERROR, span.error)
        made.end(span.end_us * _US)


class _GivenIds(IdGenerator):
    """The ids that the span already has."""

    def __init__(self) -> None:
        self.trace_id = self.span_id = 0

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id


class _EndedSpans(SpanProcessor):
    """Collects the SDK's spans of one batch."""

    def __init__(self) -> None:
        self._spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self._spans.append(span)

    def taken(self) -> list[ReadableSpan]:
        """All of them; none is left."""
        taken, self._spans = self._spans, []
        return taken
