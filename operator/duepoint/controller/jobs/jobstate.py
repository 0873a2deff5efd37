"""The Jobs of every Schedule, as the watch shows them, and what they say of their runs.

``observe`` and ``remove`` apply one Job and say what is new by it: a run that has ended, a Job that
went away before its end was seen, a Job that names no slot. A Job counts only where a Schedule
controls it, by namespace, name and uid, and where it names its slot; neither the label nor the uid
proves that alone. A Job that counted and does so no more was released: it is no run of the Schedule
from then on. A Job that went away before its end was seen is a failed run, because as far as is
known the work was not completed; the one exception is a Job that Duepoint deleted itself in favour
of a newer slot. No I/O.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from duepoint.controller.term import RunningJob
from duepoint.kube import jobbuilder, jobs, times
from duepoint.kube.jobs import JobOwner
from duepoint.runs.run import REGULAR, RunEvent, RunState
from duepoint.schedules import manualruns
from duepoint.schedules.conditions import Reason


@dataclass(frozen=True, slots=True)
class EndReason:
    """Why a run ended without an end of its Job."""

    reason: Reason
    message: str


#: The watch saw the Job go.
DELETED = EndReason(Reason.DELETED, "the Job was deleted before it ended")
#: The Job does not exist; it may have ended before it was deleted.
LOST = EndReason(Reason.DELETED, "the Job is gone, and its end was not seen")
#: The Job exists and is no run of the Schedule any more.
RELEASED = EndReason(
    Reason.DELETED,
    "the Job was released: its owner reference or slot was removed, and its end is not seen",
)


def start_of(job: jobs.Job, owner: JobOwner, slot_us: int, pod_end: str = "") -> RunEvent:
    """The run of a Job that exists; of one that is bound to fail, with the cause.

    Args:
        pod_end: how its Pod ended, where that says more than the Job does; empty = unknown.
    """
    at_us = created_us(job)
    failing = jobs.failing(job)
    return RunEvent(
        uid=owner.uid,
        namespace=owner.namespace,
        name=owner.name,
        generation=0,
        slot_us=slot_us,
        trigger=trigger(job),
        state=RunState.RUNNING,
        reason=Reason.RUNNING if failing is None else Reason.RUN_FAILED,
        message=""
        if failing is None
        else f"{pod_end or _why(failing)}; its Pods have not ended yet",
        at_us=at_us,
        started_us=at_us,
        job_name=job.metadata.name,
        job_uid=job.metadata.uid,
    )


def end_of(
    job: jobs.Job, owner: JobOwner, slot_us: int, now_us: int, pod_end: str = ""
) -> RunEvent | None:
    """The end of a Job's run; None where it has not ended. ``pod_end`` as for ``start_of``."""
    end = jobs.finished(job)
    if end is None:
        return None
    state, reason, message = RunState.SUCCEEDED, Reason.SUCCEEDED, ""
    if not end.succeeded:
        state, reason = RunState.FAILED, Reason.RUN_FAILED
        message = pod_end or _why(end)
    at_us = end.at_us or now_us
    return msgspec.structs.replace(
        start_of(job, owner, slot_us),
        state=state,
        reason=reason,
        message=message,
        at_us=at_us,
        finished_us=at_us,
    )


def _why(result: jobs.JobResult) -> str:
    return f"{result.reason}: {result.message}"


def end_of_gone(job: jobs.Job, run: RunningJob, why: EndReason, now_us: int) -> RunEvent:
    """The end of a run whose Job was seen to go; no other event of it will come."""
    return msgspec.structs.replace(
        end_of_missing(run, why, now_us), started_us=created_us(job), job_uid=job.metadata.uid
    )


def end_of_missing(run: RunningJob, why: EndReason, now_us: int) -> RunEvent:
    """The end of a run whose Job was not found, or is none of its Schedule's any more."""
    return RunEvent(
        uid=run.uid,
        namespace=run.namespace,
        name=run.schedule_name,
        generation=0,
        slot_us=run.slot_us,
        trigger=run.trigger,
        state=RunState.FAILED,
        reason=why.reason,
        message=why.message,
        at_us=now_us,
        started_us=min(run.slot_us, now_us),  # else it would be the newest run, begun now
        finished_us=now_us,
        job_name=run.job_name,
    )


