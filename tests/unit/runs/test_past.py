"""Records of last slots: what is kept, what a reader gets back, and what it costs."""

from __future__ import annotations

import pytest

from duepoint.runs import history
from duepoint.runs.run import RunEvent, RunState
from duepoint.schedules.points import SetIdentity

T0 = 1_772_400_000_000_000
SECOND = 1_000_000
ID = b"schedule"
SET = SetIdentity(namespace="team-a", name="many", uid="11111111-2222-3333-4444-555555555555")


def an_event(state=RunState.SUCCEEDED, reason="Succeeded", **more):
    return RunEvent(
        **{
            "uid": "u",
            "namespace": "team-a",
            "name": "report",
            "generation": 1,
            "slot_us": T0,
            "trigger": "Schedule",
            "state": state,
            "reason": reason,
            "at_us": T0 + SECOND,
            "started_us": T0 + 250_000,
            "finished_us": T0 + SECOND,
            "attempts": 1,
            "schedule_id": ID,
            **more,
        }
    )


def kept(*events):
    return list(history.kept(events))


def read_back(event):
    (slot,) = history.read(history.record(event))
    return slot


def test_a_success_comes_back_with_its_lateness_and_takes_few_bytes():
    event = an_event()
    slot = read_back(event)
    assert (slot.slot_us, slot.outcome, slot.reason) == (T0, "Succeeded", "Succeeded")
    assert (slot.started_us, slot.finished_us) == (T0 + 250_000, T0 + SECOND)
    assert (slot.attempts, slot.trigger) == (1, "Schedule")
    assert len(history.record(event)) <= 20


@pytest.mark.parametrize(
    ("state", "reason", "more"),
    [
        (RunState.FAILED, "Rejected", {"message": "403 Forbidden", "http_status": 403}),
        (RunState.SKIPPED, "ConcurrencyForbidden", {"message": "1 run is active"}),
        (RunState.MISSED, "DeadlineExceeded", {"message": "6 s late"}),
    ],
    ids=["failed", "skipped", "missed"],
)
def test_what_went_wrong_comes_back_with_its_reason_and_message(state, reason, more):
    slot = read_back(an_event(state, reason, attempts=5, trigger="CatchUp", **more))
    assert (slot.outcome, slot.reason, slot.message) == (state, reason, more["message"])
    assert (slot.attempts, slot.trigger) == (5, "CatchUp")
    assert slot.http_status == more.get("http_status")
    assert bool(slot.started_us) == (state is RunState.FAILED)


def test_several_missed_slots_are_one_record_with_the_oldest():
    event = an_event(
        RunState.MISSED, "CatchUpPolicy", count=60, since_us=T0 - 3_600 * SECOND, started_us=0
    )
    slot = read_back(event)
    assert (slot.count, slot.since_us) == (60, T0 - 3_600 * SECOND)


@pytest.mark.parametrize(
    "event",
    [
        an_event(RunState.RUNNING, "Network", finished_us=0),
        an_event(RunState.PENDING, "QuotaExceeded"),
        an_event(RunState.SUPERSEDED, "StaleVersion"),
        an_event(RunState.CHECKED, "", slot_us=0),
        an_event(schedule_id=b""),
        an_event(owner=SET),
    ],
    ids=["tried again", "put off", "superseded", "no slot", "no id", "a member's success"],
)
def test_what_has_not_ended_is_not_kept(event):
    assert kept(event) == []


@pytest.mark.parametrize(
    "event",
    [
        an_event(RunState.FAILED, "Rejected", owner=SET),
        an_event(RunState.MISSED, "DeadlineExceeded", owner=SET),
        an_event(attempts=2, owner=SET),
    ],
    ids=["failed", "missed", "at the second attempt"],
)
def test_of_a_member_what_went_wrong_is_kept(event):
    (one,) = kept(event)
    assert (one.schedule_id, one.of_member) == (ID, True)


def test_slots_come_newest_first_and_the_last_record_of_a_slot_counts():
    rows = [an_event(slot_us=T0 + n * SECOND, started_us=T0 + n * SECOND) for n in range(3)]
    again = an_event(RunState.FAILED, "Network", started_us=T0)
    value = b"".join(map(history.record, [*rows, again]))
    found = history.read(value)
    assert [slot.slot_us for slot in found] == [T0 + 2 * SECOND, T0 + SECOND, T0]
    assert found[-1].reason == "Network"


@pytest.mark.parametrize(
    "value", [b"\x00", b"\x05abcd", b"\xff", b"\x03\x91\xc0"], ids=["zero", "text", "cut", "nil"]
)
def test_what_another_version_wrote_is_left_out(value):
    good = history.record(an_event())
    assert len(history.read(good + value)) == 1
