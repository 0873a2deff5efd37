"""The Jobs of every Schedule, as the watch shows them.

Takes Jobs in, tells what is new: a Job that has ended since it was last looked at, a Schedule whose
set of active Jobs is another. Only Jobs count that are controlled by a Schedule, by its namespace,
name and uid, and that name their slot; the label alone proves nothing, and a uid does not either.
A Job that counted and does so no more was released: it is no run of the Schedule from then on. No
I/O.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field, replace
from typing import Any

from duepoint.controller.jobs import gone
from duepoint.controller.jobs.history import FinishedJob
from duepoint.controller.jobs.podless import PodlessJob
from duepoint.kube import jobs, times
from duepoint.kube.jobs import Owner
from duepoint.runs import summary as summaries
from duepoint.runs.run import RunEvent, RunState
from duepoint.schedules.conditions import Reason


@dataclass(slots=True)
class _Owned:
    """Jobs of one Schedule, by uid.

    Attributes:
        going: those that have ended, as was told, and are being deleted: no history counts them.
    """

    active: dict[str, _Active] = field(default_factory=dict)
    finished: dict[str, FinishedJob] = field(default_factory=dict)
    going: set[str] = field(default_factory=set)
    podless: dict[str, PodlessJob] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Active:
    """A Job that has not ended, with what its run is known by."""

    reference: dict[str, Any]
    slot_us: int
    trigger: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a look at a Job has shown.

    Attributes:
        owner: the Schedule whose Jobs may be others now; None = no Schedule's.
        ended: the end of its run, where that is news.
        cut_short: the end of a run whose Job was taken away before its end was seen.
        claimed: the Schedule that the Job says it is controlled by without naming a slot, where
            that is news.
    """

    owner: Owner | None = None
    ended: RunEvent | None = None
    cut_short: RunEvent | None = None
    claimed: Owner | None = None


