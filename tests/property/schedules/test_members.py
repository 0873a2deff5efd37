"""Members of the queue come back as they were written, whatever they say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from duepoint.schedules import points
from duepoint.schedules.points import DuePoint, PointKind

ids = st.binary(min_size=8, max_size=8).map(points.ScheduleId)

versions = st.binary(min_size=4, max_size=4).map(points.TimingVersion)

instants = st.integers(0, points.DUE_LIMIT_US - 1)

occurrence_kinds = st.sampled_from([kind for kind in PointKind if kind is not PointKind.CHAIN])

tags = st.sampled_from([points.NO_RUN, points.run_tag("a"), points.run_tag("b")])


@given(ids, versions, instants)
def test_a_chain_point_is_twelve_bytes_and_comes_back(schedule_id, version, due_us):
    point = points.chain(schedule_id, version, due_us)
    assert len(point.member) == 12
    assert points.parse_member(point.member, due_us) == point


@given(ids, versions, occurrence_kinds, instants, instants, tags)
def test_an_occurrence_comes_back_with_its_slot_whatever_its_due(
    schedule_id, version, kind, slot_us, due_us, tag
):
    point = DuePoint(
        schedule_id=schedule_id,
        timing_version=version,
        kind=kind,
        due_us=due_us,
        slot_us=slot_us,
        run_tag=tag,
    )
    assert len(point.member) == 21 + len(tag)
    assert points.parse_member(point.member, due_us) == point


@given(ids, versions, occurrence_kinds, instants)
def test_all_occurrences_of_a_schedule_lie_between_its_id_and_the_next(
    schedule_id, version, kind, slot_us
):
    point = DuePoint(
        schedule_id=schedule_id, timing_version=version, kind=kind, due_us=0, slot_us=slot_us
    )
    assert schedule_id <= point.member < schedule_id + b"\xff" * 18
