"""Operations on one member: read, write, patch, remove, trigger, next times; and new one-offs.

If the condition of a write allows any tag, the member is read first. The write then requires
exactly the tag that was read.
"""

from __future__ import annotations

import uuid
from typing import Annotated, Any

import msgspec
from msgspec import Raw

from duepoint import errors
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue.members import values
from duepoint.httpapi import calls, views
from duepoint.httpapi.calls import Call
from duepoint.httpapi.problems import OperationProblem
from duepoint.model.vocabulary import Fields, is_given
from duepoint.net.httpserver import HttpResponse
from duepoint.schedules import definition as definitions
from duepoint.schedules import slots
from duepoint.schedules.actions import NO_PAYLOAD
from duepoint.schedules.sets import members as memberjson
from duepoint.schedules.sets.setrecord import SetState

USUAL_TIMES = 10
MOST_TIMES = 100
_RACES = 8
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Trigger(Fields, forbid_unknown_fields=True):
    """A run by hand."""

    payload: Annotated[Raw, "In place of its own."] = NO_PAYLOAD


# -- read ------------------------------------------------------------------------------------------


async def get(call: Call) -> HttpResponse:
    found = await _found(call)
    return views.json(200, views.member(found), (("ETag", f'"{found.tag}"'),))


async def next_times(call: Call) -> HttpResponse:
    count = call.whole("count", USUAL_TIMES, MOST_TIMES)
    found = await _found(call)
    record = call.owned.record
    if found.at_us is not None or found.rule.timing.suspend:
        times = [] if found.due_us is None else [found.due_us]
    else:
        timeline = slots.for_rule(
            found.rule,
            identity=f"{record.namespace}/{record.name}/{found.id}",
            created_us=found.created_us,
        )
        times = timeline.upcoming(call.shared.clock.now_us(), count)
    return views.json(200, {"items": [views.time(each) for each in times]})


async def _found(call: Call) -> values.StoredMember:
    found = await _stored(call)
    if found is None:
        raise no_member(call.id)
    return found


async def _stored(call: Call) -> values.StoredMember | None:
    if not memberjson.is_id(call.id):
        return None
    return await call.shared.sets.gets.ask(call.owned, call.id)


# -- write -----------------------------------------------------------------------------------------


async def put(call: Call) -> HttpResponse:
    if not memberjson.is_id(call.id):
        raise OperationProblem("InvalidField", memberjson.wrong_id(call.id), field="id")
    call.owned.check_open()
    row = _row(call, call.body, call.id, call.shared.clock.now_us())
    if_match = call.tag("If-Match")
    if_none = call.tag("If-None-Match")
    if if_match and if_none:
        message = "cannot be combined with If-Match"
        raise OperationProblem("InvalidParameter", message, field="If-None-Match")
    if if_none not in ("", "*"):
        message = 'write "*" without quotes'
        raise OperationProblem("InvalidParameter", message, field="If-None-Match")
    condition = values.IfAbsent() if if_none else await _condition(call, if_match)
    answer = await _put(call, row, condition)
    status = 201 if answer.outcome is values.Outcome.CREATED else 200
    return _written(status, row, answer)


def choose(now_us: int) -> dict[str, Any]:
    """Return the choices that a repeat of the request must reuse; see ``Call.chosen``."""
    return {"id": memberjson.new(now_us), "now_us": now_us, "run": str(uuid.uuid4())}


async def create(call: Call) -> HttpResponse:
    """Create a one-off under an id that the API chooses."""
    call.owned.check_open()
    row = _row(call, call.body, call.chosen["id"], call.chosen["now_us"])
    if row.at_us is None:
        message = "a member with a schedule needs an id of yours: PUT it; write at or delay"
        raise OperationProblem("InvalidField", message, field="schedule")
    answer = await _put(call, row, None)
    place = f"/v1/namespaces/{call.namespace}/schedulesets/{call.set_name}/schedules/{row.id}"
    return _written(201, row, answer, (("Location", place),))


async def patch(call: Call) -> HttpResponse:
    call.owned.check_open()
    calls.decoded(call.body, dict[str, Raw], 'an object such as {"suspend": true}')
    wanted = call.tag("If-Match")
    for _ in range(_RACES):
        found = await _found(call)
        if wanted not in ("", "*", found.tag):
            raise _other_tag()
        merged = merge(views.own(found), call.body.strip())
        row = _row(call, merged, call.id, call.shared.clock.now_us())
        try:
            return _written(200, row, await _put(call, row, values.IfMatch(found.tag)))
        except OperationProblem as problem:
            if problem.code != "PreconditionFailed":
                raise  # else another request changed the member meanwhile
    raise errors.TryLater("the member is changed by others all the time")


