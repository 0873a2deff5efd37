"""The spec of a ScheduleRun -> what it asks for.

The CRD has checked the spec already, but an operator may be older or newer than the CRD that is
installed, and some rules a CRD cannot express; what does not fit is an InvalidSpec that names the
field. Pure; ``kube.schedules`` reads and deletes ScheduleRuns.
"""

from __future__ import annotations

import msgspec

from duepoint import errors as base
from duepoint.kube import times
from duepoint.schedules import manualruns, nesting
from duepoint.schedules.conditions import Reason

_UNSET = msgspec.Raw(b"null")


class _Trigger(msgspec.Struct, frozen=True, rename="camel"):
    scheduled_time: str | None = None
    payload: msgspec.Raw = _UNSET
    concurrency_policy: str | None = None


class _Backfill(msgspec.Struct, frozen=True, rename="camel"):
    from_: str = msgspec.field(name="from")
    to: str
    max_parallel: int | None = None
    limit: int | None = None
    order: str | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    schedule_name: str
    trigger: _Trigger | None = None
    backfill: _Backfill | None = None
    ttl_seconds_after_finished: int | None = None


_decoder = msgspec.json.Decoder(_Spec)


def wanted(spec: bytes, *, created_us: int) -> manualruns.Wanted:
    """What the spec, JSON text, asks for; raises errors.InvalidSpec.

    ``created_us`` is metadata.creationTimestamp: the slot of a trigger that names none.
    """
    if field := nesting.too_deep(spec):
        message = f"is nested deeper than {nesting.DEEPEST} levels; write it flatter"
        raise _invalid(Reason.INVALID_SPEC, f"spec.{field}", message)
    try:
        read = _decoder.decode(spec)
    except msgspec.DecodeError as error:
        raise _invalid(Reason.INVALID_SPEC, "spec", str(error)) from error
    if (read.trigger is None) == (read.backfill is None):
        raise _invalid(Reason.INVALID_SPEC, "spec", "write exactly one of trigger and backfill")
    slots = _trigger(read.trigger, created_us) if read.trigger else _backfill(read, created_us)
    return manualruns.Wanted(
        schedule=read.schedule_name, slots=slots, ttl_seconds=read.ttl_seconds_after_finished
    )


def _trigger(read: _Trigger, created_us: int) -> manualruns.Trigger:
    slot_us = created_us
    if read.scheduled_time is not None:
        slot_us = _instant_us(read.scheduled_time, "spec.trigger.scheduledTime")
    payload = bytes(read.payload)
    payload = b"" if payload == bytes(_UNSET) else payload
    if len(payload) > manualruns.PAYLOAD_LIMIT_BYTES:
        message = (
            f"has {len(payload)} bytes of JSON; at most {manualruns.PAYLOAD_LIMIT_BYTES} are "
            "handed on, so put a reference to larger data in it"
        )
        raise _invalid(Reason.PAYLOAD_TOO_LARGE, "spec.trigger.payload", message)
    return manualruns.Trigger(
        slot_us=slot_us, payload=payload, concurrency=read.concurrency_policy or ""
    )


def _backfill(read: _Spec, created_us: int) -> manualruns.Backfill:
    fields = read.backfill
    assert fields is not None  # noqa: S101 - exactly one of the two is there
    from_us = _instant_us(fields.from_, "spec.backfill.from")
    to_us = _instant_us(fields.to, "spec.backfill.to")
    if to_us <= from_us:
        message = f"{fields.to} is not after from ({fields.from_}); write a later time"
        raise _invalid(Reason.INVALID_SPEC, "spec.backfill.to", message)
    return manualruns.Backfill(
        from_us=from_us,
        to_us=to_us,
        asked_us=created_us,
        max_parallel=fields.max_parallel or manualruns.MAX_PARALLEL,
        limit=fields.limit or manualruns.LIMIT,
        newest_first=fields.order == "NewestFirst",
    )


def _instant_us(text: str, path: str) -> int:
    try:
        instant_us = times.parse_us(text)
    except ValueError as error:
        raise _invalid(Reason.INVALID_SPEC, path, f"{text!r} is no RFC 3339 time") from error
    if not manualruns.is_storable(instant_us):
        message = f"{text} is not between 1970 and 2112; write a time in between"
        raise _invalid(Reason.OUT_OF_RANGE, path, message)
    return instant_us


def _invalid(reason: Reason, path: str, message: str) -> base.InvalidSpec:
    return base.InvalidSpec((base.FieldError(reason=reason, path=path, message=message),))
