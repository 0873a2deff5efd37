"""What goes to standard output and standard error, and the exit codes.

Rows come one by one and leave one by one, so a million of them take no more memory than one. JSON
is one object a line, in ASCII; a table is for people and has columns of a fixed width. Whatever is
repeated of somebody's input fits on one line: line breaks and control characters are escaped.
"""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from collections.abc import Iterable, Mapping

from duepoint import errors

NOTHING = 1
BAD_INPUT = 2
INTERRUPTED = 130

FORMATS = ("json", "table")

#: Control characters, line separators and marks that turn the direction of what follows.
_UNSHOWN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")

Row = Mapping[str, str]

_encoded = json.JSONEncoder(check_circular=False).encode


def format_of(given: str | None) -> str:
    """The format asked for; unset is a table on a terminal and JSON into a file or pipe."""
    if given is None:
        return "table" if sys.stdout.isatty() else "json"
    return choice("--output", given, FORMATS)


def choice(option: str, given: str, known: Iterable[str]) -> str:
    """The known word that was meant, in any case.

    Raises:
        errors.InvalidSetting: none was.
    """
    for word in known:
        if word.lower() == given.lower():
            return word
    raise errors.InvalidSetting(option, f"{errors.quoted(given)}: write {' or '.join(known)}")


def write(rows: Iterable[Row], form: str, *, widths: Mapping[str, int]) -> int:
    """Write all rows; how many they were."""
    count = 0
    for row in rows:
        if form == "json":
            sys.stdout.write(_encoded(row) + "\n")
        else:
            if count == 0:
                sys.stdout.write(_aligned({name: name for name in widths}, widths))
            sys.stdout.write(_aligned(row, widths))
        count += 1
    return count


def say(text: str = "") -> None:
    """One line for people, on standard output."""
    sys.stdout.write(f"{one_line(text)}\n")


def complain(text: str, program: str = "duepoint") -> None:
    """One line on standard error."""
    sys.stdout.flush()
    sys.stderr.write(f"{program}: {one_line(text)}\n")


def one_line(text: str) -> str:
    """The text with everything that is not plainly shown written as an escape."""
    return _UNSHOWN.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


def width(text: str) -> int:
    """Columns that a line of text takes on a terminal: none for marks on a letter, two for many."""
    if text.isascii():
        return len(text)
    return sum(map(_columns, text))


def cut(text: str, most: int) -> str:
    """The text as one line of at most so many columns."""
    shown = one_line(text)
    if width(shown) <= most:
        return shown
    taken, left = "", max(0, most - 3)
    for letter in shown:
        left -= _columns(letter)
        if left < 0:
            break
        taken += letter
    return taken + "..."


def _columns(letter: str) -> int:
    if unicodedata.category(letter) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in ("W", "F") else 1


def escape_what_cannot_be_shown() -> None:
    """A terminal or pipe that is not UTF-8 gets escapes, never an exception."""
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="backslashreplace")


def _aligned(row: Row, widths: Mapping[str, int]) -> str:
    cells = [_filled(one_line(row.get(name, "")), most) for name, most in widths.items()]
    return "  ".join(cells).rstrip() + "\n"


def _filled(cell: str, most: int) -> str:
    return cell + " " * (most - width(cell))
