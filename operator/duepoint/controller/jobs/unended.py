"""Runs of Jobs that are believed to go on.

An operator that takes over knows them by what its forerunner wrote. Of one whose Job has gone
meanwhile nobody will ever tell. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from duepoint.runs.run import RunEvent
from duepoint.runs.running import Running

_MANUAL = "Manual"
_REGULAR = "Schedule"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unended:
    """A run that is believed to be running.

    Attributes:
        told_us: when a worker told of it; 0 = a status did.
        may_come_again: a request for its Job may be under way.
    """

    uid: str
    namespace: str
    schedule_name: str
    job_name: str
    slot_us: int
    trigger: str
    told_us: int = 0
    may_come_again: bool = False


def may_show_some(status: bytes) -> bool:
    """Whether the text of a status is worth being looked at."""
    return b'"activeCount"' in status or b'"Running"' in status


def of(running: Running, *, uid: str, namespace: str, name: str) -> Iterator[Unended]:
    """The runs of Jobs among these."""
    for (slot_us, wanted_by), job_name in running.jobs.items():
        if job_name:
            yield Unended(
                uid=uid,
                namespace=namespace,
                schedule_name=name,
                job_name=job_name,
                slot_us=slot_us,
                trigger=_MANUAL if wanted_by else _REGULAR,
            )


def of_event(event: RunEvent) -> Unended:
    """The run that an event tells of."""
    return Unended(
        uid=event.uid,
        namespace=event.namespace,
        schedule_name=event.name,
        job_name=event.job_name,
        slot_us=event.slot_us,
        trigger=event.trigger,
    )
