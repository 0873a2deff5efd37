"""What ``duepoint run`` shows: JSON records, lines for people, and the live view.

A ``Record`` is one JSON object of ``-o json``; its keys are a public interface. Each kind of record
has one line of text. ``RunLog`` turns events of runs into records and removes duplicates: the
operator may learn of the same start from a worker and from the API server, and of a short Job's
end before its start.

The live view is one screen of Schedules with next and last runs, then what has happened. Narrow
terminals lose columns, low ones lose rows, and the view says so. Only notices are wrapped, because
the cause is at their end.
"""

from __future__ import annotations

import collections
import datetime as dt
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from duepoint.cli import output
from duepoint.cli.schedules import commands, facts
from duepoint.model.targets import KINDS
from duepoint.runs.run import ENDED, RunEvent, RunState
from duepoint.schedules import diagnosis

# -- rows ------------------------------------------------------------------------------------------


#: A screen with this many columns is wide, not narrow, not slim; at 40, a name keeps a dozen.
WIDE, _NARROW, _SLIM = 110, 76, 56
#: Within this time a day of the week is unambiguous.
_WEEKDAY_SECONDS = 6 * 86_400
#: The result shown while a Schedule's file is wrong and its former version still runs.
FORMER = "former runs"
_STYLES = {
    "Succeeded": "green", "Running": "cyan", "Retrying": "yellow", FORMER: "yellow",
    **dict.fromkeys(("Failed", "Missed", "failing", "problem"), "red"),
    **dict.fromkeys(("waiting", "suspended"), "yellow"),
}  # fmt: skip


