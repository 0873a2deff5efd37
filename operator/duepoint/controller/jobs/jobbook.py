"""The Jobs of every Schedule, as the watch shows them.

Takes Jobs in, tells what is new: a Job that has ended since it was last looked at, a Schedule whose
set of active Jobs is another. Only Jobs controlled by a Schedule count; the label alone proves
nothing. No I/O.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from duepoint.controller.jobs.history import FinishedJob
from duepoint.controller.jobs.podless import PodlessJob
from duepoint.kube import jobs, port, schedules, times
from duepoint.runs import summary as summaries
from duepoint.runs.run import RunEvent, RunState
from duepoint.schedules.conditions import Reason


@dataclass(slots=True)
class _Owned:
    """Jobs of one Schedule, by uid."""

    active: dict[str, dict[str, Any]] = field(default_factory=dict)
    finished: dict[str, FinishedJob] = field(default_factory=dict)
    podless: dict[str, PodlessJob] = field(default_factory=dict)


class JobBook:
    """Jobs by the uid of their Schedule."""

    def __init__(self) -> None:
        self._by_schedule: dict[str, _Owned] = {}
        self._names: set[tuple[str, str]] = set()

    def has(self, namespace: str, job_name: str) -> bool:
        """Whether a Job of that name is there."""
        return (namespace, job_name) in self._names

    def put(self, job: jobs.Job) -> tuple[str, RunEvent | None]:
        """The Schedule's uid ("" for a Job that is none's), and its end where that is news."""
        owner = _owner(job)
        if owner is None:
            return "", None
        owned = self._by_schedule.setdefault(owner.uid, _Owned())
        self._names.add((job.metadata.namespace, job.metadata.name))
        ended = jobs.finished(job)
        uid = job.metadata.uid
        since_us = jobs.without_pods_since_us(job)
        owned.podless.pop(uid, None)
        if since_us is not None:
            owned.podless[uid] = _podless(job, since_us)
        if ended is None:
            owned.active[uid] = _reference(job)
            return owner.uid, None
        owned.active.pop(uid, None)
        if uid in owned.finished:
            return owner.uid, None
        if job.metadata.deletion_timestamp is None:
            owned.finished[uid] = _finished(job, ended)
        return owner.uid, _event(job, owner, ended)

    def drop(self, job: jobs.Job) -> tuple[str, RunEvent | None, RunEvent | None]:
        """The Job is gone: the Schedule's uid, or "", and its end where that is news.

        The third is the end of a run that was cut short: nobody saw it end.
        """
        schedule_uid, ended = self.put(job)
        if not schedule_uid:
            return "", None, None
        was_active = job.metadata.uid in self._by_schedule[schedule_uid].active
        self.drop_uid(schedule_uid, job.metadata.uid)
        self._names.discard((job.metadata.namespace, job.metadata.name))
        return schedule_uid, ended, _deleted_event(job) if was_active else None

    def drop_uid(self, schedule_uid: str, job_uid: str) -> None:
        """The Job of that uid is gone."""
        owned = self._by_schedule.get(schedule_uid)
        if owned is None:
            return
        owned.podless.pop(job_uid, None)
        reference = owned.active.pop(job_uid, None)
        if reference is not None:
            self._names.discard((reference["namespace"], reference["name"]))
        job = owned.finished.pop(job_uid, None)
        if job is not None:
            self._names.discard((job.namespace, job.name))
        if not owned.active and not owned.finished:
            del self._by_schedule[schedule_uid]

    def keep_only(self, namespace: str | None, job_uids: set[str]) -> set[str]:
        """A complete list of a namespace (None = all) is known; Schedules that lost Jobs by it."""
        lost: set[str] = set()
        for schedule_uid, owned in list(self._by_schedule.items()):
            places = {uid: ref["namespace"] for uid, ref in owned.active.items()} | {
                uid: job.namespace for uid, job in owned.finished.items()
            }
            for uid, place in places.items():
                if uid not in job_uids and namespace in (None, place):
                    self.drop_uid(schedule_uid, uid)
                    lost.add(schedule_uid)
        return lost

    def active(self, schedule_uid: str, most: int) -> tuple[tuple[dict[str, Any], ...], int]:
        """References to the active Jobs, at most so many, by name; and how many there are."""
        owned = self._by_schedule.get(schedule_uid)
        if owned is None:
            return (), 0
        listed = sorted(owned.active.values(), key=lambda reference: str(reference["name"]))
        return tuple(listed[:most]), len(listed)

    def is_active(self, schedule_uid: str, job: jobs.Job) -> bool:
        """Whether a Job that was put has not ended."""
        owned = self._by_schedule.get(schedule_uid)
        return owned is not None and job.metadata.uid in owned.active

    def runs(self, schedule_uid: str, job_name: str) -> bool:
        """Whether a Job of that name is active."""
        owned = self._by_schedule.get(schedule_uid)
        return owned is not None and any(one["name"] == job_name for one in owned.active.values())

    def podless(self, schedule_uid: str) -> PodlessJob | None:
        """The Job that has been without Pods for longest, of those that could have some."""
        owned = self._by_schedule.get(schedule_uid)
        if owned is None or not owned.podless:
            return None
        return min(owned.podless.values(), key=lambda job: (job.since_us, job.name))

    def finished(self, schedule_uid: str) -> tuple[FinishedJob, ...]:
        """The finished Jobs that still exist."""
        owned = self._by_schedule.get(schedule_uid)
        return () if owned is None else tuple(owned.finished.values())


def _owner(job: jobs.Job) -> port.OwnerReference | None:
    for reference in job.metadata.owner_references or ():
        if (
            reference.controller
            and reference.kind == schedules.KIND
            and (reference.api_version == schedules.API_VERSION)
        ):
            return reference
    return None


def _reference(job: jobs.Job) -> dict[str, Any]:
    metadata = job.metadata
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "namespace": metadata.namespace,
        "name": metadata.name,
        "uid": metadata.uid,
    }


def _podless(job: jobs.Job, since_us: int) -> PodlessJob:
    metadata = job.metadata
    return PodlessJob(
        namespace=metadata.namespace, name=metadata.name, uid=metadata.uid, since_us=since_us
    )


def _finished(job: jobs.Job, ended: jobs.Finished) -> FinishedJob:
    return FinishedJob(
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        uid=job.metadata.uid,
        slot_us=_slot_us(job),
        succeeded=ended.succeeded,
        created_us=_instant_us(job.metadata.creation_timestamp),
        is_wanted=_trigger(job) not in summaries.REGULAR,
    )


def _deleted_event(job: jobs.Job) -> RunEvent | None:
    """Somebody deleted the Job before it ended; nothing else will ever tell of this run."""
    owner = _owner(job)
    if owner is None:
        return None
    told = "the Job was deleted before it ended"
    at_us = _instant_us(job.metadata.deletion_timestamp)
    ended = jobs.Finished(succeeded=False, reason=Reason.DELETED, message=told, at_us=at_us or None)
    return _event(job, owner, ended)


def begun(job: jobs.Job, schedule_uid: str) -> RunEvent:
    """The run of a Job that is active."""
    created_us = _instant_us(job.metadata.creation_timestamp)
    owner = _owner(job)
    return RunEvent(
        uid=schedule_uid,
        namespace=job.metadata.namespace,
        name="" if owner is None else owner.name,
        generation=0,
        slot_us=_slot_us(job),
        trigger=_trigger(job),
        state=RunState.RUNNING,
        reason=Reason.CREATED,
        at_us=created_us,
        started_us=created_us,
        job_name=job.metadata.name,
        job_uid=job.metadata.uid,
    )


def end_of(job: jobs.Job) -> RunEvent | None:
    """The end of a Job's run; None where it has not ended, or is no Schedule's."""
    owner, ended = _owner(job), jobs.finished(job)
    return None if owner is None or ended is None else _event(job, owner, ended)


def _event(job: jobs.Job, owner: port.OwnerReference, ended: jobs.Finished) -> RunEvent:
    created_us = _instant_us(job.metadata.creation_timestamp)
    at_us = ended.at_us or created_us
    return RunEvent(
        uid=owner.uid,
        namespace=job.metadata.namespace,
        name=owner.name,
        generation=0,
        slot_us=_slot_us(job),
        trigger=_trigger(job),
        state=RunState.SUCCEEDED if ended.succeeded else RunState.FAILED,
        reason=Reason.SUCCEEDED if ended.succeeded else Reason.JOB_FAILED,
        message="" if ended.succeeded else f"{ended.reason}: {ended.message}",
        at_us=at_us,
        started_us=created_us,
        finished_us=at_us,
        job_name=job.metadata.name,
        job_uid=job.metadata.uid,
    )


def _trigger(job: jobs.Job) -> str:
    return (job.metadata.annotations or {}).get(jobs.TRIGGER, "Schedule")


def _slot_us(job: jobs.Job) -> int:
    """From the annotation; from the creation where somebody removed that."""
    text = (job.metadata.annotations or {}).get(jobs.SCHEDULED_TIME)
    return _instant_us(text) or _instant_us(job.metadata.creation_timestamp)


def _instant_us(text: str | None) -> int:
    try:
        return times.parse_us(text) if text else 0
    except ValueError:
        return 0
