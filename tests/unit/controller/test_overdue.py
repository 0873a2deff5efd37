"""What becomes of a Schedule that was due when its server went back, by what is known otherwise."""

from __future__ import annotations

import dataclasses

import pytest

from duepoint.controller.maintenance import fallbacks
from duepoint.delayqueue import messages
from duepoint.delayqueue.definitions.occurrences import StoredOccurrence
from duepoint.delayqueue.repair.fallbacks import Overdue
from duepoint.kube import jobbuilder
from duepoint.runs.watermark import Watermark
from duepoint.schedules.points import DuePoint, PointKind
from tests.support.builders import a_definition, at

NOON = at("2026-03-01 12:00:00")
MINUTE = 60_000_000
KNOWN = a_definition("*/5 * * * *")
BACK = NOON + 11 * MINUTE


@dataclasses.dataclass
class Known:
    """All that is known of one Schedule, in the place of states, Jobs and ScheduleRuns."""

    watermark: Watermark | None
    made: tuple[int, ...] = ()
    run_has_ended: bool | None = None
    runs_started: int = 0

    def settled(self, _uid):
        return self.watermark

    def started(self, _uid):
        return self.runs_started

    def has(self, _owner, name):
        return name in {jobbuilder.name_of(KNOWN.name, slot_us) for slot_us in self.made}

    def has_ended(self, _run_uid, _slot_us):
        return self.run_has_ended


def again(one: Overdue, known: Known, **options):
    endings = fallbacks.Endings(states=known, jobs=known, runs=known)
    settled = endings.settled(one.definition, BACK)
    return fallbacks.put_again(one, settled, endings, **options)


def a_slot(kind: PointKind, slot_us: int, **record) -> StoredOccurrence:
    point = DuePoint(
        schedule_id=KNOWN.id,
        timing_version=KNOWN.timing_version,
        kind=kind,
        due_us=slot_us,
        slot_us=slot_us,
    )
    return StoredOccurrence(
        schedule_id=KNOWN.id,
        timing_version=KNOWN.timing_version,
        kind=kind,
        slot_us=slot_us,
        record=messages.OccurrenceRecord(**record),
        member=point.member,
    )


def a_chain(due_us: int = NOON, *slots: StoredOccurrence, known=KNOWN) -> Overdue:
    return Overdue(lane=1, definition=known, chain_due_us=due_us, occurrences=slots)


def test_what_is_open_by_the_status_stays_and_what_the_server_lost_is_back():
    settled = Watermark(
        NOON + 10 * MINUTE,
        started_us=(NOON - 5 * MINUTE, NOON + 5 * MINUTE),
        waiting_us=(NOON - 10 * MINUTE, NOON + 10 * MINUTE),
    )
    stays = a_slot(PointKind.RETRY, NOON - 5 * MINUTE)
    found = again(a_chain(NOON, stays), Known(settled))
    assert list(found.gone) == []
    # That of ten minutes ago was handed over before: it has ended in the server's state.
    assert [(one.point.kind, one.point.slot_us) for one in found.lost] == [
        (PointKind.RETRY, NOON + 5 * MINUTE),
        (PointKind.PLANNED, NOON + 10 * MINUTE),
    ]
    assert found.lost[0].record.first_try_us == NOON + 5 * MINUTE


def test_where_the_target_went_back_too_the_queue_alone_is_right():
    slot = a_slot(PointKind.RETRY, NOON - 5 * MINUTE)
    settled = Watermark(NOON + 10 * MINUTE, waiting_us=(NOON + 5 * MINUTE,))
    found = again(a_chain(NOON, slot), Known(settled), goes_back=True)
    assert not found.changes


@pytest.mark.parametrize("ended", [True, False, None])
def test_a_slot_of_a_schedulerun_ends_by_that(ended):
    slot = a_slot(PointKind.MANUAL, NOON, run_uid="run-1")
    found = again(a_chain(NOON, slot), Known(Watermark(BACK), run_has_ended=ended))
    if ended is None:
        assert found is None
    else:
        assert list(found.gone) == ([slot.member] if ended else [])