def screen(
    schedules: Sequence[facts.Object],
    lines: Sequence[str],
    notices: Sequence[str],
    *,
    now: dt.datetime,
    size: tuple[int, int],
    former: Collection[str] = (),
    end: str = "stops everything",
) -> RenderableType:
    """Return the whole screen; ``size`` is its columns and rows, which it never exceeds.

    Args:
        schedules: the objects as the API server has them.
        lines: what has happened, the newest first.
        former: namespace/name of those whose manifest is wrong now.
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
        _schedule_table(schedules[:shown], former, now, width),
        *[more] * (shown < len(schedules)),
        Text(),
        *(_line(line) for line in lines[:left]),
        Text(),
        *notes,
        Text(f"q or Ctrl-C {end}", style="dim", end="", no_wrap=True, overflow="ellipsis"),
    )


def _line(text: str, style: str = "") -> Text:
    """Return a text that is cut where the screen or its column ends."""
    return Text(output.one_line(text), style=style, no_wrap=True, overflow="ellipsis")


#: The columns, each with the narrowest screen that shows it. Those that shrink give way to the
#: others: times and results keep their width.
_COLUMNS = {
    "SCHEDULE": 0, "WHEN": _NARROW, "NEXT": 0, "LAST": _SLIM, "RESULT": 0, "LATE": _SLIM,
    "RUNS": _NARROW, "TARGET": WIDE,
}  # fmt: skip
_SHRINKING = ("SCHEDULE", "WHEN", "TARGET")
_NUMBERS = ("LATE", "RUNS")


def _schedule_table(
    schedules: Sequence[facts.Object], former: Collection[str], now: dt.datetime, width: int
) -> Table:
    table = Table(box=None, pad_edge=False, expand=True, header_style="bold dim")
    shown = [name for name, narrowest in _COLUMNS.items() if width >= narrowest]
    for name in shown:
        table.add_column(
            _line(name),
            justify="right" if name in _NUMBERS else "left",
            no_wrap=name not in _SHRINKING,
        )
    rows = [commands.overview(facts.of_object(item)) for item in schedules]
    several = len({row["namespace"] for row in rows}) > 1
    for row in rows:
        name = f"{row['namespace']}/{row['name']}"
        is_well = row["health"] in ("ok", "completed")
        result, about = row["result"] if is_well else row["health"], row["target"]
        if row["health"] in diagnosis.TROUBLED:
            about = f"{row['reason']}: {row['message']}"
        if name in former:
            result, about = FORMER, "its manifest is wrong now, see below"
        cells = {
            "SCHEDULE": name if several else row["name"],
            "WHEN": row["schedule"][: 40 if width >= WIDE else 20],
            "NEXT": until(row["next"], now),
            "LAST": clock(row["last"], now),
            "RESULT": result or "-",
            "LATE": "" if row["lateSeconds"] is None else output.span(row["lateSeconds"]),
            "RUNS": str(row["runs"]),
            "TARGET": about,
        }
        styles = {"RESULT": _STYLES.get(result, "dim")}
        table.add_row(*(_line(cells[name], styles.get(name, "")) for name in shown))
    return table


def until(time: str | None, now: dt.datetime) -> str:
    """Return a time such as ``in 12 s``; with the day if not today, and with a date if far away.

    A past time is ``due``: the run may wait for its jitter, or its status may be a moment old, so
    the time since then does not say how late the run is.
    """
    if time is None:
        return "-"
    moment = dt.datetime.fromisoformat(time)
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


def clock(time: str | None, now: dt.datetime) -> str:
    if time is None:
        return "-"
    moment = dt.datetime.fromisoformat(time)
    return f"{moment:%H:%M:%S}" if now - moment < dt.timedelta(days=1) else f"{moment:%Y-%m-%d}"


def _notes(notices: Sequence[str], width: int, most: int) -> list[Text]:
    """Return the notices in at most ``most`` lines."""
    shown = map(output.one_line, notices)
    wrapped = [textwrap.wrap(notice, width, subsequent_indent="  ") for notice in shown]
    lines = [line for notice in wrapped for line in notice]
    if len(lines) > most:
        lines[most - 1 :] = [f"... and {len(lines) - most + 1} more lines"]
    return [_line(line, "yellow") for line in lines]


# -- records ---------------------------------------------------------------------------------------


Record = dict[str, Any]
#: Namespace and name of a Schedule.
_Name = tuple[str, str]

#: How many runs to keep.
_KEPT_RUNS = 5_000
#: How many Schedules a summary names.
_MOST_NAMED = 5

_HIDDEN = frozenset({RunState.CHECKED, RunState.REPLACING})
_ENDED_BADLY = frozenset({RunState.FAILED, RunState.MISSED})
_OVER = ENDED | _ENDED_BADLY


class RunLog:
    """The newest event of each run, and counts of results.

    Attributes:
        specs: the spec of each Schedule, by namespace and name.
        succeeded: number of runs that succeeded.
    """

    def __init__(self) -> None:
        self.specs: dict[_Name, dict[str, Any]] = {}
        #: Runs by uid of the Schedule, slot and uid of the ScheduleRun; the newest last.
        self._runs: dict[tuple[str, int, str], RunEvent] = {}
        self._badly: collections.Counter[_Name] = collections.Counter()
        self._causes: dict[_Name, str] = {}
        self.succeeded = 0

    @property
    def failed(self) -> int:
        """The number of runs that failed and slots that were missed."""
        return self._badly.total()

    @property
    def retrying(self) -> int:
        """The number of runs that have failed and will be retried."""
        return sum(event.is_retrying for event in self._runs.values())

    @property
    def retried(self) -> set[str]:
        """The uids of ScheduleRuns with a run that has failed and will be retried."""
        return {key[2] for key, event in self._runs.items() if event.is_retrying}

    def summary(self) -> list[str]:
        """Return a sentence about all runs, and a line for each Schedule with failed ones."""
        retrying = collections.Counter(
            (event.namespace, event.name) for event in self._runs.values() if event.is_retrying
        )
        by_schedule = self._badly + retrying
        lead = "1 run" if self.succeeded == 1 else f"{self.succeeded} runs"
        if not by_schedule:
            return [f"{lead} succeeded, none failed"]
        counts = [f"{lead} succeeded"]
        counts += [f"{self.failed} failed"] * (self.failed > 0)
        counts += [f"{retrying.total()} failed and would be tried again"] * bool(retrying)
        return [", ".join(counts)] + [
            f"{_name({'namespace': key[0], 'schedule': key[1]})} ({count}): {self._causes[key]}"
            for key, count in by_schedule.most_common(_MOST_NAMED)
        ]

    def record(self, event: RunEvent) -> Record | None:
        """Return the record of an event; None if the event says nothing new."""
        key = event.uid, event.slot_us, event.run_uid
        former = self._runs.get(key)
        is_silent = event.state is RunState.PENDING and not event.reason
        if event.state in _HIDDEN or is_silent:
            return None
        if former is not None and (former.state in _OVER or _step(former) == _step(event)):
            return None
        if former is not None and former.started_us and event.attempts <= 1:
            # Keep the worker's time of the start: the API server has it in whole seconds only.
            event = msgspec.structs.replace(event, started_us=former.started_us)
        self._runs.pop(key, None)
        self._runs[key] = event
        if len(self._runs) > _KEPT_RUNS:
            del self._runs[next(iter(self._runs))]
        # Only final failures count here: a run that is retried may still succeed.
        schedule = event.namespace, event.name
        if event.state in _ENDED_BADLY:
            self._badly[schedule] += event.count
        if event.is_retrying or event.state in _ENDED_BADLY:
            self._causes[schedule] = event.why
        self.succeeded += event.state is RunState.SUCCEEDED
        return _record(event, self.specs.get(schedule, {}))


def _step(event: RunEvent) -> tuple[object, ...]:
    """Return the fields of an event whose change makes it news to the user."""
    return event.state, event.reason, event.attempts


#: The record's word for a target that has another one than its field.
_WORDS = {"jobTemplate": "Job"}


def _record(event: RunEvent, spec: Mapping[str, Any]) -> Record:
    found: dict[str, Any] = {
        "event": "run",
        "at": output.time(event.at_us),
        "namespace": event.namespace,
        "schedule": event.name,
        "target": next((_WORDS.get(field, field) for field in KINDS if spec.get(field)), ""),
        "scheduledTime": output.time(event.slot_us),
        "trigger": event.trigger,
        "state": "Retrying" if event.is_retrying else event.state.value,
        "reason": str(event.reason),
        "message": event.message,
        "attempts": event.attempts,
        "slots": event.count,
        "job": event.job_name or None,
        "httpStatus": event.http_status,
        "startTime": output.time(event.started_us or None),
        "finishTime": output.time(event.finished_us or None),
        "lateMilliseconds": None
        if not event.started_us
        else round((event.started_us - event.slot_us) / 1000, 1),
    }
    return {key: value for key, value in found.items() if value is not None}


def line_of(record: Mapping[str, Any]) -> str:
    """Return a record as a line for people."""
    at = str(record["at"]).partition("T")[2].removesuffix("Z")
    clock, _, fraction = at.partition(".")
    # A Job's times are whole seconds; shown with .000, its end could seem to precede its start.
    when = f"{clock}.{fraction[:3].ljust(3, '0')}" if fraction else f"{clock}    "
    return f"{when}  {_LINES[record['event']](record)}"


def _run_line(record: Mapping[str, Any]) -> str:
    slot = output.short_time(record["scheduledTime"])[11:19]
    lead = f"{record['state']:<10} {_name(record):<20}  slot {slot}"
    return f"{lead}  {', '.join(_details(record))}".rstrip()


def _details(record: Mapping[str, Any]) -> list[str]:
    """Return the details of a record besides the Schedule, the slot and the state."""
    is_trouble = record["state"] not in ("Succeeded", "Running")
    slots, attempts = record["slots"], record["attempts"]
    found = [
        record.get("job"),
        f"{slots} slots" if slots > 1 else None,
        record.get("httpStatus"),
        record["reason"] if is_trouble and record["reason"] != record["state"] else None,
        record["message"] or None,
        f"attempt {attempts}" if attempts > 1 else None,
    ]
    return [str(each) for each in found if each is not None]


def _name(record: Mapping[str, Any]) -> str:
    namespace, name = record["namespace"], record.get("schedule") or record.get("name")
    return f"{name}" if namespace == "default" else f"{namespace}/{name}"


_LINES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "ready": lambda it: f"ready      Valkey at {it['redisUrl']}",
    "note": lambda it: f"note       {it['message']}",
    "object": lambda it: f"{it['change']:<10} {it['kind']} {_name(it)}  from {it['file']}",
    "refused": lambda it: f"refused    {it['text']}",
    "run": _run_line,
    "job": lambda it: f"job        {it['job']}  {it['verb']}: {it['command']}",
    "output": lambda it: f"output     {it['job']}  {it['line']}",
    "received": lambda it: f"received   {it['path']}  {it['schedule']}  {it['id']}".rstrip(),
    "condition": lambda it: (
        f"{it['type'].lower():<10} {_name(it)}  {it['reason']}: {it['message']}"
    ),
    "stopped": lambda it: f"stopped    {it['message']}",
}
