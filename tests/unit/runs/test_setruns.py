"""What settlements say of members: sums by set, and no event for each of them."""

from __future__ import annotations

import msgspec
import pytest

from duepoint.runs import run
from duepoint.runs.run import RunState, SetTally
from duepoint.schedules import points

OWNER = points.SetIdentity("set-uid", "shop", "reminders")
OTHER = points.SetIdentity("other-uid", "shop", "others")


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


def _sets(packed: bytes) -> dict[str, list[int]]:
    """What the script that writes this counts, by the uids of sets."""
    news = msgspec.msgpack.decode(packed)
    return news.get("sets", {}) if isinstance(news, dict) else {}


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
    assert run.unpack(packed) == []
    ended = SetTally(succeeded=1, failed=1, missed=40, started=1, newest_slot_us=2_000_000)
    assert _sets(packed) == {
        "set-uid": list(msgspec.structs.astuple(ended)),
        "other-uid": list(msgspec.structs.astuple(SetTally(skipped=1))),
    }


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
    packed = run.pack([together, _event(RunState.FAILED, owner=None)])
    uids = [event.uid for event in run.unpack(packed)]
    if owner is None:
        assert (uids, _sets(packed)) == (["member", "u1", "u2"], {})
    else:
        assert (uids, _sets(packed)) == (["member"], {"set-uid": [2, 0, 0, 0, 0, 1_000_000]})
