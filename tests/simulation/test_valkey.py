"""What the simulated server answers by itself, it answers as a real one."""

from __future__ import annotations

import pytest

NOW_US = 1_800_000_000_000_000
CLAIM = ("XAUTOCLAIM", "runs", "status", "next", 0)


@pytest.fixture
def server(valkey):
    valkey.begin(lambda: NOW_US)
    added = [("XADD", "runs", f"1-{number}", "n", number) for number in range(1, 251)]
    valkey.carry_out(
        [
            *added,
            ("XGROUP CREATE", "runs", "status", "0"),
            ("XREADGROUP", "GROUP", "status", "gone", "COUNT", 250, "STREAMS", "runs", ">"),
        ]
    )
    return valkey


@pytest.mark.parametrize("start", ["0-0", "1-100", "1-151", "1-152", "1-250"])
def test_unacknowledged_entries_are_claimed_page_by_page_as_by_the_server(server, start):
    command = (*CLAIM, start, "COUNT", 100)
    cursor, entries, _ = server.carry_out([command])[0]
    real_cursor, real_entries, _ = server.look(command)[0]
    assert cursor == real_cursor
    assert [id_ for id_, _ in entries] == [id_ for id_, _ in real_entries]
    assert entries


def test_entries_that_a_clock_ahead_saw_read_are_claimed_at_once_where_no_idleness_is_asked_for(
    valkey,
):
    valkey.begin(lambda: NOW_US)
    valkey.clock_offset_us = 3_600_000_000
    valkey.carry_out(
        [
            ("XADD", "runs", "1-1", "n", 1),
            ("XGROUP CREATE", "runs", "status", "0"),
            ("XREADGROUP", "GROUP", "status", "gone", "COUNT", 9, "STREAMS", "runs", ">"),
        ]
    )
    valkey.clock_offset_us = 0
    command = ("XAUTOCLAIM", "runs", "status", "next", 1_000, "0-0", "COUNT", 100)
    assert valkey.carry_out([command])[0][1] == []
    _, entries, _ = valkey.carry_out([(*CLAIM, "0-0", "COUNT", 100)])[0]
    assert [id_ for id_, _ in entries] == [b"1-1"]
