"""How a receiver recognises a slot: ids, instants as texts, and the body of a webhook.

``webhook_id`` is the receiver's idempotency key: the same for every attempt of a slot, whoever
makes it and whenever. ``event_id`` is the same fact in a form that people can read. What differs
between attempts (``attempt``, ``generated_at``) stands in the body and nowhere in an id. Pure.
Receivers store these texts: fields may be added to the body, never renamed or given another
meaning. The envelope is that of Standard Webhooks (type, timestamp, data). As a CloudEvent the
same ``data`` travels, and what its attributes say is said by both.
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
#: The type as CloudEvents want it, with the domain of who defines it in front.
CLOUD_EVENT_TYPE = f"dev.duepoint.{EVENT_TYPE}"
STRUCTURED_CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"

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
    """``msg_`` and 32 hex digits: one per (Schedule, slot, ScheduleRun), for all attempts."""
    digest = hashlib.sha256(f"{uid}\n{slot_us}\n{run_uid}".encode()).hexdigest()
    return f"msg_{digest[:32]}"


def event_id(uid: str, slot_us: int, run_uid: str = "") -> str:
    """``<uid>-<slot in seconds>``, with ``.mmm`` off the second and a mark of the run if any."""
    mark = f"-{hashlib.sha256(run_uid.encode()).hexdigest()[:10]}" if run_uid else ""
    return f"{uid}-{seconds_text(slot_us)}{mark}"


def seconds_text(instant_us: int) -> str:
    """Unix seconds, with ``.mmm`` off the second."""
    seconds, rest_us = divmod(instant_us, 1_000_000)
    return f"{seconds}.{rest_us // 1000:03d}" if rest_us else str(seconds)


def instant_text(instant_us: int) -> str:
    """RFC 3339 in UTC, to the second, or to the millisecond where the instant is off it."""
    seconds, rest_us = divmod(instant_us, 1_000_000)
    if rest_us:
        return f"{_second_text(seconds)}.{rest_us // 1000:03d}Z"
    return _second_text(seconds) + "Z"


@functools.lru_cache(maxsize=1024)  # many deliveries share their slot and their second
def _second_text(seconds: int) -> str:
    return (_EPOCH + dt.timedelta(seconds=seconds)).isoformat(timespec="seconds")


def standard_body(firing: target.Firing, now_us: int) -> bytes:
    """The body of format ``Standard``; ``payload`` is null where the Schedule has none."""
    envelope = Envelope(
        type=EVENT_TYPE, timestamp=instant_text(firing.slot_us), data=_facts(firing, now_us)
    )
    return msgspec.json.encode(envelope)


def binary_event(firing: target.Firing, now_us: int) -> tuple[list[tuple[str, str]], bytes]:
    """Headers and body of format ``CloudEventsBinary``.

    Every attribute is ASCII without blanks and percents, so none needs the binding's escapes
    (CloudEvents 1.0, HTTP protocol binding, 3.1.3.2).
    """
    headers = [(f"ce-{name}", value) for name, value in _attributes(firing).items()]
    return headers, msgspec.json.encode(_facts(firing, now_us))


def structured_event(firing: target.Firing, now_us: int) -> bytes:
    """The body of format ``CloudEventsStructured`` (CloudEvents 1.0, JSON format)."""
    facts = _facts(firing, now_us)
    return msgspec.json.encode(
        {**_attributes(firing), "datacontenttype": "application/json", "data": facts}
    )


def _attributes(firing: target.Firing) -> dict[str, str]:
    """Source and id together are one per slot; the time is the slot's."""
    return {
        "specversion": "1.0",
        "id": event_id(firing.uid, firing.slot_us, firing.run_uid),
        "source": f"/namespaces/{firing.namespace}/schedules/{firing.name}",
        "type": CLOUD_EVENT_TYPE,
        "time": instant_text(firing.slot_us),
    }


def _facts(firing: target.Firing, now_us: int) -> Facts:
    return Facts(
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


def raw_body(firing: target.Firing) -> bytes:
    """The body of format ``Raw``: the payload's JSON text as it is stored, or nothing."""
    return bytes(firing.action.payload)
