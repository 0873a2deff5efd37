"""What the comparison says of points that waited, from what is known otherwise."""

from __future__ import annotations

import pytest

from duepoint.controller.maintenance import comparing
from duepoint.delayqueue import messages
from duepoint.delayqueue.repair import suspectpoints
from duepoint.runs.watermark import Watermark
from duepoint.schedules import points
from duepoint.schedules.points import DuePoint, PointKind
from tests.support.builders import a_definition, at

NOON = at("2026-03-01 12:00:00")
MINUTE = 60_000_000
NOW = NOON + 60 * MINUTE
KNOWN = a_definition("*/5 * * * *")


class Endings:
    """All that is known of one schedule."""

    def __init__(
        self, settled: Watermark, ended: tuple[int, ...] = (), told: tuple[int, ...] = ()
    ) -> None:
        self._settled = settled
        self._ended = ended
        self._told = told
        self.states = self.runs = self

    def settled(self, _uid):
        return self._settled

    def has_ended(self, _known, slot_us):
        return slot_us in self._ended

    def is_published_as_ended(self, _uid, slot_us):
        return slot_us in self._told

    def started(self, _uid):
        return 0


def a_held_point(first_us: int, back_us: int, known=KNOWN) -> suspectpoints.HeldPoint:
    point = DuePoint(
        schedule_id=known.id,
        timing_version=known.timing_version,
        kind=PointKind.HELD,
        due_us=points.HELD_US,
        slot_us=first_us,
    )
    record = messages.OccurrenceRecord(back_us=back_us, from_us=first_us)
    return suspectpoints.HeldPoint(lane=1, point=point, record=record, definition=known)


def told(found) -> list[tuple[int, int, bool]]:
    return [(one.slot_us, one.settled_us, one.completed) for one in found.events]


@pytest.mark.parametrize("has_ended", [True, False], ids=["its-job-is-there", "nobody-knows"])
def test_a_slot_that_a_status_calls_open_gets_a_point_again_unless_it_has_ended(has_ended):
    settled = Watermark(through_us=NOON + 10 * MINUTE, waiting_us=(NOON + 5 * MINUTE,))
    ended = (NOON + 5 * MINUTE,) if has_ended else ()
    found = comparing.compare(
        [a_held_point(NOON, NOON + 11 * MINUTE)],
        Endings(settled, ended),
        back_us=NOON + 11 * MINUTE,
        now_us=NOW,
    )
    added = [lost.point.slot_us for _, lost in found.compared.added]
    assert added == ([] if has_ended else [NOON + 5 * MINUTE])
    assert len(found.compared.gone) == 1


@pytest.mark.parametrize(
    ("replayed_us", "is_over"), [(0, True), (NOON, False)], ids=["as-it-was", "replayed-since"]
)
def test_a_slot_in_hand_at_the_snapshot_whose_end_a_status_tells_is_not_run_again(
    replayed_us, is_over
):
    planned = DuePoint(
        schedule_id=KNOWN.id,
        timing_version=KNOWN.timing_version,
        kind=PointKind.PLANNED,
        due_us=points.HELD_US,
        slot_us=NOON,
    )
    record = messages.OccurrenceRecord(replayed_us=replayed_us)
    held = suspectpoints.HeldPoint(lane=1, point=planned, record=record, definition=KNOWN)
    settled = Watermark(through_us=NOON + 5 * MINUTE, waiting_us=(NOON,))
    found = comparing.compare(
        [held], Endings(settled, told=(NOON,)), back_us=NOON + 6 * MINUTE, now_us=NOW
    )
    assert found.compared.gone == ([held] if is_over else [])
    assert [one for one, _ in found.compared.due] == ([] if is_over else [held])


def test_slots_behind_more_that_have_ended_than_are_looked_at_are_not_lost():
    ended = tuple(NOON + number * 5 * MINUTE for number in range(2_000))
    back_us = ended[-1] + 6 * MINUTE
    found = comparing.compare(
        [a_held_point(NOON, back_us)],
        Endings(Watermark(through_us=NOON - 5 * MINUTE), ended),
        back_us=back_us,
        now_us=NOW,
    )
    assert found.compared.gone == []
    assert [record.from_us for _, record in found.compared.due] == [ended[-1] + 5 * MINUTE]


ONCE = a_definition("@at 2026-03-01T12:00:00Z")


@pytest.mark.parametrize(
    ("known", "newest_us", "is_last"),
    [(KNOWN, NOON + 5 * MINUTE, False), (ONCE, NOON, True)],
    ids=["goes-on", "the-last-slot"],
)
def test_the_watermark_passes_slots_that_have_ended_otherwise(known, newest_us, is_last):
    found = comparing.compare(
        [a_held_point(NOON, NOON + 6 * MINUTE, known)],
        Endings(Watermark(through_us=NOON - MINUTE), (NOON, NOON + 5 * MINUTE)),
        back_us=NOON + 6 * MINUTE,
        now_us=NOW,
    )
    assert len(found.compared.gone) == 1
    assert told(found) == [(newest_us, newest_us, is_last)]


def test_the_watermark_passes_what_has_ended_behind_a_slot_that_runs_now():
    found = comparing.compare(
        [a_held_point(NOON, NOON + 6 * MINUTE)],
        Endings(Watermark(through_us=NOON - MINUTE), (NOON + 5 * MINUTE,)),
        back_us=NOON + 6 * MINUTE,
        now_us=NOW,
    )
    assert [record.ended_us for _, record in found.compared.due] == [(NOON + 5 * MINUTE,)]
    assert told(found) == [(NOON + 5 * MINUTE, NOON + 5 * MINUTE, False)]


def test_the_watermark_does_not_pass_the_newest_slot_that_has_not_ended():
    found = comparing.compare(
        [a_held_point(NOON, NOON + 6 * MINUTE)],
        Endings(Watermark(through_us=NOON - MINUTE), (NOON,)),
        back_us=NOON + 6 * MINUTE,
        now_us=NOW,
    )
    assert told(found) == []
