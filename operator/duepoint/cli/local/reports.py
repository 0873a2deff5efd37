"""What happens while ``duepoint run`` runs: records, lines for people, rows of the view.

A ``Record`` is one JSON object of ``-o json``; its keys are the command's interface. Each kind of
record has one line of text. ``RunLog`` turns events of runs into records, each event once: the
operator may hear of the same start from a worker and from the API server, and of a short Job's end
before its start.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any

from duepoint.cli import output
from duepoint.cli.local.view import ArrivalRow, ScheduleRow
from duepoint.runs.run import ENDED, RunEvent, RunState

Record = dict[str, Any]
#: Uid of the Schedule, slot, uid of the ScheduleRun.
_RunKey = tuple[str, int, str]

#: Events and rows that are remembered.
_KEPT_EVENTS = 5_000
_KEPT_ROWS = 200
#: Schedules that a summary names.
_MOST_NAMED = 5

_KINDS = {"Job": "Job", "Webhook": "webhook", "Stream": "stream", "Kafka": "kafka"}
#: Results that a newer run replaces in the view.
_ANSWERS = ("Succeeded", "Failed", "Running", "Retrying")
_HIDDEN = frozenset({RunState.CHECKED, RunState.REPLACING})
_ENDED_BADLY = frozenset({RunState.FAILED, RunState.MISSED})


@dataclasses.dataclass(frozen=True, slots=True)
class _Newest:
    """The newest run of a Schedule."""

    slot: dt.datetime
    lateness: dt.timedelta
    state: str


class RunLog:
    """Events of runs, as records and as rows.

    Args:
        kind_of: the kind of target of a Schedule, by namespace and name.

    Attributes:
        succeeded: runs that succeeded.
        failed: runs that failed, and slots that were missed.
    """

    def __init__(self, kind_of: Callable[[str, str], str]) -> None:
        self._kind_of = kind_of
        self._seen: collections.OrderedDict[tuple[Any, ...], None] = collections.OrderedDict()
        self._ended_jobs: collections.OrderedDict[tuple[str, str], None] = collections.OrderedDict()
        self._rows: collections.OrderedDict[tuple[str, int, str], ArrivalRow] = (
            collections.OrderedDict()
        )
        self._newest: dict[tuple[str, str], _Newest] = {}
        self._started: collections.Counter[tuple[str, str]] = collections.Counter()
        self._badly: collections.Counter[tuple[str, str]] = collections.Counter()
        self._causes: dict[tuple[str, str], str] = {}
        self._retrying: dict[_RunKey, tuple[str, str]] = {}
        self.succeeded = 0

    @property
    def failed(self) -> int:
        return self._badly.total()

    @property
    def retrying(self) -> int:
        """Runs that have failed at least once and are to be tried again."""
        return len(self._retrying)

    def is_retrying(self, run_uid: str) -> bool:
        """Whether the run that this ScheduleRun wanted is one of those."""
        return any(key[2] == run_uid for key in self._retrying)

    def summary(self) -> tuple[str, list[str]]:
        """How the runs went, and which of them badly."""
        if not self.failed and not self._retrying:
            return f"{_runs(self.succeeded)} succeeded, none failed", []
        counts = [f"{_runs(self.succeeded)} succeeded"]
        if self.failed:
            counts.append(f"{self.failed} failed")
        if self._retrying:
            counts.append(f"{self.retrying} failed and would be tried again")
        by_schedule = self._badly + collections.Counter(self._retrying.values())
        which = [
            f"{_name({'namespace': key[0], 'schedule': key[1]})} ({count}): {self._causes[key]}"
            for key, count in by_schedule.most_common(_MOST_NAMED)
        ]
        if len(by_schedule) > _MOST_NAMED:
            which.append(f"and of {len(by_schedule) - _MOST_NAMED} more Schedules")
        return ", ".join(counts), which

    @property
    def rows(self) -> list[ArrivalRow]:
        return list(self._rows.values())

    def newest(self, row: ScheduleRow) -> ScheduleRow:
        """The row of a Schedule with its newest regular run, which its status may not show yet."""
        known = self._newest.get((row.namespace, row.name))
        if known is None or (row.last is not None and row.last >= known.slot):
            return row
        is_plain = row.result in (*_ANSWERS, "-", "new")
        return dataclasses.replace(
            row,
            last=known.slot,
            lateness=known.lateness,
            started=max(row.started, self._started[row.namespace, row.name]),
            result=known.state if is_plain else row.result,
        )

    def record(self, event: RunEvent) -> Record | None:
        """The record of an event; None of one that was seen or that says nothing new."""
        is_silent = event.state is RunState.PENDING and not event.reason
        if event.state in _HIDDEN or is_silent or self._is_known(event) or self._is_over(event):
            return None
        self._count(event)
        kind = _KINDS.get(self._kind_of(event.namespace, event.name), "")
        made = _record(event, kind)
        if event.started_us and not event.run_uid:
            self._keep_newest(event, made["state"])
        self._keep_row(event, kind, _outcome(made))
        return made

    def _count(self, event: RunEvent) -> None:
        """How it went so far; a run that succeeds after all has not failed."""
        schedule = event.namespace, event.name
        run = event.uid, event.slot_us, event.run_uid
        if event.is_retrying:
            self._retrying[run] = schedule
        elif not event.is_open:
            self._retrying.pop(run, None)
        if event.state in _ENDED_BADLY:
            self._badly[schedule] += event.count
        if event.is_retrying or event.state in _ENDED_BADLY:
            self._causes[schedule] = event.why
        self.succeeded += event.state is RunState.SUCCEEDED

    def _is_known(self, event: RunEvent) -> bool:
        key = (event.uid, event.slot_us, event.run_uid, event.state, event.reason, event.attempts)
        if key in self._seen:
            return True
        _remember(self._seen, key)
        return False

    def _is_over(self, event: RunEvent) -> bool:
        """Whether this is the start of a Job whose end was reported already."""
        job = event.namespace, event.job_name
        if event.job_name and event.state in ENDED:
            _remember(self._ended_jobs, job)
        return event.state is RunState.RUNNING and job in self._ended_jobs

    def _keep_newest(self, event: RunEvent, state: str) -> None:
        key = event.namespace, event.name
        slot, former = _moment(event.slot_us), self._newest.get(key)
        if former is None or slot > former.slot:
            self._started[key] += 1
        if former is None or slot >= former.slot:
            self._newest[key] = _Newest(slot, _moment(event.started_us) - slot, state)

    def _keep_row(self, event: RunEvent, kind: str, text: str) -> None:
        key = (event.uid, event.slot_us, event.run_uid)
        at_us = event.started_us or event.at_us
        if (former := self._rows.get(key)) is not None and event.attempts <= 1:
            at = former.at  # when it started
        else:
            at = _moment(at_us)
        self._rows[key] = ArrivalRow(
            at=at,
            kind=kind,
            schedule=event.name,
            slot=_moment(event.slot_us),
            text=text,
            is_exact=event.started_us > 0,
        )
        if len(self._rows) > _KEPT_ROWS:
            self._rows.popitem(last=False)


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def _remember(seen: collections.OrderedDict[Any, None], key: object) -> None:
    """Keep it among the newest ones."""
    seen[key] = None
    if len(seen) > _KEPT_EVENTS:
        seen.popitem(last=False)


def _record(event: RunEvent, kind: str) -> Record:
    state = "Retrying" if event.is_retrying else event.state.value
    found: dict[str, Any] = {
        "event": "run",
        "at": output.time(event.at_us),
        "namespace": event.namespace,
        "schedule": event.name,
        "target": kind,
        "scheduledTime": output.time(event.slot_us),
        "trigger": event.trigger,
        "state": state,
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
    """A record as a line for people."""
    at = str(record["at"]).partition("T")[2].removesuffix("Z")
    clock, _, fraction = at.partition(".")
    # The times of a Job are whole seconds; with .000 its end would seem to precede its beginning.
    when = f"{clock}.{fraction[:3].ljust(3, '0')}" if fraction else f"{clock}    "
    return f"{when}  {_LINES[record['event']](record)}"


def _run_line(record: Mapping[str, Any]) -> str:
    slot = output.short_time(record["scheduledTime"])[11:19]
    lead = f"{record['state']:<10} {_name(record):<20}  slot {slot}"
    return f"{lead}  {', '.join(_details(record))}".rstrip()


def _outcome(record: Mapping[str, Any]) -> str:
    """How it went, for a row of the view, where success needs no word."""
    state = record["state"]
    words = [] if state == "Succeeded" and not record.get("job") else [state.lower()]
    return ", ".join([*words, *_details(record)])


def _details(record: Mapping[str, Any]) -> list[str]:
    """What is known beside the Schedule, the slot and the state."""
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


def _object_line(record: Mapping[str, Any]) -> str:
    return f"{record['change']:<10} {record['kind']} {_name(record)}  from {record['file']}"


_LINES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "ready": lambda it: f"ready      Valkey at {it['redisUrl']}",
    "note": lambda it: f"note       {it['message']}",
    "object": _object_line,
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


def _moment(at_us: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=at_us)
