"""Events of runs become records: each once, and none of what is over."""

from __future__ import annotations

from typing import Any

from duepoint.cli.local import reports
from duepoint.runs.run import RunEvent, RunState

SLOT = 1_800_000_000_000_000


def an_event(state: RunState, **changes: Any) -> RunEvent:
    known = {"uid": "u", "namespace": "shop", "name": "report", "generation": 1, "slot_us": SLOT}
    common = {"trigger": "Schedule", "reason": "", "at_us": SLOT, "job_name": "report-1"}
    return RunEvent(**{**known, **common, "state": state, **changes})


def states_of(*events: RunEvent) -> list[str]:
    log = reports.RunLog(lambda *_: "Job")
    records = [log.record(event) for event in events]
    return [record["state"] for record in records if record is not None]


def test_an_event_is_reported_once():
    start, end = an_event(RunState.RUNNING), an_event(RunState.SUCCEEDED)
    assert states_of(start, start, end, end) == ["Running", "Succeeded"]


def test_a_start_that_arrives_after_its_end_is_left_out():
    start, end = an_event(RunState.RUNNING), an_event(RunState.FAILED)
    other = an_event(RunState.RUNNING, job_name="report-2", slot_us=SLOT + 1)
    assert states_of(end, start, other) == ["Failed", "Running"]


def test_a_run_that_is_tried_again_has_failed_until_it_succeeds():
    log = reports.RunLog(lambda *_: "Webhook")
    refused = {"reason": "Network", "message": "connection refused", "job_name": ""}
    for attempt in (1, 2):
        log.record(an_event(RunState.RUNNING, attempts=attempt, **refused))
    log.record(an_event(RunState.FAILED, name="other", uid="o", **refused))
    assert log.summary() == (
        "0 runs succeeded, 1 failed, 1 failed and would be tried again",
        [
            "shop/other (1): Network: connection refused",
            "shop/report (1): Network: connection refused",
        ],
    )
    log.record(an_event(RunState.SUCCEEDED, job_name=""))
    assert (log.succeeded, log.failed, log.retrying) == (1, 1, 0)
