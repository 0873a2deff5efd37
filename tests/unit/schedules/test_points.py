"""Members of the queue: what is written is what is read, and nothing else is taken for ours."""

from __future__ import annotations

import pytest

from duepoint.schedules import points


@pytest.mark.parametrize(
    "member",
    [
        b"",
        b"short",
        b"x" * 13,
        b"x" * 12 + b"\x00" + b"\0" * 8,
        b"x" * 12 + b"\x09" + b"\0" * 8,
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


def test_only_a_timing_edit_changes_the_version():
    assert points.timing_version("uid", 1) == bytes.fromhex("df59627b")
    assert points.timing_version("uid", 1) != points.timing_version("uid", 2)
    assert points.timing_version("uid", 1) != points.timing_version("other", 1)
