"""How a receiver recognises a slot: ids, instants as texts, and the body of a webhook.

``webhook_id`` is the receiver's idempotency key: the same for every attempt of a slot, whoever
makes it and whenever. ``event_id`` is the same fact in a form that people can read. What differs
between attempts (``attempt``, ``generated_at``) stands in the body and nowhere in an id. Pure.
Receivers store these texts: fields may be added to the body, never renamed or given another
meaning. The envelope is that of Standard Webhooks (type, timestamp, data).
"""

from __future__ import annotations

import datetime as dt
import functools
import hashlib
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from duepoint.targets import target

EVENT_TYPE = "schedule.fired"

_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - UTC; its text ends in Z
_NULL = msgspec.Raw(b"null")


class ScheduleName(msgspec.Struct, frozen=True, kw_only=True):
    """Which Schedule fired."""

    namespace: str
    name: str
    uid: str


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """``data`` of the body. Times are RFC 3339 in UTC; ``version`` is the generation."""

    id: str
    generated_at: str
    schedule_id: str
    schedule: ScheduleName
    scheduled_time: str
    previous_time: str | None
    attempt: int
    trigger: str
    version: int
    payload: msgspec.Raw


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """The whole body; ``timestamp`` is the slot's."""

    type: str
    timestamp: str
    data: Facts


def webhook_id(uid: str, slot_us: int, run_uid: str = "") -> str:
    """``msg_`` and 32 hex digits: one per (Schedule, slot, ScheduleRun), whatever the attempt."""
    digest = hashlib.sha256(f"{uid}\n{slot_us}\n{run_uid}".encode()).hexdigest()
    return f"msg_{digest[:32]}"


def event_id(uid: str, slot_us: int, run_uid: str = "") -> str:
    """``<uid>-<slot in seconds>``, with ``.mmm`` off the second and a mark of the run if any."""
    seconds, rest_us = divmod(slot_us, 1_000_000)
    fraction = f".{rest_us // 1000:03d}" if rest_us else ""
    mark = f"-{hashlib.sha256(run_uid.encode()).hexdigest()[:10]}" if run_uid else ""
    return f"{uid}-{seconds}{fraction}{mark}"


@functools.lru_cache(maxsize=1024)  # many schedules share their slots
def instant_text(instant_us: int) -> str:
    """RFC 3339 in UTC, to the second, or to the millisecond where the instant is off it."""
    precision = "milliseconds" if instant_us % 1_000_000 else "seconds"
    moment = _EPOCH + dt.timedelta(microseconds=instant_us)
    return moment.isoformat(timespec=precision) + "Z"


def standard_body(firing: target.Firing, now_us: int) -> bytes:
    """The body of format ``Standard``; ``payload`` is null where the Schedule has none."""
    facts = Facts(
        id=event_id(firing.uid, firing.slot_us, firing.run_uid),
        generated_at=instant_text(now_us),
        schedule_id=firing.uid,
        schedule=ScheduleName(namespace=firing.namespace, name=firing.name, uid=firing.uid),
        scheduled_time=instant_text(firing.slot_us),
        previous_time=None if firing.previous_us is None else instant_text(firing.previous_us),
        attempt=firing.attempt,
        trigger=firing.trigger,
        version=firing.generation,
        payload=firing.action.payload or _NULL,
    )
    envelope = Envelope(type=EVENT_TYPE, timestamp=instant_text(firing.slot_us), data=facts)
    return msgspec.json.encode(envelope)


def raw_body(firing: target.Firing) -> bytes:
    """The body of format ``Raw``: the payload's JSON text as it is stored, or nothing."""
    return bytes(firing.action.payload)
