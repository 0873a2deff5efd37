"""The existing Jobs of a Schedule: the run events that follow from one, and which to delete.

A Job that disappeared before we saw its end counts as a failed run, because nothing shows that the
work was completed. The one exception is a Job that Duepoint deleted itself in favour of a newer
slot. No I/O.

Successful and failed Jobs have separate limits, which count regular, manual and backfilled ones
together; the oldest are deleted first. A Job is the proof that its slot ran, so it may be deleted
only once nothing will ask for that slot again: the queue no longer has the slot, and a regular slot
has also ended *by the published status*, at or below the watermark and not open. Neither is enough
alone: a Redis that lost data or went back may have slots that ended, or lack open ones. An older
slot that is open does not keep the Job, which may fill the quota that the older slot's Job needs.

A Job also stays until the status shows how it ended: otherwise a new leader would see a running Job
that is gone. And it stays while a request that may create it again is in flight (``LateRequests``).
The limits hold for suspended and refused Schedules, too.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from duepoint.kube import errors, jobbuilder, jobs, times
from duepoint.kube.jobs import JobOwner
from duepoint.runs.run import REGULAR, RunEvent, RunState
from duepoint.schedules import manualruns
from duepoint.schedules.conditions import Reason
from duepoint.schedules.rule import Policy

# The messages of runs whose Jobs were deleted or released before we saw their ends.
#: The Job does not exist; it may have ended before it was deleted.
LOST = "the Job is gone, and its end was not seen"
#: The Job exists, but is no longer a run of the Schedule.
RELEASED = "the Job was released: its owner reference or slot was removed, and its end is not seen"


def start_of(job: jobs.Job, owner: JobOwner, slot_us: int, pod_end: str = "") -> RunEvent:
    """Return the start event of an existing Job; if it is bound to fail, with the cause.

    Args:
        pod_end: how its Pod ended, if that says more than the Job does; empty = unknown.
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
        else f"{pod_end or _cause(failing)}; its Pods have not ended yet",
        at_us=at_us,
        started_us=at_us,
        job_name=job.metadata.name,
        job_uid=job.metadata.uid,
    )


def end_of(
    job: jobs.Job, owner: JobOwner, slot_us: int, now_us: int, pod_end: str = ""
) -> RunEvent | None:
    """Return the end event of a Job; None = it has not ended. ``pod_end`` as for ``start_of``."""
    end = jobs.finished(job)
    if end is None:
        return None
    state, reason, message = RunState.SUCCEEDED, Reason.SUCCEEDED, ""
    if not end.succeeded:
        state, reason = RunState.FAILED, Reason.RUN_FAILED
        message = pod_end or _cause(end)
    at_us = end.at_us or now_us
    return msgspec.structs.replace(
        start_of(job, owner, slot_us),
        state=state,
        reason=reason,
        message=message,
        at_us=at_us,
        finished_us=at_us,
    )


def _cause(result: jobs.JobResult) -> str:
    return f"{result.reason}: {result.message}"


def trigger(job: jobs.Job) -> str:
    """Return ``Schedule``, ``CatchUp``, ``Manual`` or ``Backfill``; ``Schedule`` if unknown."""
    word = (job.metadata.annotations or {}).get(jobbuilder.TRIGGER)
    return word if word is not None and word in _TRIGGERS else "Schedule"


_TRIGGERS = REGULAR | {manualruns.TRIGGER_MANUAL, manualruns.TRIGGER_BACKFILL}


def created_us(job: jobs.Job) -> int:
    """Return when the API server created the Job; 0 = unknown."""
    text = job.metadata.creation_timestamp
    try:
        return times.parse_us(text) if text else 0
    except ValueError:
        return 0


