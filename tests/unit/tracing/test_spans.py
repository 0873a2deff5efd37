"""The identity of a slot's trace."""

from __future__ import annotations

import re

import pytest

from duepoint.targets import target
from duepoint.tracing import spans
from tests.support import builders

WEBHOOK_ID = target.webhook_id(builders.UID, 1_795_311_000_000_000)


def test_the_trace_is_that_of_the_webhook_id_for_every_attempt():
    trace = spans.slot_trace(WEBHOOK_ID, 1.0)
    assert f"{trace.trace_id:032x}" == WEBHOOK_ID.removeprefix("msg_")
    assert spans.slot_trace(WEBHOOK_ID, 1.0) == trace
    other = spans.slot_trace(target.webhook_id(builders.UID, 1_795_311_060_000_000), 1.0)
    assert {other.trace_id, other.span_id}.isdisjoint({trace.trace_id, trace.span_id})


def test_the_header_is_that_of_trace_context_and_names_the_attempt():
    trace, attempt = spans.slot_trace(WEBHOOK_ID, 1.0), spans.new_span_id()
    header = spans.traceparent(trace, attempt)
    assert re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-01", header)
    assert spans.span_id_of(header) == attempt
    unsampled = spans.traceparent(spans.slot_trace(WEBHOOK_ID, 0.0), attempt)
    assert unsampled == header[:-2] + "00"


@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.5, 1.0])
def test_slots_are_sampled_as_opentelemetrys_own_sampler_does(ratio):
    from opentelemetry.sdk.trace import sampling

    sampler = sampling.TraceIdRatioBased(ratio)
    sampled = 0
    for number in range(2000):
        webhook_id = target.webhook_id(builders.UID, number * 1_000_000)
        trace = spans.slot_trace(webhook_id, ratio)
        decision = sampler.should_sample(None, trace.trace_id, "slot").decision
        assert trace.is_sampled == decision.is_sampled()
        sampled += trace.is_sampled
    assert ratio * 2000 - 100 <= sampled <= ratio * 2000 + 100
