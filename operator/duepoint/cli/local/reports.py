"""Reports of ``duepoint run``: JSON records, and lines for people.

A ``Record`` is one JSON object of ``-o json``; its keys are a public interface. Each kind of record
has one line of text. ``RunLog`` turns events of runs into records and removes duplicates: the
operator may learn of the same start from a worker and from the API server, and of a short Job's
end before its start.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from duepoint.cli import output
from duepoint.runs.run import ENDED, RunEvent, RunState

Record = dict[str, Any]
#: Namespace and name of a Schedule.
_Name = tuple[str, str]

#: How many runs to keep.
_KEPT_RUNS = 5_000
#: How many Schedules a summary names.
_MOST_NAMED = 5

_HIDDEN = frozenset({RunState.CHECKED, RunState.REPLACING})
_ENDED_BADLY = frozenset({RunState.FAILED, RunState.MISSED})


class RunLog:
    """The newest event of each run, and counts of results.

    Args:
        kind_of: returns the kind of target of a Schedule, by namespace and name.

    Attributes:
        succeeded: number of runs that succeeded.
    """

    def __init__(self, kind_of: Callable[[str, str], str]) -> None:
        self._kind_of = kind_of
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
        if event.state in _HIDDEN or is_silent or (former and not _continues(former, event)):
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
        return _record(event, self._kind_of(*schedule))


def _continues(former: RunEvent, event: RunEvent) -> bool:
    """Whether an event is news about a run, after the former one, which may have ended it."""
    if former.state in ENDED | _ENDED_BADLY:
        return False
    return (event.state, event.reason, event.attempts) != (
        former.state,
        former.reason,
        former.attempts,
    )


def _state(event: RunEvent) -> str:
    return "Retrying" if event.is_retrying else event.state.value


def _record(event: RunEvent, kind: str) -> Record:
    found: dict[str, Any] = {
        "event": "run",
        "at": output.time(event.at_us),
        "namespace": event.namespace,
        "schedule": event.name,
        "target": kind if kind == "Job" else kind.lower(),
        "scheduledTime": output.time(event.slot_us),
        "trigger": event.trigger,
        "state": _state(event),
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
