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
from collections.abc import Iterable
from dataclasses import dataclass, replace
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


@dataclass(slots=True, kw_only=True)
class OwnedJob:
    """A Job of a Schedule that exists.

    Attributes:
        succeeded: how it has ended; None = it is active.
        is_leaving: it has ended, as was reported, and is being deleted; history leaves it out.
        without_pods_us: since when it could have had Pods; None = it has some, or cannot.
    """

    owner: JobOwner
    name: str
    uid: str
    slot_us: int
    trigger: str = "Schedule"
    created_us: int = 0
    succeeded: bool | None = None
    is_leaving: bool = False
    without_pods_us: int | None = None

    @property
    def namespace(self) -> str:
        return self.owner.namespace

    @property
    def is_wanted(self) -> bool:
        """Whether a ScheduleRun wanted it; the slot is not one of the regular sequence."""
        return self.trigger not in REGULAR

    @property
    def run(self) -> RunningJob:
        return RunningJob(
            uid=self.owner.uid,
            namespace=self.owner.namespace,
            schedule_name=self.owner.name,
            job_name=self.name,
            slot_us=self.slot_us,
            trigger=self.trigger,
        )


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
        self._by_uid: dict[str, OwnedJob] = {}
        self._by_schedule: dict[JobOwner, dict[str, OwnedJob]] = {}
        #: While a list is read, two Jobs may have one name: the newest.
        self._by_name: dict[tuple[JobOwner, str], OwnedJob] = {}
        #: Jobs that name a Schedule and no slot: their namespaces by uid.
        self._without_slot: dict[str, str] = {}

    # -- changes ---------------------------------------------------------------------------------

    def observe(self, job: jobs.Job, now_us: int, pod_end: str = "") -> Observation:
        """The Job exists; ``pod_end`` as ``end_of`` takes it."""
        owner, slot_us = jobs.owner_of(job), jobs.slot_us(job)
        uid, name = job.metadata.uid, job.metadata.name
        known = self._by_uid.get(uid)
        if slot_us is None or owner is None or (known is not None and known.owner != owner):
            return self._observe_other(job, owner if slot_us is None else None, now_us)
        if known is None:
            known = OwnedJob(owner=owner, name=name, uid=uid, slot_us=slot_us)
            self._by_uid[uid] = known
            self._by_schedule.setdefault(owner, {})[uid] = known
        self._by_name[owner, name] = known
        known.slot_us, known.trigger = slot_us, trigger(job)
        known.created_us = created_us(job)
        known.without_pods_us = jobs.without_pods_since_us(job)
        ended = end_of(job, owner, slot_us, now_us, pod_end)
        if ended is None or known.succeeded is not None:
            return Observation(owner=owner)
        known.succeeded = ended.state is RunState.SUCCEEDED
        known.is_leaving = job.metadata.deletion_timestamp is not None
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
        known = self._drop(uid)
        if known is None or known.succeeded is not None:
            return seen
        return replace(seen, gone=end_of_gone(job, known.run, DELETED, now_us))

    def record_deletion(self, job_uid: str) -> None:
        """The finished Job is being deleted; until it is gone its end is not new."""
        if (known := self._by_uid.get(job_uid)) is not None:
            known.is_leaving = True

    def retain(self, namespace: str | None, job_uids: set[str]) -> set[JobOwner]:
        """These are all Jobs of a namespace (None = all); the Schedules that lost Jobs by it."""
        lost: set[JobOwner] = set()
        for uid, known in list(self._by_uid.items()):
            if uid not in job_uids and namespace in (None, known.namespace):
                self._drop(uid)
                lost.add(known.owner)
        for uid, place in list(self._without_slot.items()):
            if uid not in job_uids and namespace in (None, place):
                del self._without_slot[uid]
        return lost

    # -- queries ---------------------------------------------------------------------------------

    def has(self, owner: JobOwner, job_name: str) -> bool:
        """Whether the Schedule has a Job of that name, ended or not."""
        return (owner, job_name) in self._by_name

    def active(self, owner: JobOwner, most: int) -> tuple[dict[str, Any], ...]:
        """References to the active Jobs, by name, at most so many."""
        active = [(job.name, job.uid) for job in self._of(owner) if job.succeeded is None]
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
        job = self._by_name.get((owner, job_name))
        return job is not None and job.succeeded is None

    def without_pods(self, owner: JobOwner) -> OwnedJob | None:
        """The Job that has been without Pods for longest, of those that could have some."""
        found = [
            (job.without_pods_us, job.name, job)
            for job in self._of(owner)
            if job.without_pods_us is not None
        ]
        return min(found)[2] if found else None

    def finished(self, owner: JobOwner) -> tuple[OwnedJob, ...]:
        """The finished Jobs that still exist."""
        return tuple(
            [job for job in self._of(owner) if job.succeeded is not None and not job.is_leaving]
        )

    # -- helpers ---------------------------------------------------------------------------------

    def _of(self, owner: JobOwner) -> Iterable[OwnedJob]:
        return self._by_schedule.get(owner, {}).values()

    def _observe_other(self, job: jobs.Job, named: JobOwner | None, now_us: int) -> Observation:
        """A Job that is no run of a Schedule, or not of the one that it was a run of."""
        uid = job.metadata.uid
        if named is not None and uid in self._without_slot:
            named = None
        if named is not None:
            self._without_slot[uid] = job.metadata.namespace
        if (known := self._drop(uid)) is None:
            return Observation(without_slot=named)
        is_active = known.succeeded is None
        gone = end_of_gone(job, known.run, RELEASED, now_us) if is_active else None
        return Observation(owner=known.owner, gone=gone, without_slot=named)

    def _drop(self, job_uid: str) -> OwnedJob | None:
        """An observed Job does not count any more."""
        known = self._by_uid.pop(job_uid, None)
        if known is None:
            return None
        place = known.owner, known.name
        if self._by_name.get(place) is known:
            del self._by_name[place]
        owned = self._by_schedule[known.owner]
        del owned[job_uid]
        if not owned:
            del self._by_schedule[known.owner]
        return known
