"""Exports spans to an OpenTelemetry collector, by OTLP over HTTP; needs the extra ``otel``.

Imported only if traces are on. The SDK makes its own spans from ours, with our ids, buffers a
bounded number of them and sends them from a thread of its own. It retries a batch for ten seconds
and then drops it. The SDK's environment variables apply: ``OTEL_EXPORTER_OTLP_ENDPOINT``,
``_HEADERS`` and ``_CERTIFICATE``, ``OTEL_SERVICE_NAME``, ``OTEL_RESOURCE_ATTRIBUTES``, and
``OTEL_BSP_*`` for its queue.
"""

from __future__ import annotations

import threading

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_VERSION, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider, sampling
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator

import duepoint
from duepoint.tracing import spans

_SAMPLED = trace.TraceFlags(trace.TraceFlags.SAMPLED)
_US = 1000  # nanoseconds
#: How long the process waits for the last spans before it breaks off an export.
_CLOSING_SECONDS = 3.0


class Exporter:
    """Sends spans to one collector; ``close`` it at the end.

    Args:
        component: name of the process, which becomes ``service.name`` after "duepoint-".
        instance: name of this replica.
    """

    def __init__(self, *, component: str, instance: str) -> None:
        self._exporter = OTLPSpanExporter()
        self._ids = _GivenIds()
        facts = {
            "service.name": f"duepoint-{component}",
            SERVICE_VERSION: duepoint.__version__,
            "service.instance.id": instance,
        }
        provider = TracerProvider(
            sampler=sampling.ALWAYS_ON,
            # Attributes from the environment win.
            resource=Resource.create({**facts, **OTELResourceDetector().detect().attributes}),
            id_generator=self._ids,
            shutdown_on_exit=False,
        )
        self._batches = BatchSpanProcessor(self._exporter, schedule_delay_millis=1000)
        provider.add_span_processor(self._batches)
        self._tracer = provider.get_tracer("duepoint", duepoint.__version__)

    def close(self) -> None:
        """Send the buffered spans; blocks for a few seconds at most."""
        last = threading.Thread(target=self._batches.shutdown, name="last spans", daemon=True)
        last.start()
        last.join(_CLOSING_SECONDS)
        self._exporter.shutdown()  # type: ignore[no-untyped-call]
        last.join(_CLOSING_SECONDS)

    def record(self, span: spans.Span) -> None:
        """Hand over a span that has ended; never waits, and drops it if the buffer is full."""
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
    """Returns the ids that the span already has."""

    def __init__(self) -> None:
        self.trace_id = self.span_id = 0

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id
