"""The history limits: chooses the finished Jobs to delete, once nothing needs them any more.

Successful and failed Jobs have separate limits, which count regular, manual and backfilled ones
together; the oldest are deleted first. A Job is the proof that its slot ran, so it may be deleted
only once nothing will ask for that slot again: the queue no longer has the slot, and a regular slot
has also ended *by the published status*, at or below the watermark and not open. Neither is enough
alone: a Redis that lost data or went back may have slots that ended, or lack open ones. So finished
Jobs of later slots that fill the quota of an older one are deleted, and it gets its Job.

A Job also stays until the status shows how it ended, or a new leader would find it shown as running
but gone; and while a request that may create it again is in flight (``LateRequests``). The limits
hold for suspended and refused Schedules, too.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from duepoint.controller.jobs.jobstate import OwnedJob
from duepoint.kube import errors
from duepoint.runs.run import RunEvent
from duepoint.schedules.rule import Policy

#: A worker may go on this long with a claim that was lost.
_CLAIM_US = 60_000_000
#: A deleted Job is remembered this long: twice as long as a request may be late.
_REMEMBERED_US = 2 * errors.LATE_US

_Name = tuple[str, str]


class LateRequests:
    """Tracks which finished Jobs a late request could create again, and how long they must stay.

    If the creation was requested once, and answered, the Job may be deleted at once. If a request
    got no answer, or the slot was claimed before, the worker says so, and the Job stays until the
    API server can no longer carry out that request. The same holds for Jobs that no worker has
    reported to this leader, counted from their creation, and for slots up to a loss of claims,
    because a worker that lost its claim may have sent a request, too.

    It also recognises a Job that came back: a new Job with the name of a deleted one. No I/O;
    instants are in microseconds of the operator's clock.
    """

    def __init__(self) -> None:
        #: By namespace and name: when a Job was reported, and until when another request may come.
        self._reported: OrderedDict[_Name, tuple[int, int]] = OrderedDict()
        #: When a Job was deleted, and its uid. The key is the Schedule's uid and the Job's name,
        #: because another Schedule of the same name has its own Jobs.
        self._gone: OrderedDict[_Name, tuple[int, str]] = OrderedDict()
        self._lost_us = 0

    def record(self, started: RunEvent) -> None:
        """Record a worker's report that a Job exists. Idempotent."""
        name, at_us = (started.namespace, started.job_name), started.at_us
        _, until_us = self._reported.pop(name, (0, 0))
        if started.may_come_again or until_us:
            until_us = at_us + errors.LATE_US
        self._reported[name] = at_us, until_us
        _forget(self._reported, at_us)

    def record_lost_claims(self, at_us: int) -> None:
        """Record that claims of slots up to here may be lost, and made again."""
        self._lost_us = max(self._lost_us, at_us)

    def stays_until_us(self, job: OwnedJob) -> int:
        """Return until when the Job must stay; an instant in the past if it may be deleted."""
        unreported = 0, job.created_us + errors.LATE_US
        _, until_us = self._reported.get((job.namespace, job.name), unreported)
        if 0 < job.slot_us <= self._lost_us:
            until_us = max(until_us, self._lost_us + _CLAIM_US + errors.LATE_US)
        return until_us

    def record_gone(self, schedule_uid: str, job_name: str, uid: str, now_us: int) -> None:
        """Record that the Job was deleted."""
        self._gone.pop((schedule_uid, job_name), None)
        self._gone[schedule_uid, job_name] = now_us, uid
        _forget(self._gone, now_us)

    def is_back(self, schedule_uid: str, job_name: str, uid: str) -> bool:
        """Whether this is a new Job with the name of a deleted one; True only once."""
        _, gone = self._gone.get((schedule_uid, job_name), (0, uid))
        if gone == uid:
            return False
        del self._gone[schedule_uid, job_name]
        return True


def _forget(noted: OrderedDict[_Name, tuple[int, Any]], now_us: int) -> None:
    """Drop old entries; they are nearly in the order of their instants."""
    while noted and next(iter(noted.values()))[0] < now_us - _REMEMBERED_US:
        noted.popitem(last=False)


def too_many(finished: Iterable[OwnedJob], policy: Policy) -> tuple[OwnedJob, ...]:
    """Return the Jobs beyond the limits, oldest first."""
    listed = sorted(finished, key=lambda job: (job.created_us, job.slot_us, job.name))
    groups = (
        ([job for job in listed if job.succeeded], policy.successful_limit),
        ([job for job in listed if not job.succeeded], policy.failed_limit),
    )
    return tuple(job for group, limit in groups for job in group[: max(0, len(group) - limit)])
