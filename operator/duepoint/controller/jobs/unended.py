"""Runs of Jobs that a status still shows as running.

An operator that takes over knows them by what its forerunner wrote: the references to active Jobs
and the last run. Of one whose Job has gone meanwhile nobody will ever tell. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from duepoint.controller.status import statustext
from duepoint.runs.run import RunEvent

#: ``<schedule>-<slot in seconds>``, behind it ten hexadecimal digits for a ScheduleRun.
_JOB_NAME = re.compile(r".+?-([0-9]+)(-[0-9a-f]{10})?")
_MANUAL = "Manual"
_REGULAR = "Schedule"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unended:
    """A run that is believed to be running; ``is_shown``: by nothing but a status."""

    uid: str
    namespace: str
    schedule_name: str
    job_name: str
    slot_us: int
    trigger: str
    is_shown: bool = False


def may_show_some(status: bytes) -> bool:
    """Whether the text of a status is worth being looked at."""
    return b'"activeCount"' in status or b'"Running"' in status


def of_status(
    status: Mapping[str, Any], *, uid: str, namespace: str, name: str
) -> Iterator[Unended]:
    """What the status shows as running, each Job once."""
    last = status.get("lastRun")
    last = last if isinstance(last, Mapping) else {}
    shown = str(last.get("jobName") or "") if last.get("outcome") == "Running" else ""
    if shown:
        slot_us = statustext.instant_us(last.get("scheduledTime"))
        trigger = str(last.get("trigger") or _REGULAR)
        yield _unended(uid, namespace, name, shown, slot_us, trigger)
    listed = status.get("active")
    for reference in listed if isinstance(listed, list) else ():
        job_name = str(reference.get("name") or "") if isinstance(reference, Mapping) else ""
        found = _JOB_NAME.fullmatch(job_name)
        if found is not None and job_name != shown:
            trigger = _MANUAL if found[2] else _REGULAR
            yield _unended(uid, namespace, name, job_name, int(found[1]) * 1_000_000, trigger)


def of_event(event: RunEvent) -> Unended:
    """The run that an event tells of, as one that a status may show."""
    return Unended(
        uid=event.uid,
        namespace=event.namespace,
        schedule_name=event.name,
        job_name=event.job_name,
        slot_us=event.slot_us,
        trigger=event.trigger,
        is_shown=True,
    )


def _unended(  # noqa: PLR0917 - the fields in their order
    uid: str, namespace: str, name: str, job_name: str, slot_us: int, trigger: str
) -> Unended:
    return Unended(
        uid=uid,
        namespace=namespace,
        schedule_name=name,
        job_name=job_name,
        slot_us=slot_us,
        trigger=trigger,
        is_shown=True,
    )
