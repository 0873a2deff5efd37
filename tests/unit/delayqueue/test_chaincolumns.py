"""Claimed chains as columns: the same points as one by one."""

from __future__ import annotations

from duepoint.delayqueue.claims import chaincolumns
from duepoint.schedules import points

A, B, C = b"aaaaaaaa0001", b"bbbbbbbb0001", b"cccccccc0001"


def test_the_rows_are_the_points():
    chains = chaincolumns.from_lanes([b"1", [A, b"5", B, b"7"]])
    assert chains == (points.parse_member(A, 5), points.parse_member(B, 7))
    assert chains[1].due_us == 7
    assert chains[:1] == (points.parse_member(A, 5),)
    assert chains.ids() == [A[:8], B[:8]]
    assert len(chains) == len(list(chains)) == 2


def test_points_of_several_lanes_come_oldest_first():
    chains = chaincolumns.from_lanes([b"1", [A, b"5", B, b"7"], b"2", [C, b"6"]])
    assert chains.members == [A, C, B]
    assert chains.dues == [5, 6, 7]


def test_a_claim_with_an_occurrence_or_an_odd_due_is_taken_apart_point_by_point():
    assert chaincolumns.from_lanes([b"1", [A, b"5", A + b"123456789", b"5"]]) is None
    assert chaincolumns.from_lanes([b"1", [A, b"-1"]]) is None
    assert chaincolumns.from_lanes([b"1", [A, b"inf"]]) is None
    assert chaincolumns.from_lanes([b"1", [A, b"nan"]]) is None
    assert chaincolumns.from_lanes([]) is None
