"""Which finished Jobs a late request could create a second time, and until when they stay for it.

A Job whose creation was requested once, and answered, goes as soon as history wants. Where a
request got no answer, or the slot had another claim before, the worker says so, and the Job stays
until the API server cannot carry that request out any more. The same holds for Jobs of which no
worker reported to this leader, counted from their creation, and for slots up to a loss of claims,
because a worker that lost its claim may have sent a request too.

It also recognises a Job that came back: another one by the name of one that went. No I/O; instants
in microseconds, of the operator's clock.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from duepoint.controller.jobs.jobstate import FinishedJob
from duepoint.runs import outcome

#: A worker goes on for so long with a claim that was lost.
_CLAIM_US = 60_000_000
#: A Job that went is remembered for so long: twice as long as a request may be late.
_REMEMBERED_US = 2 * outcome.LATE_US

_Name = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Reported:
    at_us: int
    may_come: bool


class LateRequests:
    """What is known of the requests for recent Jobs; of one term of a leader."""

    def __init__(self) -> None:
        self._reported: OrderedDict[_Name, _Reported] = OrderedDict()
        #: By the Schedule's uid and the Job's name; another Schedule of that name has its own Jobs.
        self._gone: OrderedDict[_Name, tuple[int, str]] = OrderedDict()
        self._lost_us = 0

    def record(self, namespace: str, job_name: str, at_us: int, *, may_come: bool) -> None:
        """The Job of a slot exists; another request for it may come, or not. Idempotent."""
        before = self._reported.pop((namespace, job_name), None)
        may_come = may_come or (before is not None and before.may_come)
        self._reported[namespace, job_name] = _Reported(at_us, may_come)
        self._forget(at_us)

    def record_lost_claims(self, at_us: int) -> None:
        """Claims of slots up to here may be lost, and made again."""
        self._lost_us = max(self._lost_us, at_us)

    def stays_until_us(self, job: FinishedJob) -> int:
        """Until when the Job must not be deleted; an instant of the past where it may."""
        reported = self._reported.get((job.namespace, job.name))
        if reported is None:
            until_us = job.created_us + outcome.LATE_US
        else:
            until_us = reported.at_us + outcome.LATE_US if reported.may_come else 0
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
        while self._reported and next(iter(self._reported.values())).at_us < past_us:
            self._reported.popitem(last=False)
        while self._gone and next(iter(self._gone.values()))[0] < past_us:
            self._gone.popitem(last=False)
