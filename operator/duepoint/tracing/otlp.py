"""Exports spans to an OpenTelemetry collector, by OTLP over HTTP; needs the extra ``otel``.

Imported only if traces are on. The SDK buffers a bounded number of spans and sends them from a
thread of its own. It retries a batch for ten seconds and then drops it. The SDK's environment
variables apply: ``OTEL_EXPORTER_OTLP_ENDPOINT``, ``_HEADERS`` and ``_CERTIFICATE``,
``OTEL_SERVICE_NAME``, ``OTEL_RESOURCE_ATTRIBUTES``, and ``OTEL_BSP_*`` for its queue.
"""

from __future__ import annotations

import threading

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_VERSION, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

import duepoint
from duepoint.tracing import spans

_SAMPLED = trace.TraceFlags(trace.TraceFlags.SAMPLED)
_SCOPE = InstrumentationScope("duepoint", duepoint.__version__)
_US = 1000  # nanoseconds
#: How long the process waits for the last spans before it aborts an export.
_CLOSING_SECONDS = 3.0


class Exporter:
    """Sends spans to one collector; ``close`` it at the end.

    Args:
        component: name of the process, which becomes ``service.name`` after "duepoint-".
        instance: name of this replica.
    """

    def __init__(self, *, component: str, instance: str) -> None:
        self._exporter = OTLPSpanExporter()
        facts = {
            "service.name": f"duepoint-{component}",
            SERVICE_VERSION: duepoint.__version__,
            "service.instance.id": instance,
        }
        # Attributes from the environment win.
        self._resource = Resource.create({**facts, **OTELResourceDetector().detect().attributes})
        self._batches = BatchSpanProcessor(self._exporter, schedule_delay_millis=1000)

    def close(self) -> None:
        """Send the buffered spans; blocks for a few seconds at most."""
        last = threading.Thread(target=self._batches.shutdown, name="last spans", daemon=True)
        last.start()
        last.join(_CLOSING_SECONDS)
        self._exporter.shutdown()  # type: ignore[no-untyped-call]
        last.join(_CLOSING_SECONDS)

    def record(self, span: spans.Span) -> None:
        """Hand over a span that has ended; never waits, and drops it if the buffer is full."""

        def context(span_id: int) -> trace.SpanContext:
            return trace.SpanContext(span.trace_id, span_id, is_remote=False, trace_flags=_SAMPLED)

        status = trace.Status(trace.StatusCode.ERROR, span.error) if span.error else trace.Status()
        self._batches.on_end(
            ReadableSpan(
                name=span.name,
                context=context(span.span_id),
                parent=None if span.parent_id is None else context(span.parent_id),
                resource=self._resource,
                attributes=span.attributes,
                kind=trace.SpanKind[span.kind],
                instrumentation_scope=_SCOPE,
                status=status,
                start_time=span.start_us * _US,
                end_time=span.end_us * _US,
            )
        )
