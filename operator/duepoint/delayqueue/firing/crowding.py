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

#: Triggers of slots that belong to the schedule's own sequence.
_REGULAR = frozenset({"Schedule", "CatchUp"})


def entry(newest: messages.Occurrence) -> dict[str, str]:
    """What both say, beside the buried member, its slot and record: the newest retry's origin."""
    return {
        **newest.origin,
        "kind": newest.point.kind.name,
        "reason": newest.record.last_error,
        "message": messages.CROWDED_OUT,
    }


def news(fields: Mapping[str, str], member: bytes, record: bytes) -> bytes:
    """The packed run event of a buried retry; empty where the member is none of ours."""
    point = points.parse_member(member, 0)
    if point is None:
        return b""
    known = records.unpack_or_first(record)
    given_up_us = int(fields.get("given_up_us") or 0)
    event = run.RunEvent(
        uid=fields.get("uid", ""),
        namespace=fields.get("namespace", ""),
        name=fields.get("name", ""),
        generation=int(fields.get("generation") or 0),
        slot_us=point.slot_us,
        trigger=known.trigger,
        state=run.RunState.FAILED,
        reason=known.last_error,
        message=messages.CROWDED_OUT,
        at_us=given_up_us,
        started_us=known.first_try_us,
        finished_us=given_up_us,
        attempts=known.attempt,
        settled_us=point.slot_us if known.trigger in _REGULAR else 0,
        run_uid=known.run_uid,
    )
    return run.pack([event])