def run_of(job: jobs.Job, owner: JobOwner, slot_us: int) -> RunningJob:
    """The run of a Job."""
    return RunningJob(
        uid=owner.uid,
        namespace=owner.namespace,
        schedule_name=owner.name,
        job_name=job.metadata.name,
        slot_us=slot_us,
        trigger=trigger(job),
    )


def trigger(job: jobs.Job) -> str:
    """``Schedule``, ``CatchUp``, ``Manual`` or ``Backfill``; any other word counts as none."""
    word = (job.metadata.annotations or {}).get(jobbuilder.TRIGGER)
    return word if word is not None and word in _TRIGGERS else "Schedule"


_TRIGGERS = REGULAR | {manualruns.TRIGGER_MANUAL, manualruns.TRIGGER_BACKFILL}


def created_us(job: jobs.Job) -> int:
    """When the API server created the Job; 0 where it does not say."""
    text = job.metadata.creation_timestamp
    try:
        return times.parse_us(text) if text else 0
    except ValueError:
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWithoutPods:
    """A Job that started at an instant and has had no Pod."""

    namespace: str
    name: str
    uid: str
    since_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedJob:
    """A Job that has ended and still exists.

    Attributes:
        is_wanted: a ScheduleRun wanted it; the slot is not one of the regular sequence.
    """

    namespace: str
    name: str
    uid: str
    slot_us: int
    succeeded: bool
    created_us: int = 0
    is_wanted: bool = False


