"""Operations that change a Schedule: run it once, hold it, let it go on.

Each is one request to the API server with the caller's own token, under a manager of its own, so
that the object's managed fields and the audit log say who did it and by what.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from duepoint import clock as clocks
from duepoint.httpapi import bodies
from duepoint.httpapi.dashboard import asking, reads
from duepoint.httpapi.dashboard.asking import UserCall
from duepoint.httpapi.problems import OperationProblem
from duepoint.kube import port, schedules, schedulespecs, times
from duepoint.net.requests import HttpResponse

MANAGER: Final = "duepoint-dashboard"
_LONGEST_REASON: Final = 256
#: The ScheduleRun is deleted so long after it has ended, as that of ``duepoint trigger``.
_TTL_SECONDS: Final = 3_600


class _Trigger(msgspec.Struct, forbid_unknown_fields=True):
    payload: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Suspend(msgspec.Struct, forbid_unknown_fields=True):
    reason: str | None = None
    until: str | None = None


class _HeldSpec(msgspec.Struct, rename="camel"):
    suspend: bool | None = None
    suspend_until: str | None = None
    suspend_reason: str | None = None


class _Held(msgspec.Struct):
    spec: _HeldSpec


_trigger_decoder = msgspec.json.Decoder(_Trigger)
_held_decoder = msgspec.json.Decoder(_Held)
_suspend_decoder = msgspec.json.Decoder(_Suspend)


async def trigger(asked: UserCall) -> HttpResponse:
    """A new ScheduleRun, which runs the Schedule once."""
    wanted = bodies.decoded(asked.call.body or b"{}", _trigger_decoder, "{}, perhaps with payload")
    what: dict[str, Any] = {}
    if wanted.payload is not msgspec.UNSET and bytes(wanted.payload) != b"null":
        what["payload"] = wanted.payload
    spec = {"trigger": what, "ttlSecondsAfterFinished": _TTL_SECONDS}
    run = schedules.new_run(asked.call.namespace, asked.call.id, spec)
    with asking.refusals():
        made = await schedules.create_run(asked.api, run, manager=MANAGER)
    return reads.answer(201, {"run": made.metadata.name, "uid": made.metadata.uid})


async def suspend(asked: UserCall) -> HttpResponse:
    """No slot runs until the Schedule resumes."""
    shape = "{}, perhaps with reason and until"
    wanted = bodies.decoded(asked.call.body or b"{}", _suspend_decoder, shape)
    reason, until = wanted.reason or None, wanted.until or None
    if reason is not None and len(reason) > _LONGEST_REASON:
        message = f"has {len(reason)} characters; write at most {_LONGEST_REASON}"
        raise OperationProblem("InvalidField", message, field="reason")
    if until is not None:
        try:
            times.parse_us(until)
        except ValueError:
            message = "is no time; write it as 2026-12-24T18:00:00Z"
            raise OperationProblem("InvalidField", message, field="until") from None
    await _check_not_suspended(asked)
    return await _write(asked, {"suspend": True, "suspendReason": reason, "suspendUntil": until})


async def _check_not_suspended(asked: UserCall) -> None:
    """Refuse where another person has suspended it since the page was drawn.

    Their reason and end would be lost, and it would run by itself at the new end.
    """
    with asking.refusals():
        path = schedules.path(asked.call.namespace, asked.call.id)
        found = _held_decoder.decode(await asked.api.request("GET", path)).spec
    if schedulespecs.is_suspended(
        found.suspend, found.suspend_until, clocks.SystemClock().now_us()
    ):
        why = f": {found.suspend_reason}" if found.suspend_reason else ""
        message = f"the Schedule is suspended already{why}; it stays as it is"
        raise OperationProblem("ScheduleSuspended", message)


async def resume(asked: UserCall) -> HttpResponse:
    """Slots run again; those of the suspension do not."""
    return await _write(asked, {"suspend": False, "suspendReason": None, "suspendUntil": None})


async def _write(asked: UserCall, fields: dict[str, Any]) -> HttpResponse:
    with asking.refusals():
        await asked.api.request(
            "PATCH",
            schedules.path(asked.call.namespace, asked.call.id),
            {"spec": fields},
            query={"fieldManager": MANAGER},
            content_type=port.MERGE_PATCH,
            accept=port.JSON_METADATA,
        )
    return reads.answer(200, {"suspend": fields["suspend"]})