@dataclass(slots=True, kw_only=True)
class OwnedJob:
    """An existing Job of a Schedule.

    Attributes:
        succeeded: whether it succeeded or failed; None = it is active.
        is_leaving: whether it is being deleted; history ignores it then.
        without_pods_us: since when it could have had Pods; None = it has some, or cannot.
        pod_end: how its Pod ended, read when it was bound to fail; empty = unknown.
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
    pod_end: str = ""

    @property
    def namespace(self) -> str:
        return self.owner.namespace

    @property
    def is_wanted(self) -> bool:
        """Whether a ScheduleRun created it, so that its slot is not a regular one."""
        return self.trigger not in REGULAR


# -- the history limits --------------------------------------------------------------------------

#: How long a worker may continue with a claim that it has lost.
_LOST_CLAIM_US = 60_000_000
#: Most reported Jobs, and most deleted ones, to remember; the oldest are forgotten first.
_MOST_REMEMBERED = 20_000

_Key = tuple[str, str]


class LateRequests:
    """Tracks which finished Jobs a late request could create again, and how long they must stay.

    If the creation was requested once, and answered, the Job may be deleted at once. If a request
    got no answer, or the slot was claimed before, the worker reports that, and the Job stays until
    the API server can no longer execute the request. The same holds for Jobs that no worker has
    reported to this leader, counted from their creation, and for slots up to a loss of claims,
    because a worker that lost its claim may have sent a request, too.

    It also recognises a Job that came back: a new Job with the name of a deleted one. No I/O;
    instants are in microseconds of the operator's clock.
    """

    def __init__(self) -> None:
        #: By a reported Job's namespace and name: until when a request may create it again.
        self._reported: OrderedDict[_Key, int] = OrderedDict()
        #: The uid of a deleted Job. The key is the Schedule's uid and the Job's name, because
        #: another Schedule of the same name has its own Jobs.
        self._deleted: OrderedDict[_Key, str] = OrderedDict()
        self._claims_lost_us = 0

    def record(self, started: RunEvent) -> None:
        """Record a worker's report that a Job exists. Idempotent."""
        name = started.namespace, started.job_name
        may_repeat = self._reported.pop(name, 0) or started.may_come_again
        self._reported[name] = started.at_us + errors.LATE_US if may_repeat else 0
        if len(self._reported) > _MOST_REMEMBERED:
            self._reported.popitem(last=False)

    def record_lost_claims(self, at_us: int) -> None:
        """Record that claims of slots up to this instant may be lost, and made again."""
        self._claims_lost_us = max(self._claims_lost_us, at_us)

    def stays_until_us(self, job: OwnedJob) -> int:
        """Return until when the Job must stay; an instant in the past if it may be deleted."""
        until_us = self._reported.get((job.namespace, job.name), job.created_us)
        if until_us:  # the worker's clock, which follows Redis's, may be behind the API server's
            until_us = max(until_us, job.created_us + errors.LATE_US)
        if 0 < job.slot_us <= self._claims_lost_us:
            until_us = max(until_us, self._claims_lost_us + _LOST_CLAIM_US + errors.LATE_US)
        return until_us

    def record_gone(self, schedule_uid: str, job_name: str, uid: str) -> None:
        """Record that the Job was deleted."""
        self._deleted[schedule_uid, job_name] = uid
        if len(self._deleted) > _MOST_REMEMBERED:
            self._deleted.popitem(last=False)

    def is_back(self, schedule_uid: str, job_name: str, uid: str) -> bool:
        """Whether this is a new Job with the name of a deleted one; True only once."""
        if self._deleted.get((schedule_uid, job_name), uid) == uid:
            return False
        del self._deleted[schedule_uid, job_name]
        return True


def too_many(finished: Iterable[OwnedJob], policy: Policy) -> tuple[OwnedJob, ...]:
    """Return the Jobs beyond the limits: successful ones, then failed ones, each oldest first."""
    by_age = sorted(finished, key=lambda job: (job.created_us, job.slot_us, job.name))
    groups = (
        ([job for job in by_age if job.succeeded], policy.successful_jobs_history_limit),
        ([job for job in by_age if not job.succeeded], policy.failed_jobs_history_limit),
    )
    return tuple(job for group, limit in groups for job in group[: max(0, len(group) - limit)])
