"""A retry that had to go because its schedule had too many open: what is written of it.

The script that buries it writes the dead letter and the news in one go, from fields that are made
here before (``entry``); who reads the ``runs`` stream turns them back into a run event (``news``).
So nothing is lost with the reply of the script. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from duepoint.delayqueue import messages
from duepoint.delayqueue.definitions import records
from duepoint.runs import run
from duepoint.schedules import points
from duepoint.schedules.conditions import Reason

#: What the origin of a Job's retry says under ``target``.
JOB = "Job"
#: Triggers of slots that belong to the schedule's own sequence.
_REGULAR = frozenset({"Schedule", "CatchUp"})


def entry(newest: messages.Occurrence) -> dict[str, str]:
    """What both say, beside the buried member, its slot and record: the newest retry's origin."""
    return {
        **newest.origin,
        "kind": newest.point.kind.name,
        "reason": newest.record.last_error,
        "message": f"more than {newest.most_open} slots of this schedule were being tried again"
        + _because(newest.record),
    }


def _because(record: messages.OccurrenceRecord) -> str:
    """Why they were: what the newest of them met, which is what the others meet."""
    cause = record.last_cause or record.last_error
    return f"; the last try: {cause}" if cause else ""


def news(fields: Mapping[str, str], member: bytes, record: bytes) -> bytes:
    """The packed run event of a buried retry; empty where the member is none of ours."""
    point = points.parse_member(member, 0)
    if point is None:
        return b""
    known = records.unpack_or_first(record)
    given_up_us = int(fields.get("given_up_us") or 0)
    # What never started is a missed slot; a Job starts with its Job.
    missed = fields.get("target") == JOB or not known.first_try_us
    event = run.RunEvent(
        uid=fields.get("uid", ""),
        namespace=fields.get("namespace", ""),
        name=fields.get("name", ""),
        generation=int(fields.get("generation") or 0),
        slot_us=point.slot_us,
        trigger=known.trigger,
        state=run.RunState.MISSED if missed else run.RunState.FAILED,
        reason=Reason.CATCH_UP_LIMIT if missed else known.last_error,
        message=fields.get("message", ""),
        at_us=given_up_us,
        started_us=known.first_try_us,
        finished_us=0 if missed else given_up_us,
        attempts=known.attempt,
        settled_us=point.slot_us if known.trigger in _REGULAR else 0,
        run_uid=known.run_uid,
        again=known.first_try_us > 0,
    )
    return run.pack([event])