@dataclass(slots=True)
class _Owned:
    """The Jobs of one Schedule, by uid.

    Attributes:
        leaving: Jobs that have ended, as was reported, and are being deleted; history leaves them
            out.
    """

    active: dict[str, RunningJob] = field(default_factory=dict)
    finished: dict[str, FinishedJob] = field(default_factory=dict)
    leaving: set[str] = field(default_factory=set)
    without_pods: dict[str, JobWithoutPods] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What is new by a Job.

    Attributes:
        owner: the Schedule whose set of Jobs may have changed; None = it belongs to none.
        ended: the end of its run.
        gone: the end of a run whose Job went away before its end was seen.
        without_slot: the Schedule that the Job says it is controlled by, without naming a slot.
    """

    owner: JobOwner | None = None
    ended: RunEvent | None = None
    gone: RunEvent | None = None
    without_slot: JobOwner | None = None


class WatchedJobs:
    """Jobs by their Schedule."""

    def __init__(self) -> None:
        self._by_schedule: dict[JobOwner, _Owned] = {}
        #: JobOwner and name by uid, and back: while a list is read, two Jobs may have one name.
        self._places: dict[str, tuple[JobOwner, str]] = {}
        self._names: dict[tuple[JobOwner, str], str] = {}
        #: Jobs that name a Schedule and no slot: their namespaces by uid.
        self._without_slot: dict[str, str] = {}

    # -- changes ---------------------------------------------------------------------------------

    def observe(self, job: jobs.Job, now_us: int, pod_end: str = "") -> Observation:
        """The Job exists; ``pod_end`` as ``end_of`` takes it."""
        owner, slot_us = jobs.owner_of(job), jobs.slot_us(job)
        uid = job.metadata.uid
        if slot_us is None or owner is None or self._owner(uid) not in (None, owner):
            return self._observe_other(job, owner if slot_us is None else None, now_us)
        owned = self._by_schedule.setdefault(owner, _Owned())
        place = self._places.setdefault(uid, (owner, job.metadata.name))
        self._names[place] = uid
        owned.without_pods.pop(uid, None)
        if (since_us := jobs.without_pods_since_us(job)) is not None:
            owned.without_pods[uid] = JobWithoutPods(
                namespace=owner.namespace, name=job.metadata.name, uid=uid, since_us=since_us
            )
        ended = end_of(job, owner, slot_us, now_us, pod_end)
        if ended is None:
            owned.active[uid] = run_of(job, owner, slot_us)
            return Observation(owner=owner)
        owned.active.pop(uid, None)
        if uid in owned.finished or uid in owned.leaving:
            return Observation(owner=owner)
        if job.metadata.deletion_timestamp is None:
            owned.finished[uid] = FinishedJob(
                namespace=owner.namespace,
                name=job.metadata.name,
                uid=uid,
                slot_us=slot_us,
                succeeded=ended.state is RunState.SUCCEEDED,
                created_us=created_us(job),
                is_wanted=ended.trigger not in REGULAR,
            )
        else:
            owned.leaving.add(uid)
        return Observation(owner=owner, ended=ended)

    def remove(self, job: jobs.Job, now_us: int) -> Observation:
        """The Job is gone.

        Its run ended when that was seen: a deletionTimestamp says when the deletion began, and a
        Job that was deleted at once has none.
        """
        uid = job.metadata.uid
        self._without_slot.setdefault(uid, job.metadata.namespace)  # it is too late to report it
        seen = self.observe(job, now_us)
        del self._without_slot[uid]
        owner = self._owner(uid)
        run = None if owner is None else self._drop(uid, owner)
        if run is None:
            return seen
        return replace(seen, gone=end_of_gone(job, run, DELETED, now_us))

    def record_deletion(self, owner: JobOwner, job_uid: str) -> None:
        """The finished Job is being deleted; until it is gone its end is not new."""
        owned = self._by_schedule.get(owner)
        if owned is not None and owned.finished.pop(job_uid, None) is not None:
            owned.leaving.add(job_uid)

    def retain(self, namespace: str | None, job_uids: set[str]) -> set[JobOwner]:
        """These are all Jobs of a namespace (None = all); the Schedules that lost Jobs by it."""
        lost: set[JobOwner] = set()
        for uid, (owner, _) in list(self._places.items()):
            if uid not in job_uids and namespace in (None, owner.namespace):
                self._drop(uid, owner)
                lost.add(owner)
        for uid, place in list(self._without_slot.items()):
            if uid not in job_uids and namespace in (None, place):
                del self._without_slot[uid]
        return lost

    # -- queries ---------------------------------------------------------------------------------

    def has(self, owner: JobOwner, job_name: str) -> bool:
        """Whether the Schedule has a Job of that name, ended or not."""
        return (owner, job_name) in self._names

    def active(self, owner: JobOwner, most: int) -> tuple[dict[str, Any], ...]:
        """References to the active Jobs, by name, at most so many."""
        owned = self._by_schedule.get(owner)
        if owned is None:
            return ()
        active = [(run.job_name, uid) for uid, run in owned.active.items()]
        return tuple(
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "namespace": owner.namespace,
                "name": name,
                "uid": uid,
            }
            for name, uid in heapq.nsmallest(most, active)
        )

    def is_active(self, owner: JobOwner, job_name: str) -> bool:
        """Whether a Job of that name is active."""
        owned = self._by_schedule.get(owner)
        return owned is not None and self._names.get((owner, job_name)) in owned.active

    def without_pods(self, owner: JobOwner) -> JobWithoutPods | None:
        """The Job that has been without Pods for longest, of those that could have some."""
        owned = self._by_schedule.get(owner)
        if owned is None or not owned.without_pods:
            return None
        return min(owned.without_pods.values(), key=lambda job: (job.since_us, job.name))

    def finished(self, owner: JobOwner) -> tuple[FinishedJob, ...]:
        """The finished Jobs that still exist."""
        owned = self._by_schedule.get(owner)
        return () if owned is None else tuple(owned.finished.values())

    # -- helpers ---------------------------------------------------------------------------------

    def _observe_other(self, job: jobs.Job, named: JobOwner | None, now_us: int) -> Observation:
        """A Job that is no run of a Schedule, or not of the one that it was a run of."""
        uid = job.metadata.uid
        if named is not None and uid in self._without_slot:
            named = None
        if named is not None:
            self._without_slot[uid] = job.metadata.namespace
        owner = self._owner(uid)
        run = None if owner is None else self._drop(uid, owner)
        gone = None if run is None else end_of_gone(job, run, RELEASED, now_us)
        return Observation(owner=owner, gone=gone, without_slot=named)

    def _owner(self, job_uid: str) -> JobOwner | None:
        """The Schedule of an observed Job; None = none."""
        place = self._places.get(job_uid)
        return None if place is None else place[0]

    def _drop(self, job_uid: str, owner: JobOwner) -> RunningJob | None:
        """An observed Job does not count any more; its run, if that has not ended."""
        place = self._places.pop(job_uid)
        if self._names.get(place) == job_uid:
            del self._names[place]
        owned = self._by_schedule[owner]
        owned.without_pods.pop(job_uid, None)
        owned.finished.pop(job_uid, None)
        owned.leaving.discard(job_uid)
        run = owned.active.pop(job_uid, None)
        if not (owned.active or owned.finished or owned.leaving):
            del self._by_schedule[owner]
        return run
