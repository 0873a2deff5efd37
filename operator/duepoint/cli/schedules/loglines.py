"""The lines of a log that arrives in pieces, and where to resume it after a cut.

The log is requested with timestamps. ``since`` is the second of the newest line, because an API
server hands no finer time on to the kubelet; the lines of that second which were shown already are
passed over when they come again. A line that was cut is dropped and comes again as a whole. A line
without a timestamp is a message of the kubelet or of a proxy, and is shown as it is. Pure.
"""

from __future__ import annotations

import datetime as dt
import functools
import re
from dataclasses import dataclass

#: A line that is longer is shown in parts.
MOST_BYTES = 1024 * 1024

_STAMP = re.compile(
    rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)(?: |$)", re.ASCII
)


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line; ``stamp`` is its time as the kubelet wrote it, or empty."""

    stamp: str
    text: str


@dataclass(frozen=True, slots=True, order=True)
class _Instant:
    second: int
    nanosecond: int


_NEVER = _Instant(0, 0)


class LogLines:
    """Turns the pieces of one container's log into lines, across any number of requests."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self._newest = _NEVER
        self._since = ""  # the second of the newest line, as RFC 3339
        self._shown = 0  # lines of that second
        self._again = 0  # of these, how many a resumed log may still repeat
        self._is_inside = False  # the line under way was begun by a part that was handed out
        self._is_hidden = False  # and that part was a repetition

    def resume(self) -> str:
        """Begin another request; the ``sinceTime`` for it, or empty: no line has a time yet."""
        self._pieces, self._size, self._is_inside = [], 0, False
        self._again = self._shown
        return self._since

    def feed(self, piece: bytes) -> list[LogLine]:
        """The new lines that end in this piece."""
        head, newline, rest = piece.partition(b"\n")
        if not newline:
            self._pieces.append(piece)
            self._size += len(piece)
            return self._part() if self._size > MOST_BYTES else []
        ended = [b"".join([*self._pieces, head]), *rest.split(b"\n")]
        last = ended.pop()
        self._pieces, self._size = ([last], len(last)) if last else ([], 0)
        return [line for each in ended for line in self._line(each)]

    def end(self) -> list[LogLine]:
        """What is left where the log ends without a line break."""
        left = b"".join(self._pieces)
        self._pieces, self._size = [], 0
        return self._line(left) if left else []

    def _part(self) -> list[LogLine]:
        """The beginning of a very long line, which counts when it ends."""
        data = b"".join(self._pieces)
        self._pieces, self._size = [], 0
        if self._is_inside:
            return [] if self._is_hidden else [LogLine("", _text(data))]
        stamp, instant, text = _parsed(data)
        self._is_inside, self._is_hidden = True, self._is_repeated(instant)
        if not self._is_hidden:
            self._count(instant, stamp)
        return [] if self._is_hidden else [LogLine(stamp, _text(text))]

    def _line(self, data: bytes) -> list[LogLine]:
        if self._is_inside:
            self._is_inside = False
            return [] if self._is_hidden else [LogLine("", _text(data))]
        stamp, instant, text = _parsed(data)
        if self._is_repeated(instant):
            return []
        self._count(instant, stamp)
        return [LogLine(stamp, _text(text))]

    def _is_repeated(self, instant: _Instant) -> bool:
        if instant is _NEVER or not self._again:
            return False
        # Where the kubelet has turned to a new file, fewer lines come again than were shown.
        if instant.second != self._newest.second or instant > self._newest:
            return False
        self._again -= 1
        return True

    def _count(self, instant: _Instant, stamp: str) -> None:
        if instant is _NEVER or instant.second < self._newest.second:
            return
        if instant.second > self._newest.second:
            self._shown = self._again = 0
            self._since = _whole(stamp)
        self._shown += 1
        self._newest = max(self._newest, instant)


def _parsed(data: bytes) -> tuple[str, _Instant, bytes]:
    """Time and text of a line."""
    found = _STAMP.match(data)
    if found is None:
        return "", _NEVER, data
    stamp = found.group().decode().rstrip()
    second = _second((found[1] + found[3]).decode())
    if second is None:
        return "", _NEVER, data
    fraction = int((found[2] or b"0").ljust(9, b"0"))
    return stamp, _Instant(second, fraction), data[found.end() :]


@functools.lru_cache(maxsize=64)  # many lines share a second
def _second(text: str) -> int | None:
    """Since the epoch; None: there is no such time."""
    try:
        return int(dt.datetime.fromisoformat(text).timestamp())
    except (ValueError, OverflowError):
        return None


def _whole(stamp: str) -> str:
    """The time without its fraction."""
    return re.sub(r"\.\d+", "", stamp)


def _text(data: bytes) -> str:
    return data.removesuffix(b"\r").decode(errors="replace")
