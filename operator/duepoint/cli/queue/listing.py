"""Lists of what was seen in the queue: one object a line, or a table that fits the terminal.

A row is what JSON shows; of the same row a table shows short cells. On a terminal that is too
narrow the columns that can best be spared go, last ones first, and a text at the end is cut. Where
there is no terminal nothing is left out.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from duepoint.cli import instants, output

Row = dict[str, Any]
Cells = dict[str, str]


def write(
    rows: Iterable[Row],
    form: str,
    cells: Callable[[Row], Cells],
    *,
    spare: Sequence[str] = (),
    cut: str = "",
) -> int:
    """Write all rows; how many they were.

    Args:
        cells: what the table shows of a row; the names are the columns.
        spare: columns that may go where the terminal is too narrow, the first one first.
        cut: the column, the last one, whose texts may be cut.
    """
    listed = list(rows)
    if form == "json":
        for row in listed:
            sys.stdout.write(json.dumps(row) + "\n")
    elif listed:
        _write_table([cells(row) for row in listed], list(spare), cut)
    return len(listed)


def write_one(row: Row, form: str, cells: Cells) -> int:
    """Write one row: as JSON, or one line a cell."""
    if form == "json":
        sys.stdout.write(json.dumps(row) + "\n")
        return 1
    width = max(map(len, cells))
    for name, cell in cells.items():
        output.say(f"{name.ljust(width)}  {cell}".rstrip())
    return 1


def _write_table(lines: list[Cells], spare: list[str], cut: str) -> None:
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    widths = {
        name: max(
            [len(name), *(output.width(output.one_line(line.get(name, ""))) for line in lines)]
        )
        for name in lines[0]
    }
    while room is not None and _width(widths, cut) > room and spare:
        widths.pop(spare.pop(0), None)
    if room is not None and cut in widths:
        others = sum(width + 2 for name, width in widths.items() if name != cut)
        widths[cut] = min(widths[cut], max(len(cut), room - others))
    shortened = (
        {**line, cut: output.cut(line.get(cut, ""), widths[cut])} if cut in widths else line
        for line in lines
    )
    output.write(shortened, "table", widths=widths)


def _width(widths: dict[str, int], cut: str) -> int:
    """What a line needs; of the text that may be cut twenty characters should be left."""
    fixed = sum(width for name, width in widths.items() if name != cut)
    return fixed + (min(20, widths[cut]) if cut in widths else 0) + 2 * (len(widths) - 1)


# -- cells ---------------------------------------------------------------------------------------


def time(instant_us: int | None) -> str | None:
    """RFC 3339 in UTC; None stays None, and so is an instant that has no such text."""
    try:
        return None if instant_us is None else instants.utc_text(instant_us)
    except OverflowError:
        return None


def short_time(text: str | None) -> str:
    """A time cell: to the millisecond, as wide as every other."""
    if text is None:
        return ""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    return f"{whole}.{fraction[:3].ljust(3, '0')}Z"


def text(value: object) -> str:
    """A cell: nothing for None."""
    return "" if value is None else str(value)


def span(seconds: float) -> str:
    """A span for people: its two largest units; a minus in front of what is past."""
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
    """Bytes for people, in powers of 1024."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def name(row: Row) -> str:
    """``namespace/name`` of the Schedule in a row, as far as it is known."""
    if not row["namespace"] and not row["schedule"]:
        return "?"
    return f"{row['namespace'] or '?'}/{row['schedule'] or '?'}"