class JobBook:
    """Jobs by their Schedule."""

    def __init__(self) -> None:
        self._by_schedule: dict[Owner, _Owned] = {}
        #: Owner and name by uid, and back: while a list is read, two Jobs may have one name.
        self._places: dict[str, tuple[Owner, str]] = {}
        self._names: dict[tuple[Owner, str], str] = {}
        #: Jobs that say that they are a Schedule's and name no slot: their namespaces by uid.
        self._without_slot: dict[str, str] = {}

    def has(self, owner: Owner, job_name: str) -> bool:
        """Whether the Schedule has a Job of that name."""
        return (owner, job_name) in self._names

    def put(self, job: jobs.Job, now_us: int) -> Seen:
        """The Job exists."""
        owner, slot_us = jobs.owner_of(job), jobs.slot_us(job)
        uid = job.metadata.uid
        if slot_us is None or owner is None or self._owner(uid) not in (None, owner):
            return self._put_other(job, owner if slot_us is None else None, now_us)
        owned = self._by_schedule.setdefault(owner, _Owned())
        place = self._places.setdefault(uid, (owner, job.metadata.name))
        self._names[place] = uid
        ended = jobs.finished(job)
        since_us = jobs.without_pods_since_us(job)
        owned.podless.pop(uid, None)
        if since_us is not None:
            owned.podless[uid] = _podless(job, since_us)
        if ended is None:
            owned.active[uid] = _active(job, slot_us)
            return Seen(owner=owner)
        owned.active.pop(uid, None)
        if uid in owned.finished or uid in owned.going:
            return Seen(owner=owner)
        if job.metadata.deletion_timestamp is None:
            owned.finished[uid] = _finished(job, slot_us, ended)
        else:
            owned.going.add(uid)
        return Seen(owner=owner, ended=_event(job, owner, slot_us, ended, now_us))

    def drop(self, job: jobs.Job, now_us: int) -> Seen:
        """The Job is gone.

        Its run ended when that was seen: a deletionTimestamp tells when the deletion began, and
        what was deleted at once has none.
        """
        uid = job.metadata.uid
        self._without_slot.setdefault(uid, job.metadata.namespace)  # it is too late to tell of it
        seen = self.put(job, now_us)
        del self._without_slot[uid]
        owner = self._owner(uid)
        if owner is None:
            return seen
        run = self._drop(uid, owner)
        if run is None:
            return seen
        return replace(seen, cut_short=_taken(job, owner, run, gone.deleted(), now_us))

    def let_go(self, owner: Owner, job_uid: str) -> None:
        """The finished Job is to be deleted; until it is gone its end is no news."""
        owned = self._by_schedule.get(owner)
        if owned is not None and owned.finished.pop(job_uid, None) is not None:
            owned.going.add(job_uid)

    def keep_only(self, namespace: str | None, job_uids: set[str]) -> set[Owner]:
        """A complete list of a namespace (None = all) is known; Schedules that lost Jobs by it."""
        lost: set[Owner] = set()
        for uid, (owner, _) in list(self._places.items()):
            if uid not in job_uids and namespace in (None, owner.namespace):
                self._drop(uid, owner)
                lost.add(owner)
        for uid, place in list(self._without_slot.items()):
            if uid not in job_uids and namespace in (None, place):
                del self._without_slot[uid]
        return lost

    def active(self, owner: Owner, most: int) -> tuple[dict[str, Any], ...]:
        """References to the active Jobs, at most so many, by name."""
        owned = self._by_schedule.get(owner)
        if owned is None:
            return ()
        references = (run.reference for run in owned.active.values())
        return tuple(heapq.nsmallest(most, references, key=lambda one: str(one["name"])))

    def is_active(self, owner: Owner, job: jobs.Job) -> bool:
        """Whether a Job that was put has not ended."""
        owned = self._by_schedule.get(owner)
        return owned is not None and job.metadata.uid in owned.active

    def runs(self, owner: Owner, job_name: str) -> bool:
        """Whether a Job of that name is active."""
        owned = self._by_schedule.get(owner)
        return owned is not None and self._names.get((owner, job_name)) in owned.active

    def podless(self, owner: Owner) -> PodlessJob | None:
        """The Job that has been without Pods for longest, of those that could have some."""
        owned = self._by_schedule.get(owner)
        if owned is None or not owned.podless:
            return None
        return min(owned.podless.values(), key=lambda job: (job.since_us, job.name))

    def finished(self, owner: Owner) -> tuple[FinishedJob, ...]:
        """The finished Jobs that still exist."""
        owned = self._by_schedule.get(owner)
        return () if owned is None else tuple(owned.finished.values())

    def _put_other(self, job: jobs.Job, claimed: Owner | None, now_us: int) -> Seen:
        """A Job that is no run of a Schedule, or not of the one that it was a run of."""
        uid = job.metadata.uid
        if claimed is not None and uid in self._without_slot:
            claimed = None
        if claimed is not None:
            self._without_slot[uid] = job.metadata.namespace
        owner = self._owner(uid)
        if owner is None:
            return Seen(claimed=claimed)
        run = self._drop(uid, owner)
        if run is None:
            return Seen(owner=owner, claimed=claimed)
        cut_short = _taken(job, owner, run, gone.released(), now_us)
        return Seen(owner=owner, cut_short=cut_short, claimed=claimed)

    def _owner(self, job_uid: str) -> Owner | None:
        """Of which Schedule a Job that was put is a run; None = of none."""
        place = self._places.get(job_uid)
        return None if place is None else place[0]

    def _drop(self, job_uid: str, owner: Owner) -> _Active | None:
        """A Job that was put is its Schedule's no more; its run, if that has not ended."""
        place = self._places.pop(job_uid)
        if self._names.get(place) == job_uid:
            del self._names[place]
        owned = self._by_schedule[owner]
        owned.podless.pop(job_uid, None)
        owned.finished.pop(job_uid, None)
        owned.going.discard(job_uid)
        run = owned.active.pop(job_uid, None)
        if not (owned.active or owned.finished or owned.going):
            del self._by_schedule[owner]
        return run


