"""What settlements say of members: sums by set, and no event for each of them."""

from __future__ import annotations

import pytest

from duepoint.runs import run, setruns
from duepoint.runs.run import RunState
from duepoint.schedules.sets import identity

OWNER = identity.SetIdentity("set-uid", "shop", "reminders")
OTHER = identity.SetIdentity("other-uid", "shop", "others")


def _event(state, **fields):
    values = {
        "uid": "member",
        "namespace": "shop",
        "name": "a",
        "generation": 1,
        "slot_us": 1_000_000,
        "trigger": "Schedule",
        "reason": "",
        "at_us": 5_000_000,
        "owner": OWNER,
        **fields,
    }
    return run.RunEvent(state=state, **values)


def test_events_of_members_are_folded_by_their_sets():
    packed = run.pack(
        [
            _event(RunState.SUCCEEDED, started_us=1_200_000, finished_us=1_500_000, attempts=1),
            _event(RunState.FAILED, slot_us=2_000_000, finished_us=3_000_000, attempts=2),
            _event(RunState.MISSED, count=40),
            _event(RunState.SKIPPED, owner=OTHER),
            _event(RunState.RUNNING, job_name="a-1", started_us=1_100_000, attempts=1),
            *(_event(state) for state in (RunState.PENDING, RunState.SUPERSEDED, RunState.RUNNING)),
        ]
    )
    news = run.unpack_news(packed)
    assert news.events == []
    assert news.sets == [
        setruns.SetOutcome(
            uid="set-uid",
            namespace="shop",
            name="reminders",
            succeeded=1,
            failed=1,
            missed=40,
            started=1,
            newest_slot_us=2_000_000,
            ended_us=3_000_000,
            worst_late_us=200_000,
        ),
        setruns.SetOutcome(uid="other-uid", namespace="shop", name="others", skipped=1),
    ]


@pytest.mark.parametrize("owner", [None, OWNER], ids=["schedules", "members"])
def test_what_was_delivered_together_is_counted_together(owner):
    together = run.Together(
        namespace="shop",
        trigger="Schedule",
        at_us=9,
        started_us=9,
        accepted_us=1_400_000,
        uids=["u1", "u2"],
        names=["a", "b"],
        generations=[1],
        slots_us=[1_000_000],
        messages=["added"],
        owner=owner,
    )
    news = run.unpack_news(run.pack([together, _event(RunState.FAILED, owner=None)]))
    if owner is None:
        assert [event.uid for event in news.events] == ["member", "u1", "u2"]
        assert news.sets == []
    else:
        assert [event.uid for event in news.events] == ["member"]
        (outcome,) = news.sets
        assert (outcome.succeeded, outcome.worst_late_us) == (2, 400_000)


def test_an_event_of_a_schedule_is_stored_as_before():
    event = _event(RunState.SUCCEEDED, owner=None)
    assert run.unpack(run.pack([event])) == [event]
