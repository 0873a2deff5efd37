"""A slot's trace from the worker over the receiver and the Job, on real servers."""

from __future__ import annotations

import asyncio

import pytest

from tests.e2e.test_jobs import template
from tests.support import collector as collectors
from tests.support import receiver


@pytest.fixture
def collector():
    with collectors.collecting() as collector:
        yield collector


async def test_receiver_and_job_get_the_context_of_the_spans_that_a_collector_has(stack, collector):
    heard: list[receiver.Request] = []

    async def noting(request, writer):
        heard.append(request)
        await receiver.status(204)(request, writer)

    stack.answer = noting
    operator = stack.operator()
    worker = stack.worker(OTEL_EXPORTER_OTLP_ENDPOINT=collector.url)
    await operator.wait_until_ready()
    await worker.wait_until_ready()
    await stack.apply("call", {"schedule": "@every 1s", "maxRuns": 1, "webhook": stack.webhook()})
    await stack.apply("work", {"schedule": "@every 1s", "maxRuns": 1, "jobTemplate": template()})
    [job] = await stack.wait_for_job("work")
    await stack.wait_for_deliveries(1, "call")
    found = await asyncio.to_thread(collector.wait_for, 4)

    by_id = {span.span_id: span for span in found}
    [delivery] = stack.delivered("call")
    contexts = {
        "call": heard[0].header("traceparent"),
        "work": job["metadata"]["annotations"]["duepoint.dev/traceparent"],
    }
    for name, context in contexts.items():
        _, trace_id, span_id, flags = context.split("-")
        attempt = by_id[span_id]
        slot = by_id[attempt.parent_id]
        assert (attempt.trace_id, slot.trace_id, flags) == (trace_id, trace_id, "01")
        assert slot.name == "slot"
        assert attempt.attributes["duepoint.schedule.name"] == name
        assert attempt.attributes["k8s.namespace.name"] == stack.namespace
        assert slot.start_ns <= attempt.start_ns <= attempt.end_ns <= slot.end_ns
        assert 0 <= attempt.attributes["duepoint.lateness_seconds"] < 60
    trace_id = contexts["call"].split("-")[1]
    assert trace_id == delivery.webhook_id.removeprefix("msg_")
    containers = job["spec"]["template"]["spec"]["containers"]
    assert "TRACEPARENT" in {variable["name"] for variable in containers[0]["env"]}
