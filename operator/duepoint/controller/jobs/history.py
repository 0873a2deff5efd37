"""Which finished Jobs are deleted: those beyond the history limits, once nothing asks for them.

Successful and failed Jobs have limits of their own, regular, manual and backfilled ones together;
the oldest go first. A Job is the proof that its slot ran, so it may go only once nothing will ask
for that slot again: when the queue holds that slot no more, and a regular one has ended *by the
published status*, too, at or below the watermark and not open. Each alone is not enough: a Redis
that was lost or went back may hold what has ended, or not hold what is open. So where an older slot
waits for a quota that finished Jobs of later slots use up, those Jobs go, and the older slot gets
its Job.

Nor does a Job go before the status shows how it ended: a leader that takes over would find it shown
as running, and gone. Nor while a request that may create it once more is under way
(``LateRequests``). Suspended and refused Schedules are cleaned too.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

from duepoint.controller.jobs.jobstate import OwnedJob
from duepoint.runs import outcome
from duepoint.schedules.rule import Policy

#: A worker goes on for so long with a claim that was lost.
_CLAIM_US = 60_000_000
#: A Job that went is remembered for so long: twice as long as a request may be late.
_REMEMBERED_US = 2 * outcome.LATE_US

#: A slot that the queue holds and whose Job has ended is mostly settled within moments.
_AGAIN_SECONDS = 30.0

_Name = tuple[str, str]


class LateRequests:
    """Which finished Jobs a late request could create again, and until when they stay for it.

    A Job whose creation was requested once, and answered, goes as soon as history wants. Where a
    request got no answer, or the slot had another claim before, the worker says so, and the Job
    stays until the API server cannot carry that request out any more. The same holds for Jobs of
    which no worker reported to this leader, counted from their creation, and for slots up to a loss
    of claims, because a worker that lost its claim may have sent a request too.

    It also recognises a Job that came back: another one by the name of one that went. No I/O;
    instants in microseconds, of the operator's clock.
    """

    def __init__(self) -> None:
        #: By namespace and name: when it was reported, and until when another request may come.
        self._reported: OrderedDict[_Name, tuple[int, int]] = OrderedDict()
        #: By the Schedule's uid and the Job's name, because another Schedule of that name has its
        #: own Jobs: when it went, and its uid.
        self._gone: OrderedDict[_Name, tuple[int, str]] = OrderedDict()
        self._lost_us = 0

    def record(self, namespace: str, job_name: str, at_us: int, *, may_come: bool) -> None:
        """The Job of a slot exists; another request for it may come, or not. Idempotent."""
        _, until_us = self._reported.pop((namespace, job_name), (0, 0))
        if may_come or until_us:
            until_us = at_us + outcome.LATE_US
        self._reported[namespace, job_name] = at_us, until_us
        _forget(self._reported, at_us)

    def record_lost_claims(self, at_us: int) -> None:
        """Claims of slots up to here may be lost, and made again."""
        self._lost_us = max(self._lost_us, at_us)

    def stays_until_us(self, job: OwnedJob) -> int:
        """Until when the Job must not be deleted; an instant of the past where it may."""
        unreported = 0, job.created_us + outcome.LATE_US
        _, until_us = self._reported.get((job.namespace, job.name), unreported)
        if 0 < job.slot_us <= self._lost_us:
            until_us = max(until_us, self._lost_us + _CLAIM_US + outcome.LATE_US)
        return until_us

    def record_gone(self, schedule_uid: str, job_name: str, uid: str, now_us: int) -> None:
        """The Job was deleted."""
        self._gone.pop((schedule_uid, job_name), None)
        self._gone[schedule_uid, job_name] = now_us, uid
        _forget(self._gone, now_us)

    def is_back(self, schedule_uid: str, job_name: str, uid: str) -> bool:
        """Whether this is another Job by the name of one that went; True once."""
        _, gone = self._gone.get((schedule_uid, job_name), (0, uid))
        if gone == uid:
            return False
        del self._gone[schedule_uid, job_name]
        return True


def _forget(noted: OrderedDict[_Name, tuple[int, Any]], now_us: int) -> None:
    """Drop what is old; the order of the notes is nearly that of their instants."""
    while noted and next(iter(noted.values()))[0] < now_us - _REMEMBERED_US:
        noted.popitem(last=False)


def too_many(finished: Iterable[OwnedJob], policy: Policy) -> tuple[OwnedJob, ...]:
    """The Jobs beyond the limits, oldest first."""
    listed = sorted(finished, key=lambda job: (job.created_us, job.slot_us, job.name))
    groups = (
        ([job for job in listed if job.succeeded], policy.successful_limit),
        ([job for job in listed if not job.succeeded], policy.failed_limit),
    )
    return tuple(job for group, limit in groups for job in group[: max(0, len(group) - limit)])


def sync(
    finished: Iterable[OwnedJob],
    policy: Policy,
    *,
    is_over: Callable[[OwnedJob], bool],
    is_shown: Callable[[OwnedJob], bool],
    stays_until_us: Callable[[OwnedJob], int],
    now_us: int,
) -> tuple[list[OwnedJob], float | None]:
    """The finished Jobs of a Schedule that go now, oldest first; seconds until the next look.

    None = some event announces each change before.

    Args:
        policy: its limits.
        is_over: whether nothing will ask for the slot again.
        is_shown: whether the published status shows how the run ended; the next one causes another
            look.
        stays_until_us: until when a late request may come for the Job.
    """
    delete: list[OwnedJob] = []
    waits: list[float] = []
    for job in too_many(finished, policy):
        if not is_over(job):
            waits.append(_AGAIN_SECONDS)
        elif is_shown(job):
            if (left_us := stays_until_us(job) - now_us) > 0:
                waits.append(min(max(left_us / 1e6, 0.1), _AGAIN_SECONDS))
            else:
                delete.append(job)
    return delete, min(waits, default=None)
