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
from collections.abc import Callable, Collection, Iterable

from duepoint.controller.jobs.jobstate import OwnedJob
from duepoint.runs import outcome
from duepoint.schedules.rule import Policy

#: A worker goes on for so long with a claim that was lost.
_CLAIM_US = 60_000_000
#: A Job that went is remembered for so long: twice as long as a request may be late.
_REMEMBERED_US = 2 * outcome.LATE_US

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
        #: By namespace and name: when it was reported, and whether another request may come.
        self._reported: OrderedDict[_Name, tuple[int, bool]] = OrderedDict()
        #: By the Schedule's uid and the Job's name; another Schedule of that name has its own Jobs.
        self._gone: OrderedDict[_Name, tuple[int, str]] = OrderedDict()
        self._lost_us = 0

    def record(self, namespace: str, job_name: str, at_us: int, *, may_come: bool) -> None:
        """The Job of a slot exists; another request for it may come, or not. Idempotent."""
        _, might_come = self._reported.pop((namespace, job_name), (0, False))
        self._reported[namespace, job_name] = at_us, may_come or might_come
        self._forget(at_us)

    def record_lost_claims(self, at_us: int) -> None:
        """Claims of slots up to here may be lost, and made again."""
        self._lost_us = max(self._lost_us, at_us)

    def stays_until_us(self, job: OwnedJob) -> int:
        """Until when the Job must not be deleted; an instant of the past where it may."""
        reported = self._reported.get((job.namespace, job.name))
        if reported is None:
            until_us = job.created_us + outcome.LATE_US
        else:
            at_us, may_come = reported
            until_us = at_us + outcome.LATE_US if may_come else 0
        if 0 < job.slot_us <= self._lost_us:
            until_us = max(until_us, self._lost_us + _CLAIM_US + outcome.LATE_US)
        return until_us

    def record_gone(self, schedule_uid: str, job_name: str, uid: str, now_us: int) -> None:
        """The Job was deleted."""
        self._gone.pop((schedule_uid, job_name), None)
        self._gone[schedule_uid, job_name] = now_us, uid
        self._forget(now_us)

    def is_back(self, schedule_uid: str, job_name: str, uid: str) -> bool:
        """Whether this is another Job by the name of one that went; True once."""
        gone = self._gone.get((schedule_uid, job_name))
        if gone is None or gone[1] == uid:
            return False
        del self._gone[schedule_uid, job_name]
        return True

    def _forget(self, now_us: int) -> None:
        """Both are in the order of their reports, which is nearly that of the instants."""
        past_us = now_us - _REMEMBERED_US
        while self._reported and next(iter(self._reported.values()))[0] < past_us:
            self._reported.popitem(last=False)
        while self._gone and next(iter(self._gone.values()))[0] < past_us:
            self._gone.popitem(last=False)


def too_many(finished: Iterable[OwnedJob], policy: Policy) -> tuple[OwnedJob, ...]:
    """The Jobs beyond the limits, oldest first."""
    listed = sorted(finished, key=lambda job: (job.created_us, job.slot_us, job.name))
    groups = (
        ([job for job in listed if job.succeeded], policy.successful_limit),
        ([job for job in listed if not job.succeeded], policy.failed_limit),
    )
    return tuple(job for group, limit in groups for job in group[: max(0, len(group) - limit)])


def excess(
    finished: Iterable[OwnedJob],
    policy: Policy,
    has_ended: Callable[[int], bool],
    held_us: Collection[int] = (),
) -> tuple[OwnedJob, ...]:
    """The Jobs to delete now, oldest first.

    Args:
        finished: all of one schedule.
        policy: its limits.
        has_ended: whether a regular slot has ended by the published status.
        held_us: slots that the queue holds.
    """

    def is_over(job: OwnedJob) -> bool:
        return job.slot_us not in held_us and (job.is_wanted or has_ended(job.slot_us))

    return tuple(job for job in too_many(finished, policy) if is_over(job))
