"""Spans as values, and the identity of a slot's trace. Pure.

A slot has one trace, whichever workers try it and however often. The trace id is the hexadecimal
part of the slot's ``webhook-id``, and the id of the whole slot's span is a hash of the same text.
So an attempt can name its parent although another worker, or a later attempt, ends that span.
Attempts have random span ids. Sampling follows from the trace id by the rule of OpenTelemetry's
``TraceIdRatioBased``. So all attempts of a slot are sampled or none, and a receiver that samples by
the same rule agrees.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

_LOW_64 = (1 << 64) - 1

#: Values of ``Span.kind``, as OpenTelemetry names them.
INTERNAL, CLIENT, PRODUCER = "INTERNAL", "CLIENT", "PRODUCER"


@dataclass(frozen=True, slots=True)
class SlotTrace:
    """The trace of one slot.

    Attributes:
        trace_id: 128 bits, not 0.
        span_id: id of the whole slot's span; 64 bits, not 0.
        is_sampled: whether its spans are exported.
    """

    trace_id: int
    span_id: int
    is_sampled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One span that has ended.

    Attributes:
        parent_id: None for the root of the trace.
        start_us, end_us: microseconds since the epoch.
        error: empty if it ended well.
    """

    name: str
    trace_id: int
    span_id: int
    parent_id: int | None
    kind: str
    start_us: int
    end_us: int
    attributes: Mapping[str, str | int | float]
    error: str = ""


def slot_trace(webhook_id: str, ratio: float) -> SlotTrace:
    """Return the trace of the slot with this id.

    Args:
        webhook_id: ``msg_`` and 32 hexadecimal digits.
        ratio: share of slots that are sampled, 0 to 1.
    """
    trace_id = int(webhook_id.removeprefix("msg_"), 16) or 1
    span_id = int.from_bytes(hashlib.sha256(webhook_id.encode()).digest()[:8]) or 1
    is_sampled = trace_id & _LOW_64 < round(ratio * (_LOW_64 + 1))
    return SlotTrace(trace_id, span_id, is_sampled)


def new_span_id() -> int:
    """Return a random id, not 0."""
    return secrets.randbits(64) or 1


def traceparent(trace: SlotTrace, span_id: int) -> str:
    """Return the W3C Trace Context header, version 00, that makes this span the parent."""
    return f"00-{trace.trace_id:032x}-{span_id:016x}-{'01' if trace.is_sampled else '00'}"


def span_id_of(header: str) -> int:
    """Return the span id in a ``traceparent`` of ours."""
    return int(header[36:52], 16)
