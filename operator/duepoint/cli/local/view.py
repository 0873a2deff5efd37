"""The live view: one screen of Schedules with next and last runs, then what has happened.

Pure: from values and a size it makes a renderable for rich. Narrow terminals lose columns, low ones
lose rows, and the view says so. Only notices are wrapped, because the cause is at their end.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import textwrap
from collections.abc import Sequence
from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from duepoint.cli import output
from duepoint.schedules import diagnosis


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRow:
    """A row of the view: a Schedule, its next and last slots, and its last result."""

    namespace: str
    name: str
    when: str
    target: str
    next: dt.datetime | None
    last: dt.datetime | None
    result: str
    lateness: dt.timedelta | None
    started: int
    message: str


def schedule(item: dict[str, Any]) -> ScheduleRow:
    """Return the row of a Schedule object from the API server."""
    spec, status = item["spec"], item.get("status", {})
    last = status.get("lastRun", {})
    slot, started = instant(last.get("scheduledTime")), instant(last.get("startTime"))
    conditions = msgspec.convert(status.get("conditions", []), list[diagnosis.Shown])
    about = diagnosis.of(conditions, is_current=True, is_suspended=False).about
    if about is None:
        result = "Suspended" if spec.get("suspend") else str(last.get("outcome", "-"))
    else:
        result = about.type or "new"
    return ScheduleRow(
        namespace=item["metadata"]["namespace"],
        name=item["metadata"]["name"],
        when=spec.get("schedule") or ", ".join(spec.get("schedules", [])),
        target=status.get("target") or target_kind(spec),
        next=instant(status.get("nextScheduleTime")),
        last=slot or instant(status.get("lastScheduleTime")),
        result=result,
        lateness=started - slot if slot and started else None,
        started=status.get("runs", {}).get("started", 0),
        message=f"{about.reason}: {about.message}" if about and about.type else "",
    )


def instant(text: str | None) -> dt.datetime | None:
    """Return the instant in an RFC 3339 text from the API server; None if it is not one."""
    try:
        return dt.datetime.fromisoformat(text) if text else None
    except ValueError:
        return None


#: The kind of target, by the field of the spec.
_KINDS = {"jobTemplate": "Job", "webhook": "Webhook", "stream": "Stream", "kafka": "Kafka"}


def target_kind(spec: dict[str, Any]) -> str:
    """Return ``Job``, ``Webhook``, ``Stream`` or ``Kafka``; empty if the spec has no target."""
    return next((name for field, name in _KINDS.items() if spec.get(field)), "")


# -- rows ------------------------------------------------------------------------------------------


#: A screen with this many columns is wide, not narrow, not slim; at 40, a name keeps a dozen.
WIDE, _NARROW, _SLIM = 110, 76, 56
#: Within this time a day of the week is unambiguous.
_WEEKDAY_SECONDS = 6 * 86_400
#: The result shown while a Schedule's file is wrong and its former version still runs.
FORMER = "former runs"
RESULT_STYLES = {
    "Succeeded": "green",
    **dict.fromkeys(("Failed", "Stalled", "CircuitOpen", "Overdue", "Missed", "Failing"), "red"),
    "Running": "cyan",
    "Retrying": "yellow",
    "Suspended": "yellow",
    "Reconciling": "yellow",
    FORMER: "yellow",
}


def screen(
    schedules: Sequence[ScheduleRow],
    lines: Sequence[str],
    notices: Sequence[str],
    *,
    now: dt.datetime,
    size: tuple[int, int],
    end: str = "stops everything",
) -> RenderableType:
    """Return the whole screen; ``size`` is its columns and rows, which it never exceeds.

    Args:
        lines: what has happened, the newest first.
        end: what the keys that leave the view do.
    """
    width, height = size
    notes = _notes(notices, width, height // 3)
    rows = height - len(notes) - 5  # a title, a heading, two blank lines and the last line
    shown = min(len(schedules), max(1, rows - min(len(lines), rows // 3)))
    left = max(0, rows - shown - (shown < len(schedules)))
    title = f"{now:%H:%M:%S} UTC".rjust(width - len("Duepoint"))
    more = Text(f"... and {len(schedules) - shown} more", style="dim")
    return Group(
        Text.assemble(("Duepoint", "bold"), title),
        _schedule_table(schedules[:shown], now, width),
        *[more] * (shown < len(schedules)),
        Text(),
        *(Text(output.one_line(line), no_wrap=True, overflow="ellipsis") for line in lines[:left]),
        Text(),
        *notes,
        Text(f"q or Ctrl-C {end}", style="dim", end="", no_wrap=True, overflow="ellipsis"),
    )


#: The columns, each with the narrowest screen that shows it. Those that shrink give way to the
#: others: times and results keep their width.
_COLUMNS = {
    "SCHEDULE": 0, "WHEN": _NARROW, "NEXT": 0, "LAST": _SLIM, "RESULT": 0, "LATE": _SLIM,
    "RUNS": _NARROW, "TARGET": WIDE,
}  # fmt: skip
_SHRINKING = ("SCHEDULE", "WHEN", "TARGET")
_NUMBERS = ("LATE", "RUNS")


def _schedule_table(schedules: Sequence[ScheduleRow], now: dt.datetime, width: int) -> Table:
    table = Table(box=None, pad_edge=False, expand=True, header_style="bold dim")
    shown = [name for name, narrowest in _COLUMNS.items() if width >= narrowest]
    for name in shown:
        table.add_column(
            Text(name, no_wrap=True, overflow="ellipsis"),
            justify="right" if name in _NUMBERS else "left",
            no_wrap=name not in _SHRINKING,
        )
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
        for name in shown:
            cells[name].no_wrap, cells[name].overflow = True, "ellipsis"
        table.add_row(*(cells[name] for name in shown))
    return table


def until(moment: dt.datetime | None, now: dt.datetime) -> str:
    """Return a time such as ``in 12 s``; with the day if not today, and with a date if far away.

    A past time is ``due``: the run may wait for its jitter, or its status may be a moment old, so
    the time since then does not say how late the run is.
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


def _notes(notices: Sequence[str], width: int, most: int) -> list[Text]:
    """Return the notices in at most ``most`` lines."""
    shown = map(output.one_line, notices)
    wrapped = [textwrap.wrap(notice, width, subsequent_indent="  ") for notice in shown]
    lines = [line for notice in wrapped for line in notice]
    if len(lines) > most:
        lines[most - 1 :] = [f"... and {len(lines) - most + 1} more lines"]
    return [Text(line, style="yellow", no_wrap=True, overflow="ellipsis") for line in lines]