async def delete(call: Call) -> HttpResponse:
    call.owned.check_open()
    condition = await _condition(call, call.tag("If-Match"))
    if not memberjson.is_id(call.id):
        raise no_member(call.id)
    removal = values.MemberRemoval(id=call.id, condition=condition)
    answer = await call.shared.sets.removals.ask((call.owned, call.safety()), removal)
    if answer.outcome is values.Outcome.ABSENT:
        raise no_member(call.id)
    return HttpResponse(204)


async def trigger(call: Call) -> HttpResponse:
    record = call.owned.record
    call.owned.check_active()
    if record.state is SetState.SUSPENDED:
        raise OperationProblem("NotActive", "the set is suspended; resume it first")
    payload, most = trigger_payload(call), record.settings.limits.payload_bytes
    if len(payload) > most:
        message = f"has {len(payload)} bytes; at most {most} are handed on"
        raise OperationProblem("PayloadTooLarge", message, field="payload")
    found = await _found(call)
    if found.state is definitions.State.SUSPENDED:
        raise OperationProblem("NotActive", "the member is suspended; resume it first")
    run_uid = call.chosen["run"]
    try:
        slot_us = await call.shared.queue.members.trigger(
            record, call.id, run_uid=run_uid, payload=payload
        )
    except queue_errors.TooManyWaiting:
        message = "too many runs of this member, set or namespace wait for their receiver"
        raise OperationProblem("TooManyRequests", message, retry_after_seconds=10) from None
    if slot_us is None:
        raise no_member(call.id)
    return views.json(202, {"run": run_uid, "slotTime": views.time(slot_us)})


def trigger_payload(call: Call) -> bytes:
    """Return the payload in the body of a trigger; empty = there is none, or null."""
    wanted = calls.decoded(call.body or b"{}", Trigger, "{}, perhaps with payload")
    return bytes(wanted.payload) if is_given(wanted.payload) else b""


def _row(call: Call, text: bytes, id_: str, now_us: int) -> memberjson.ReadMember:
    row = call.owned.reader.body(text, id_=id_, now_us=now_us)
    if isinstance(row, memberjson.RowError):
        raise calls.refused_row(row)
    return row


async def _condition(call: Call, wanted: str) -> values.IfMatch | None:
    """Return the tag to require; if any is allowed, the member's current one."""
    if wanted != "*":
        return values.IfMatch(wanted) if wanted else None
    found = await _stored(call)
    if found is None:
        raise _other_tag()
    return values.IfMatch(found.tag)


async def _put(
    call: Call,
    row: memberjson.ReadMember,
    condition: values.IfMatch | values.IfAbsent | None,
) -> values.MemberWritten:
    write = write_of(row, condition)
    return await call.shared.sets.puts.ask((call.owned, call.safety()), write)


def _written(
    status: int,
    row: memberjson.ReadMember,
    answer: values.MemberWritten,
    headers: tuple[tuple[str, str], ...] = (),
) -> HttpResponse:
    shown = views.written(row, answer)
    if answer.tag:  # a one-off that has ended and was removed has none
        headers = (("ETag", f'"{answer.tag}"'), *headers)
    return views.json(status, shown, headers)


def write_of(
    row: memberjson.ReadMember, condition: values.IfMatch | values.IfAbsent | None
) -> values.MemberWrite:
    """Return the write for the queue."""
    return values.MemberWrite(
        id=row.id, rule=row.rule, at_us=row.at_us, payload=row.payload, condition=condition
    )


def merge(target: bytes, patch: bytes) -> bytes:
    """Apply a merge patch (RFC 7396) to a text, and keep every value byte by byte.

    Decoding would change 0.10000000000000000555 in a payload that the patch does not name. Neither
    text may have white space around it; an empty ``target`` = no object.
    """
    if not patch.startswith(b"{"):
        return patch
    merged = _fields_decoder.decode(target) if target.startswith(b"{") else {}
    for name, value in _fields_decoder.decode(patch).items():
        text = bytes(value)
        if text == b"null":
            merged.pop(name, None)
        else:
            merged[name] = msgspec.Raw(merge(bytes(merged.get(name, b"")), text))
    return msgspec.json.encode(merged)


def no_member(id_: str) -> OperationProblem:
    return OperationProblem("NoSuchMember", f"the set has no member {errors.quoted(id_)}")


def _other_tag() -> OperationProblem:
    return OperationProblem("PreconditionFailed", "the member has another tag, or there is none")
