"""The only writer of ScheduleRun statuses.

The whole status in its newest state, guarded by the object's uid, at once when something about
the object as a whole changes (it was looked at, begins, waits, has ended), else at most once a
second; a run that ends within the first second costs two writes. All of it within a rate for all of
them, but for the first one of each, which its first run waits for.
"""

from __future__ import annotations

import enum

import msgspec

from duepoint import telemetry
from duepoint.clock import Clock
from duepoint.controller.scheduleruns import runstatus
from duepoint.controller.scheduleruns.runline import Line
from duepoint.controller.scheduleruns.runsighting import RunSighting
from duepoint.controller.scheduleruns.runstatus import Verdict
from duepoint.controller.status.agenda import Allowance
from duepoint.kube import events, port, schedules, status
from duepoint.schedules.conditions import Reason

#: Between two writes of one ScheduleRun that goes on.
_PACE_SECONDS = 1.0

TRACKED = "TrackedInGit"


class Answer(enum.Enum):
    """What became of a write."""

    DONE = "done"
    OUTDATED = "outdated"  # somebody newer has written: what we know is wrong


class RunWriter:
    """Writes for the leader of one term."""

    def __init__(self, api: port.Api, clock: Clock, per_second: float) -> None:
        self._api = api
        self._clock = clock
        self._allowance = Allowance(per_second, clock.monotonic())

    def rest(self, line: Line, verdict: Verdict) -> float:
        """Seconds until its status may be written; of one that begins with it, at once."""
        if line.begins_with and not line.has_begun:
            return 0.0
        now = self._clock.monotonic()
        wait = 0.0
        if verdict.told[0].reason in (Reason.RUNNING, Reason.RETRYING):
            wait = (line.written_at or -_PACE_SECONDS) + _PACE_SECONDS - now
        return wait if wait > 0 else self._allowance.take(now)

    async def write(self, line: Line, verdict: Verdict) -> Answer:
        """The API server has the status as it should be; raises ApiError."""
        seen, now_us = line.seen, self._clock.now_us()
        wanted = runstatus.shown(
            verdict,
            line.course,
            planned=line.planned,
            schedule_uid=line.begins_with,
            generation=seen.generation,
            now_us=now_us,
            previous=line.written,
        )
        line.written_at = self._clock.monotonic()
        if wanted != line.written:
            named = status.Object(
                namespace=seen.namespace,
                name=seen.name,
                uid=seen.uid,
                plural=schedules.RUN_PLURAL,
            )
            answer = await status.write(self._api, named, wanted)
            telemetry.status_writes_total.labels(type(answer).__name__.lower()).inc()
            if isinstance(answer, status.Refused):
                telemetry.logger.warning(
                    "schedulerun status refused",
                    namespace=seen.namespace,
                    schedulerun=seen.name,
                    error=answer.message,
                )
                return Answer.OUTDATED
            line.written = wanted
        if verdict.has_ended:
            line.ended_us = runstatus.ended_us(msgspec.json.encode(wanted)) or now_us
        return Answer.DONE


def kept_in_git(seen: RunSighting, mark: str) -> events.News:
    """A warning for whoever keeps a ScheduleRun with a time to live in Git."""
    about = events.Object(
        namespace=seen.namespace, name=seen.name, uid=seen.uid, kind=schedules.RUN_KIND
    )
    note = (
        f"it carries {mark} and spec.ttlSecondsAfterFinished: once deleted, it is made again from "
        "Git and runs again, for ever. Make it with kubectl create or duepoint trigger, or as a "
        "sync hook, and do not keep it in Git"
    )
    return events.News(regarding=about, reason=TRACKED, action="Reconcile", note=note, warning=True)
