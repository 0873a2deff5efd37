"""One screen: Schedules with what is next and what was last, then what arrived, newest first.

Pure: values and a size in, something rich can print out. Narrow terminals lose columns, low ones
lose rows, and say so; notices alone are wrapped, because their end has the cause.
"""

from __future__ import annotations

import datetime as dt
import textwrap
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from duepoint.cli import output
from duepoint.cli.local.rows import ArrivalRow, ScheduleRow

WIDE = 110
#: Below these some columns go, so that a name keeps a dozen characters at 40.
_NARROW, _SLIM = 76, 56
#: So far ahead a day of the week names one day only.
_WEEKDAY_SECONDS = 6 * 86_400
#: Instead of a result: its file is wrong now, and what it said before goes on.
FORMER = "former runs"
RESULT_STYLES = {
    "Succeeded": "green",
    "Failed": "red",
    "Stalled": "red",
    "Running": "cyan",
    "Retrying": "yellow",
    "Suspended": "yellow",
    "Reconciling": "yellow",
    FORMER: "yellow",
}


def screen(
    schedules: Sequence[ScheduleRow],
    deliveries: Sequence[ArrivalRow],
    notices: Sequence[str],
    *,
    now: dt.datetime,
    size: tuple[int, int],
    end: str = "stops everything",
) -> RenderableType:
    """`size` is columns and rows; the whole takes at most that many rows.

    Args:
        end: what the keys do that leave it.
    """
    width, height = size
    notes = _notes(notices, width, height // 3)
    rows = height - len(notes) - 6  # a title, two headings, two blank lines and the last line
    shown = min(len(schedules), max(1, rows - min(len(deliveries), rows // 3)))
    left = max(0, rows - shown - (shown < len(schedules)))
    return Group(
        title(now, width),
        schedule_table(schedules[:shown], now, width),
        *([_more(len(schedules) - shown)] if shown < len(schedules) else []),
        Text(),
        delivery_table(sorted(deliveries, reverse=True)[:left], width),
        Text(),
        *notes,
        Text(f"q or Ctrl-C {end}", style="dim", end="", no_wrap=True, overflow="ellipsis"),
    )


def title(now: dt.datetime, width: int) -> Text:
    clock = f"{now:%H:%M:%S} UTC"
    return Text.assemble(("Duepoint", "bold"), clock.rjust(width - len("Duepoint")))


def schedule_table(schedules: Sequence[ScheduleRow], now: dt.datetime, width: int) -> Table:
    table = _table()
    # On a narrow terminal what is left after the answers is shared by name and expression.
    ratio = None if width >= WIDE else 1
    table.add_column("SCHEDULE", no_wrap=True, overflow="ellipsis", ratio=ratio)
    if width >= _NARROW:
        table.add_column("WHEN", no_wrap=True, overflow="ellipsis", ratio=ratio)
    table.add_column("NEXT", no_wrap=True, overflow="ellipsis")
    if width >= _SLIM:
        table.add_column("LAST", no_wrap=True, overflow="ellipsis")
    # Answers keep their width; names and expressions give way.
    table.add_column("RESULT", no_wrap=True, min_width=len("Reconciling"))
    if width >= _SLIM:
        table.add_column("LATE", justify="right", no_wrap=True, min_width=len("123 ms"))
    if width >= _NARROW:
        table.add_column("RUNS", justify="right", no_wrap=True, min_width=len("RUNS"))
    if width >= WIDE:
        table.add_column("TARGET", no_wrap=True, overflow="ellipsis", ratio=1)
    several = len({row.namespace for row in schedules}) > 1
    for row in schedules:
        cells = {
            "SCHEDULE": Text(f"{row.namespace}/{row.name}" if several else row.name),
            "WHEN": Text(row.when[: 40 if width >= WIDE else 20]),
            "NEXT": Text(until(row.next, now)),
            "LAST": Text(clock(row.last, now)),
            "RESULT": Text(row.result, style=RESULT_STYLES.get(row.result, "dim")),
            "LATE": Text(milliseconds(row.lateness)),
            "RUNS": Text(str(row.started)),
            "TARGET": Text(output.one_line(row.message or row.target)),
        }
        table.add_row(*(cells[str(column.header)] for column in table.columns))
    return table


def delivery_table(deliveries: Sequence[ArrivalRow], width: int) -> Table:
    is_wide, is_slim = width >= WIDE, width < _SLIM
    table = _table("ARRIVED")
    if not is_slim:
        table.add_column("WHAT", no_wrap=True, overflow="ellipsis")
    table.add_column("SCHEDULE", no_wrap=True, overflow="ellipsis", ratio=1 if is_slim else None)
    if not is_slim:
        table.add_column("SLOT", no_wrap=True, overflow="ellipsis")
    table.add_column("LATE", justify="right", no_wrap=True)
    if not is_slim:
        table.add_column("", no_wrap=True, overflow="ellipsis", ratio=1)
    for row in deliveries:
        exact = row.is_exact and row.slot is not None
        late = row.at - row.slot if exact and row.slot else None
        at = f"{row.at:%H:%M:%S}"
        if is_wide and exact:
            at += f".{row.at.microsecond // 1000:03d}"
        cells = {
            "ARRIVED": at,
            "WHAT": row.kind,
            "SCHEDULE": row.schedule,
            "SLOT": f"{row.slot:%H:%M:%S}" if row.slot else "",
            "LATE": milliseconds(late),
            "": row.text,
        }
        table.add_row(*(cells[str(column.header)] for column in table.columns))
    return table


def until(moment: dt.datetime | None, now: dt.datetime) -> str:
    """`in 12 s`; with the day where it is another one, and a date when it is far away.

    A time that has passed is `due`: the run may wait for its jitter, or its status for a moment,
    so how long ago that was says nothing about how late it is.
    """
    if moment is None:
        return "-"
    seconds = (moment - now).total_seconds()
    if seconds < -2:
        return "due"
    if seconds < 120:
        return f"in {max(0, seconds):.0f} s"
    if seconds < 7200:
        return f"in {seconds / 60:.0f} min"
    if moment.date() == now.date():
        return f"{moment:%H:%M}"
    return f"{moment:%a %H:%M}" if seconds < _WEEKDAY_SECONDS else f"{moment:%Y-%m-%d}"


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


def _notes(notices: Sequence[str], width: int, most: int) -> list[Text]:
    """The notices in so many lines at most."""
    shown = map(output.one_line, notices)
    wrapped = [textwrap.wrap(notice, width, subsequent_indent="  ") for notice in shown]
    lines = [line for notice in wrapped for line in notice]
    if len(lines) > most:
        lines[most - 1 :] = [f"... and {len(lines) - most + 1} more lines"]
    return [Text(line, style="yellow", no_wrap=True, overflow="ellipsis") for line in lines]


def _more(number: int) -> Text:
    return Text(f"... and {number} more", style="dim")
