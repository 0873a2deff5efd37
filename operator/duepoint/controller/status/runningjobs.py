"""Jobs that are believed to be running.

A new leader knows them by the published statuses, a leader in office by the events of workers. No
event will ever come for a Job that was deleted meanwhile, so ``jobs`` looks for each of these that
its watch does not show. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from duepoint.runs.run import RunEvent
from duepoint.runs.running import Running


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningJob:
    """The Job of a run that has not ended as far as is known.

    Attributes:
        reported_us: when a worker reported it; 0 = only a status lists it.
        may_come_again: another request to create it may be under way.
    """

    uid: str
    namespace: str
    schedule_name: str
    job_name: str
    slot_us: int
    trigger: str
    reported_us: int = 0
    may_come_again: bool = False


def may_show_some(status: bytes) -> bool:
    """Whether the JSON text of a status may list active runs; cheaper than decoding it."""
    return b'"activeCount"' in status or b'"Running"' in status


def of_running(running: Running, *, uid: str, namespace: str, name: str) -> Iterator[RunningJob]:
    """The Jobs among the active runs of a Schedule."""
    for (slot_us, wanted_by), job_name in running.jobs.items():
        if job_name:
            yield RunningJob(
                uid=uid,
                namespace=namespace,
                schedule_name=name,
                job_name=job_name,
                slot_us=slot_us,
                trigger="Manual" if wanted_by else "Schedule",
            )


def of_event(event: RunEvent) -> RunningJob:
    """The Job that a worker's event is about."""
    return RunningJob(
        uid=event.uid,
        namespace=event.namespace,
        schedule_name=event.name,
        job_name=event.job_name,
        slot_us=event.slot_us,
        trigger=event.trigger,
        reported_us=event.at_us,
        may_come_again=event.may_come_again,
    )
