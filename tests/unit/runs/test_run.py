"""What workers tell of many slots at a time is what they would tell of each."""

from __future__ import annotations

import msgspec
import pytest

from duepoint.runs import run
from duepoint.schedules.conditions import Reason

UIDS = [f"6f1c9a34-0000-4000-8000-00000000000{number}" for number in range(3)]


def _together(**changed):
    told = {
        "namespace": "default", "trigger": "Schedule", "at_us": 30, "started_us": 10,
        "accepted_us": 20, "uids": UIDS, "names": ["a", "b", "c"], "generations": [4],
        "slots_us": [7, 8, 9], "messages": ["entry 1-0", "entry 1-1", "entry 1-2"],
    }  # fmt: skip
    return run.Together(**(told | changed))


def _alone(number):
    return run.RunEvent(
        uid=UIDS[number], namespace="default", name="abc"[number], generation=4,
        slot_us=7 + number, trigger="Schedule", state=run.RunState.SUCCEEDED,
        reason=Reason.SUCCEEDED, at_us=30, message=f"entry 1-{number}", started_us=10,
        finished_us=20, attempts=1, settled_us=7 + number,
    )  # fmt: skip


def test_slots_delivered_together_are_told_like_slots_delivered_alone():
    assert run.unpack(run.pack([_together()])) == [_alone(0), _alone(1), _alone(2)]


def test_news_of_both_kinds_share_an_entry():
    skipped = msgspec.structs.replace(_alone(2), state=run.RunState.SKIPPED)
    assert run.unpack(run.pack([_together(), skipped])) == [
        skipped, _alone(0), _alone(1), _alone(2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "entry",
    [
        run.pack([_together(slots_us=[7, 8])]),
        run.pack([_together(messages=[])]),
        run.pack([_together()])[:-3],
        b"",
        msgspec.msgpack.encode({"events": []}),
    ],
    ids=["short column", "empty column", "cut short", "empty", "half"],
)
def test_an_entry_that_cannot_be_read_is_said_to_be_so(entry):
    with pytest.raises(msgspec.DecodeError):
        run.unpack(entry)
