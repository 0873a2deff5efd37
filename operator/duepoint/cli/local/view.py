"""One screen: Schedules with what is next and what was last, then what arrived, newest first.

Pure: values and a size in, something rich can print out. Narrow terminals lose columns, low ones
lose rows, and say so; nothing is ever wrapped.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from duepoint.cli.local.rows import ArrivalRow, ScheduleRow

WIDE = 110
RESULT_STYLES = {
    "Succeeded": "green",
    "Failed": "red",
    "Stalled": "red",
    "Running": "cyan",
    "Retrying": "yellow",
    "Suspended": "yellow",
    "Reconciling": "yellow",
}


def screen(
    schedules: Sequence[ScheduleRow],
    deliveries: Sequence[ArrivalRow],
    notices: Sequence[str],
    *,
    now: dt.datetime,
    size: tuple[int, int],
) -> RenderableType:
    """`size` is columns and rows; the whole takes at most that many rows."""
    width, height = size
    notes = [Text(notice, style="yellow", no_wrap=True, overflow="ellipsis") for notice in notices]
    rows = height - len(notes) - 6  # a title, two headings, two blank lines and the last line
    shown = min(len(schedules), max(1, rows - min(len(deliveries), rows // 3)))
    left = max(0, rows - shown - (shown < len(schedules)))
    return Group(
        title(now, width),
        schedule_table(schedules[:shown], now, wide=width >= WIDE),
        *([_more(len(schedules) - shown)] if shown < len(schedules) else []),
        Text(),
        delivery_table(sorted(deliveries, reverse=True)[:left], wide=width >= WIDE),
        Text(),
        *notes,
        Text("Ctrl-C stops everything", style="dim", end=""),
    )


def title(now: dt.datetime, width: int) -> Text:
    clock = f"{now:%H:%M:%S} UTC"
    return Text.assemble(("Duepoint", "bold"), clock.rjust(width - len("Duepoint")))


def schedule_table(schedules: Sequence[ScheduleRow], now: dt.datetime, *, wide: bool) -> Table:
    table = _table()
    # On a narrow terminal what is left after the answers is shared by name and expression.
    for name in ("SCHEDULE", "WHEN"):
        table.add_column(name, no_wrap=True, overflow="ellipsis", ratio=None if wide else 1)
    for name in ("NEXT", "LAST"):
        table.add_column(name, no_wrap=True, overflow="ellipsis")
    # Answers keep their width; names and expressions give way.
    table.add_column("RESULT", no_wrap=True, min_width=len("Reconciling"))
    table.add_column("LATE", justify="right", no_wrap=True, min_width=len("123 ms"))
    table.add_column("RUNS", justify="right", no_wrap=True, min_width=len("RUNS"))
    if wide:
        table.add_column("TARGET", no_wrap=True, overflow="ellipsis", ratio=1)
    several = len({row.namespace for row in schedules}) > 1
    for row in schedules:
        name = f"{row.namespace}/{row.name}" if several else row.name
        cells = [
            Text(name, no_wrap=True, overflow="ellipsis"),
            Text(row.when[: 40 if wide else 20]),
            Text(until(row.next, now)),
            Text(clock(row.last, now)),
            Text(row.result, style=RESULT_STYLES.get(row.result, "dim")),
            Text(milliseconds(row.lateness)),
            Text(str(row.started)),
        ]
        table.add_row(*cells, *([Text(row.message or row.target)] if wide else []))
    return table


def delivery_table(deliveries: Sequence[ArrivalRow], *, wide: bool) -> Table:
    table = _table("ARRIVED", "WHAT", "SCHEDULE", "SLOT")
    table.add_column("LATE", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True, overflow="ellipsis", ratio=1)
    for row in deliveries:
        exact = row.is_exact and row.slot is not None
        late = row.at - row.slot if exact and row.slot else None
        at = f"{row.at:%H:%M:%S}" + (f".{row.at.microsecond // 1000:03d}" if wide and exact else "")
        slot = f"{row.slot:%H:%M:%S}" if row.slot else ""
        table.add_row(at, row.kind, row.schedule, slot, milliseconds(late), row.text)
    return table


def until(moment: dt.datetime | None, now: dt.datetime) -> str:
    """`in 12 s`; with a date when it is far away."""
    if moment is None:
        return "-"
    seconds = (moment - now).total_seconds()
    if seconds < -2:
        return f"{-seconds:.0f} s ago"
    if seconds < 120:
        return f"in {max(0, seconds):.0f} s"
    if seconds < 7200:
        return f"in {seconds / 60:.0f} min"
    return f"{moment:%H:%M}" if seconds < 86_400 else f"{moment:%Y-%m-%d}"


def clock(moment: dt.datetime | None, now: dt.datetime) -> str:
    if moment is None:
        return "-"
    return f"{moment:%H:%M:%S}" if now - moment < dt.timedelta(days=1) else f"{moment:%Y-%m-%d}"


def milliseconds(late: dt.timedelta | None) -> str:
    if late is None:
        return ""
    value = late.total_seconds() * 1000
    return f"{value:.0f} ms" if value < 10_000 else f"{value / 1000:.0f} s"


def _table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False, expand=True, header_style="bold dim")
    for name in names:
        table.add_column(name, no_wrap=True, overflow="ellipsis")
    return table


def _more(number: int) -> Text:
    return Text(f"... and {number} more", style="dim")
