"""What a worker reports as spans, in virtual time."""

from __future__ import annotations

import pytest

from duepoint.schedules.conditions import Reason
from duepoint.targets import outcome as outcomes
from duepoint.targets import target
from duepoint.tracing import spans
from duepoint.worker.results import AttemptTraces
from tests.support import builders, firings
from tests.support.builders import a_definition, at
from tests.support.workplace import a_workplace

NOON = at("2026-03-01 12:00:00")
SLOT = NOON + 10_000_000
UNREACHABLE = outcomes.Retry(reason=Reason.NETWORK, message="connection refused")
GONE = outcomes.Rejected(reason=Reason.ENDPOINT_GONE, message="410 Gone", http_status=410)


@pytest.fixture
def kept() -> list[spans.Span]:
    return []


@pytest.fixture
async def place():
    return await a_workplace()


def every(period: str = "10s"):
    return a_definition(f"@every {period}", created_us=NOON, not_before_us=NOON)


async def test_each_attempt_is_a_span_below_that_of_its_slot(place, kept):
    known = await place.arm(every())
    place.target.reply(UNREACHABLE)
    worker = place.a_worker(traces=AttemptTraces(kept.append))
    async with place.working(worker):
        await place.clock.advance(19)
    first, second, slot = kept
    trace_id = int(target.webhook_id(known.uid, SLOT).removeprefix("msg_"), 16)
    assert {span.trace_id for span in kept} == {trace_id}
    assert [span.name for span in kept] == ["webhook attempt", "webhook attempt", "slot"]
    assert [span.parent_id for span in kept] == [slot.span_id, slot.span_id, None]
    assert first.error == "connection refused"
    assert (second.error, slot.error) == ("", "")
    assert first.attributes["duepoint.outcome"] == "retry"
    assert first.attributes["duepoint.reason"] == "Network"
    assert [span.attributes["duepoint.attempt"] for span in (first, second)] == [1, 2]
    assert slot.start_us == SLOT
    assert slot.end_us == second.end_us > second.start_us - 1 >= first.end_us
    assert slot.attributes["duepoint.attempts"] == 2
    assert slot.attributes["duepoint.outcome"] == "delivered"
    assert slot.attributes["duepoint.slot"] == "2026-03-01T12:00:10Z"
    assert slot.attributes["k8s.namespace.name"] == known.namespace
    assert slot.attributes["duepoint.schedule.name"] == known.name


def end(traces, firing, answer=GONE, **changes) -> None:
    values = {"started_us": SLOT, "ended_us": SLOT + 5, "first_try_us": 0, "is_over": True}
    traces.end(firing, answer, **{**values, **changes})


def test_a_slot_that_is_given_up_has_an_error_and_the_receivers_status(kept):
    traces = AttemptTraces(kept.append)
    end(traces, traces.begin(firings.a_firing(slot_us=SLOT)))
    for span in kept:
        assert (span.error, span.attributes["http.response.status_code"]) == ("410 Gone", 410)
        assert span.attributes["duepoint.outcome"] == "rejected"


def test_no_span_holds_where_it_went_or_what_was_sent(kept):
    traces = AttemptTraces(kept.append)
    webhook = firings.a_webhook("https://user:canary@hooks.example.com/canary")
    firing = traces.begin(firings.a_firing(webhook, slot_us=SLOT, payload={"a": "canary"}))
    end(traces, firing)
    assert "canary" not in repr(kept)
    assert builders.UID in repr(kept)