def _active(job: jobs.Job, slot_us: int) -> _Active:
    metadata = job.metadata
    reference = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "namespace": metadata.namespace,
        "name": metadata.name,
        "uid": metadata.uid,
    }
    return _Active(reference=reference, slot_us=slot_us, trigger=_trigger(job))


def _podless(job: jobs.Job, since_us: int) -> PodlessJob:
    metadata = job.metadata
    return PodlessJob(
        namespace=metadata.namespace, name=metadata.name, uid=metadata.uid, since_us=since_us
    )


def _finished(job: jobs.Job, slot_us: int, ended: jobs.Finished) -> FinishedJob:
    return FinishedJob(
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        uid=job.metadata.uid,
        slot_us=slot_us,
        succeeded=ended.succeeded,
        created_us=_instant_us(job.metadata.creation_timestamp),
        is_wanted=_trigger(job) not in summaries.REGULAR,
    )


def _taken(job: jobs.Job, owner: Owner, run: _Active, why: gone.Gone, at_us: int) -> RunEvent:
    """The Job was taken away before it ended; nothing else will ever tell of this run."""
    return _ended(
        job, owner, run.slot_us, run.trigger, RunState.FAILED, why.reason, why.message, at_us
    )


def begun(job: jobs.Job) -> RunEvent | None:
    """The run of a Job that is active; None of one that is no Schedule's."""
    owner, slot_us = jobs.owner_of(job), jobs.slot_us(job)
    if owner is None or slot_us is None:
        return None
    created_us = _instant_us(job.metadata.creation_timestamp)
    return RunEvent(
        uid=owner.uid,
        namespace=owner.namespace,
        name=owner.name,
        generation=0,
        slot_us=slot_us,
        trigger=_trigger(job),
        state=RunState.RUNNING,
        reason=Reason.CREATED,
        at_us=created_us,
        started_us=created_us,
        job_name=job.metadata.name,
        job_uid=job.metadata.uid,
    )


def end_of(job: jobs.Job, now_us: int) -> RunEvent | None:
    """The end of a Job's run; None where it has not ended, or is no Schedule's."""
    owner, slot_us, ended = jobs.owner_of(job), jobs.slot_us(job), jobs.finished(job)
    if owner is None or slot_us is None or ended is None:
        return None
    return _event(job, owner, slot_us, ended, now_us)


def _event(
    job: jobs.Job, owner: Owner, slot_us: int, ended: jobs.Finished, now_us: int
) -> RunEvent:
    state, reason, message = RunState.SUCCEEDED, Reason.SUCCEEDED, ""
    if not ended.succeeded:
        state, reason = RunState.FAILED, Reason.JOB_FAILED
        message = f"{ended.reason}: {ended.message}"
    at_us = ended.at_us or now_us
    return _ended(job, owner, slot_us, _trigger(job), state, reason, message, at_us)


def _ended(  # noqa: PLR0917 - the fields in their order
    job: jobs.Job,
    owner: Owner,
    slot_us: int,
    trigger: str,
    state: RunState,
    reason: Reason,
    message: str,
    at_us: int,
) -> RunEvent:
    return RunEvent(
        uid=owner.uid,
        namespace=owner.namespace,
        name=owner.name,
        generation=0,
        slot_us=slot_us,
        trigger=trigger,
        state=state,
        reason=reason,
        message=message,
        at_us=at_us,
        started_us=_instant_us(job.metadata.creation_timestamp),
        finished_us=at_us,
        job_name=job.metadata.name,
        job_uid=job.metadata.uid,
    )


def _trigger(job: jobs.Job) -> str:
    return (job.metadata.annotations or {}).get(jobs.TRIGGER, "Schedule")


def _instant_us(text: str | None) -> int:
    try:
        return times.parse_us(text) if text else 0
    except ValueError:
        return 0
