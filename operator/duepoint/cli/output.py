"""Writes to standard output and standard error, and defines the exit codes.

JSON is one object per line, in ASCII; tables are for people. ``write`` streams rows under columns
of a fixed width, so a million rows take no more memory than one; ``show_rows`` fits the columns to
a whole list. Quoted user input stays on one line: line breaks and control characters are escaped.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TextIO

from duepoint.cli import instants

#: The answer is negative: a run failed, or a check found something wrong.
FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130

#: Characters that make a text look different from what it is, so that it can pass for another: line
#: separators, marks that change the direction of the following text, and invisible characters
#: (Unicode's Default_Ignorable_Code_Point).
_DECEIVING = (
    "\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_UNSHOWN = re.compile(f"[\x00-\x1f{_DECEIVING}]")

Row = dict[str, Any]
Cells = dict[str, str]
#: Columns of a table: for each the key in a row, or a function from the row to the cell.
Columns = Mapping[str, str | Callable[[Row], str]]

_encoded = json.JSONEncoder(check_circular=False).encode


def write(rows: Iterable[Row], form: str, *, widths: Mapping[str, int] | None = None) -> int:
    """Write all rows; return how many there were. JSON and YAML need no ``widths``."""
    widths = widths or {}
    count = 0
    for row in rows:
        if form == "json":
            sys.stdout.write(_encoded(row) + "\n")
        elif form == "yaml":
            sys.stdout.write("---\n" + _document(row))
        else:
            if count == 0:
                sys.stdout.write(_aligned({name: name for name in widths}, widths))
            sys.stdout.write(_aligned(row, widths))
        count += 1
    return count


def is_data(form: str) -> bool:
    """Whether the output is for programs: with all fields, and without words around it."""
    return form in ("json", "yaml")


def _document(row: Row) -> str:
    import yaml  # noqa: PLC0415 - most calls need no YAML

    plain = json.loads(_encoded(row))
    written: str = yaml.safe_dump(plain, sort_keys=False, allow_unicode=False, width=1 << 20)
    return written


def say(text: str = "") -> None:
    """Write one line for people to standard output."""
    sys.stdout.write(f"{one_line(text)}\n")


def complain(text: str, program: str = "duepoint") -> None:
    """Write one line to standard error."""
    sys.stdout.flush()
    sys.stderr.write(f"{one_line(f'{program}: {text}')}\n")


def one_line(text: str) -> str:
    """Return the text with all characters that would not be shown plainly escaped."""
    return _UNSHOWN.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


def deceives(text: str) -> bool:
    """Whether a text of several lines has characters that make it look different."""
    return re.search(f"[{_DECEIVING}]", text) is not None


def width(text: str) -> int:
    """Return how many columns a text takes on a terminal; characters may take none or two."""
    if text.isascii():
        return len(text)
    from rich import cells  # noqa: PLC0415 - most texts need no library

    return cells.cell_len(text)


def escape_what_cannot_be_shown() -> None:
    """Write escapes to a terminal or pipe that is not UTF-8, instead of raising an exception."""
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="backslashreplace")


def _aligned(row: Row, widths: Mapping[str, int]) -> str:
    cells = [(one_line(row.get(name, "")), most) for name, most in widths.items()]
    return "  ".join(cell + " " * (most - width(cell)) for cell, most in cells).rstrip() + "\n"


def can_redraw(stream: TextIO) -> bool:
    """Whether the stream is a terminal that can overwrite a line."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")


def show_rows(
    rows: Iterable[Row], form: str, columns: Columns, *, wide: Columns | None = None
) -> None:
    """Write a list, each column as wide as its widest cell.

    For ten thousand rows this takes a tenth of a second, and rich would take four seconds.

    Args:
        wide: columns that the form ``wide`` adds at the end.
    """
    listed = list(rows)
    if is_data(form) or not listed:
        write(listed, form)
        return
    columns = {**columns, **(wide or {})} if form == "wide" else columns
    lines = [
        {
            name: one_line(text(row[of]) if isinstance(of, str) else of(row))
            for name, of in columns.items()
        }
        for row in listed
    ]
    widths = {name: max(width(name), *(width(line[name]) for line in lines)) for name in columns}
    write(lines, "table", widths=widths)


def show_row(row: Row, form: str, cells: Cells) -> None:
    """Write one row as JSON, or with one line per cell."""
    if is_data(form):
        write([row], form)
        return
    widest = max(map(len, cells))
    for name, cell in cells.items():
        say(f"{name.ljust(widest)}  {cell}".rstrip())


# -- cells ---------------------------------------------------------------------------------------


def time(instant_us: int | None) -> str | None:
    """Return an instant as RFC 3339 in UTC; None for None and for one that has no such text."""
    try:
        return None if instant_us is None else instants.utc_text(instant_us)
    except OverflowError:
        return None


def short_time(text: str | None) -> str:
    """Return a cell for a time in milliseconds; all have the same width."""
    if text is None:
        return ""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    return f"{whole}.{fraction[:3].ljust(3, '0')}Z"


def text(value: object) -> str:
    """Return a cell for a value; empty for None."""
    return "" if value is None else str(value)


def span(seconds: float) -> str:
    """Return a time span for people: its two largest units, with a minus if it is in the past."""
    sign, left = ("-", -seconds) if seconds < 0 else ("", seconds)
    if left < 1:
        return f"{sign}{round(left * 1000)}ms"
    if left < 60:
        return f"{sign}{left:.1f}s"
    parts: list[str] = []
    whole = round(left)
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, whole = divmod(whole, size)
        if count or parts:
            parts.append(f"{count}{unit}")
    return sign + "".join(parts[:2])


def size(count: int) -> str:
    """Return a number of bytes for people, in powers of 1024."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def name(row: Row) -> str:
    """Return ``namespace/name`` of the Schedule in a row, with ``?`` for unknown parts."""
    if not row["namespace"] and not row["schedule"]:
        return "?"
    return f"{row['namespace'] or '?'}/{row['schedule'] or '?'}"


# -- progress --------------------------------------------------------------------------------------


#: Called with the progress, a few words and, once it is known, the total.
Advance = Callable[..., None]


@contextlib.contextmanager
def bar(name: str, total: float | None) -> Iterator[Advance]:
    """Show a progress bar within the context; ``total`` None = unknown."""
    if not sys.stderr.isatty():
        yield lambda _done, _text, _total=None: None
        return
    from rich import console, progress  # noqa: PLC0415 - only on a terminal

    shown = progress.Progress(
        progress.TextColumn("{task.fields[name]}", markup=False),
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
        progress.TextColumn("{task.fields[text]}", markup=False),
        console=console.Console(stderr=True),
    )
    with shown:
        task = shown.add_task("", name=name, text="", total=total)

        def advance(done: float, text: str, whole: float | None = None) -> None:
            shown.update(task, completed=done, text=one_line(text), total=whole or total)

        yield advance
