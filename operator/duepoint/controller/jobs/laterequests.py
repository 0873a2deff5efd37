"""Which finished Jobs a late request could make a second time, and until when they stay for it.

A Job that its first owner asked for once, and was answered, goes as soon as history wants. Where a
request got no answer, or the slot had an owner before, the worker says so, and the Job stays until
the API server cannot carry that request out any more. The same holds of Jobs whose creation this
leader was not told of, counted from their creation; and of slots up to an upheaval of the index,
because a worker whose claim was lost there may have asked, too.

Also tells a Job that is there again: another one by the name of one that went. Pure; instants in
microseconds, of the operator's clock.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from duepoint.controller.jobs.history import FinishedJob
from duepoint.runs import unanswered

#: A worker goes on with what it had claimed for so long after the claim was lost.
_CLAIM_US = 60_000_000
#: A Job that went is remembered for so long: twice as long as a request may be late.
_REMEMBERED_US = 2 * unanswered.LATE_US

_Name = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Told:
    at_us: int
    may_come: bool


class LateRequests:
    """What is known of the requests for recent Jobs; of one term of a leader."""

    def __init__(self) -> None:
        self._told: OrderedDict[_Name, _Told] = OrderedDict()
        #: By the Schedule's uid and the Job's name: a namesake of the Schedule makes Jobs anew.
        self._gone: OrderedDict[_Name, tuple[int, str]] = OrderedDict()
        self._upheaval_us = 0

    def note(self, namespace: str, job_name: str, at_us: int, *, may_come: bool) -> None:
        """The Job of a slot exists; whether another request for it may come. Told twice is fine."""
        before = self._told.pop((namespace, job_name), None)
        may_come = may_come or (before is not None and before.may_come)
        self._told[namespace, job_name] = _Told(at_us, may_come)
        self._forget(at_us)

    def note_upheaval(self, at_us: int) -> None:
        """Claims of slots up to here may be lost, and made anew."""
        self._upheaval_us = max(self._upheaval_us, at_us)

    def stays_until_us(self, job: FinishedJob) -> int:
        """Until when the Job must not be deleted; an instant of the past where it may."""
        told = self._told.get((job.namespace, job.name))
        if told is None:
            until_us = job.created_us + unanswered.LATE_US
        else:
            until_us = told.at_us + unanswered.LATE_US if told.may_come else 0
        if 0 < job.slot_us <= self._upheaval_us:
            until_us = max(until_us, self._upheaval_us + _CLAIM_US + unanswered.LATE_US)
        return until_us

    def note_gone(self, schedule_uid: str, job_name: str, uid: str, now_us: int) -> None:
        """The Job was deleted."""
        self._gone.pop((schedule_uid, job_name), None)
        self._gone[schedule_uid, job_name] = now_us, uid
        self._forget(now_us)

    def is_back(self, schedule_uid: str, job_name: str, uid: str) -> bool:
        """Whether this is another Job by the name of one that went; said once."""
        gone = self._gone.get((schedule_uid, job_name))
        if gone is None or gone[1] == uid:
            return False
        del self._gone[schedule_uid, job_name]
        return True

    def _forget(self, now_us: int) -> None:
        """Both are in the order in which they were told, which is nearly that of the instants."""
        past_us = now_us - _REMEMBERED_US
        while self._told and next(iter(self._told.values())).at_us < past_us:
            self._told.popitem(last=False)
        while self._gone and next(iter(self._gone.values()))[0] < past_us:
            self._gone.popitem(last=False)
