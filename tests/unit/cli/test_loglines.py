"""The lines of a log that arrives in pieces, and where it is resumed."""

from __future__ import annotations

import pytest

from duepoint.cli.schedules import loglines
from duepoint.cli.schedules.loglines import LogLine


def stamped(second: int, nanosecond: int, text: str) -> bytes:
    return b"2026-11-28T10:00:%02d.%09dZ %s\n" % (second, nanosecond, text.encode())


def texts(lines: list[LogLine]) -> list[str]:
    return [line.text for line in lines]


def test_lines_are_whole_wherever_the_pieces_are_cut():
    log = stamped(1, 5, "one") + stamped(2, 0, "") + stamped(2, 1, "drei ü")
    for at in range(len(log)):
        lines = loglines.LogLines()
        found = [*lines.feed(log[:at]), *lines.feed(log[at:])]
        assert texts(found) == ["one", "", "drei ü"], at
        assert found[0].stamp == "2026-11-28T10:00:01.000000005Z"


def test_the_end_of_a_log_needs_no_line_break():
    lines = loglines.LogLines()
    assert lines.feed(stamped(1, 0, "half")[:-1]) == []
    assert texts(lines.end()) == ["half"]
    assert lines.end() == []


def test_a_resumed_log_repeats_nothing_and_loses_nothing():
    """Cut behind every byte; the server gives again what is not older than the whole second."""
    log = [
        stamped(1, 7, "a"), stamped(2, 1, "b"), stamped(2, 1, "b"), stamped(2, 9, "c"),
        stamped(2, 3, "written late"), stamped(3, 0, "d"),
    ]  # fmt: skip
    whole = b"".join(log)
    for at in range(len(whole) + 1):
        lines = loglines.LogLines()
        found = lines.feed(whole[:at])
        since = lines.resume()
        again = [line for line in log if not since or line[:19].decode() >= since[:19]]
        found += lines.feed(b"".join(again))
        assert texts(found) == ["a", "b", "b", "c", "written late", "d"], at


def test_a_log_is_resumed_twice_within_a_second():
    lines = loglines.LogLines()
    first, second, third = (stamped(5, n, f"line {n}") for n in range(3))
    assert texts(lines.feed(first)) == ["line 0"]
    assert lines.resume() == "2026-11-28T10:00:05Z"
    assert texts(lines.feed(first + second)) == ["line 1"]
    lines.resume()
    assert texts(lines.feed(first + second + third)) == ["line 2"]


def test_after_a_rotation_new_lines_of_the_second_are_shown():
    """The kubelet reads the newest file only: fewer lines come again than were shown."""
    lines = loglines.LogLines()
    lines.feed(b"".join(stamped(5, n, f"old {n}") for n in range(3)))
    lines.resume()
    found = lines.feed(stamped(5, 2, "old 2") + stamped(5, 7, "new") + stamped(6, 0, "newer"))
    assert texts(found) == ["new", "newer"]


@pytest.mark.parametrize("offset", ["+01:00", "-05:30"])
def test_a_node_may_write_its_own_zone(offset):
    lines = loglines.LogLines()
    [line] = lines.feed(f"2026-11-28T10:00:05.25{offset} text\n".encode())
    assert (line.stamp, line.text) == (f"2026-11-28T10:00:05.25{offset}", "text")
    assert lines.resume() == f"2026-11-28T10:00:05{offset}"


@pytest.mark.parametrize(
    "text",
    ["failed to read the log", "2026-13-99T99:99:99Z text", "2026-11-28 10:00:00 text", "\u2713"],
)
def test_a_line_without_a_time_is_shown_as_it_is(text):
    lines = loglines.LogLines()
    assert lines.feed(f"{text}\n".encode()) == [LogLine("", text)]
    assert lines.resume() == ""


def test_a_very_long_line_comes_in_parts_of_bounded_memory():
    lines = loglines.LogLines()
    long = stamped(1, 0, "x" * (3 * loglines.MOST_BYTES))
    found = []
    for at in range(0, len(long), 65536):
        found += lines.feed(long[at : at + 65536])
    assert len(found) > 2
    assert "".join(texts(found)) == "x" * (3 * loglines.MOST_BYTES)
    lines.resume()
    repeated = lines.feed(long + stamped(1, 1, "next"))
    assert texts(repeated) == ["next"]


def test_bytes_that_are_no_text_are_replaced():
    assert texts(loglines.LogLines().feed(b"\xff\xfe\r\n")) == ["\ufffd\ufffd"]
