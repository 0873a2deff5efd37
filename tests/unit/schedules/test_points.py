"""Members of the queue: what is written is what is read, and nothing else is taken for ours."""

from __future__ import annotations

import pytest
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


@pytest.mark.parametrize(
    "member",
    [
        b"",
        b"short",
        b"x" * 13,
        b"x" * 12 + b"\x00" + b"\0" * 8,
        b"x" * 12 + b"\x07" + b"\0" * 8,
        b"x" * 12 + b"\x01" + b"\xff" * 8,
        b"x" * 26,
    ],
    ids=[
        "empty",
        "short",
        "between-lengths",
        "chain-kind-in-an-occurrence",
        "kind-from-the-future",
        "slot-beyond-the-limit",
        "too-long",
    ],
)
def test_bytes_that_are_not_ours_are_told_apart(member):
    assert points.parse_member(member, 0) is None


def test_a_namespace_uses_four_of_sixty_four_shards():
    shards = {
        int.from_bytes(points.schedule_id(f"uid-{number}", "team-a"), "big") % 64
        for number in range(2000)
    }
    assert len(shards) == 4


def test_many_namespaces_use_all_shards():
    shards = {
        int.from_bytes(points.schedule_id("uid", f"team-{number}"), "big") % 64
        for number in range(2000)
    }
    assert len(shards) == 16  # the two low bits come from the one uid
    assert points.schedule_id("uid", "a") != points.schedule_id("uid", "a", collision=1)


def test_only_a_timing_edit_changes_the_version():
    assert points.timing_version("uid", 1) == points.timing_version("uid", 1)
    assert points.timing_version("uid", 1) != points.timing_version("uid", 2)
    assert points.timing_version("uid", 1) != points.timing_version("other", 1)
