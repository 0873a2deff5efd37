"""Open slots as a status writes them: short, readable, and read back as they were."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duepoint.controller.status import slotlist
from duepoint.runs.settled import NOTHING, Settled
from tests.support.builders import at

S = 1_000_000
NOON = at("2026-03-01 12:00:00")
SLOTS = st.lists(st.integers(1, 4_102_444_800 * S), unique=True, max_size=300).map(sorted)


@pytest.mark.parametrize(
    ("slots_us", "text"),
    [
        ([], ""),
        ([NOON], "2026-03-01T12:00:00Z"),
        ([NOON, NOON + 300 * S, NOON + 600 * S], "2026-03-01T12:00:00Z +300*2"),
        ([NOON, NOON + S, NOON + 3 * S], "2026-03-01T12:00:00Z +1 +2"),
        ([NOON + 500_000, NOON + 750_000], "2026-03-01T12:00:00.500000Z +0.25"),
    ],
    ids=["none", "one", "equal-distances", "other-distances", "fractions"],
)
def test_slots_are_written_as_an_instant_and_distances(slots_us, text):
    assert slotlist.text(slots_us) == text
    assert slotlist.parse(text) == tuple(slots_us)


@given(SLOTS)
def test_slots_are_read_back_as_they_were(slots_us):
    assert slotlist.parse(slotlist.text(slots_us)) == tuple(slots_us)


@given(st.text() | st.none() | st.integers())
def test_a_text_that_is_not_ours_holds_no_slots(text):
    assert isinstance(slotlist.parse(text), tuple)


@pytest.mark.parametrize(
    "text",
    ["noon", "2026-03-01T12:00:00Z 300", "2026-03-01T12:00:00Z +1*999999", "2026-03-01T12:00:00Z "],
    ids=["no-instant", "no-distance", "far-too-many", "a-blank-at-the-end"],
)
def test_a_damaged_text_holds_no_slots(text):
    assert slotlist.parse(text) == ()


def test_a_hundred_slots_of_one_rhythm_are_a_short_text():
    listed = [NOON + number * 300 * S for number in range(100)]
    assert slotlist.text(listed) == "2026-03-01T12:00:00Z +300*99"


@given(st.integers(1, 4_102_444_800 * S), SLOTS, SLOTS)
def test_a_status_says_what_it_was_given(through_us, started_us, waiting_us):
    settled = Settled(through_us, tuple(started_us), tuple(waiting_us))
    status = {"settledThrough": slotlist.instant(through_us)}
    if (listed := slotlist.rendered(settled)) is not None:
        status["openSlots"] = listed
        assert listed["count"] == len(started_us) + len(waiting_us)
    assert slotlist.read(status) == settled


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"openSlots": {"started": "2026-03-01T12:00:00Z"}},
        {"settledThrough": 7, "openSlots": []},
    ],
    ids=["empty", "no-watermark", "other-types"],
)
def test_a_status_without_a_watermark_says_nothing(status):
    assert slotlist.read(status) == NOTHING
