"""What answers show, as JSON."""

from __future__ import annotations

import msgspec

from duepoint.delayqueue.members import values
from duepoint.net.requests import Headers, HttpResponse
from duepoint.schedules import definition as definitions
from duepoint.schedules.sets import members as memberjson
from duepoint.schedules.sets import memberviews, setspec

STATES = {
    definitions.State.ARMED: "Active",
    definitions.State.SUSPENDED: "Suspended",
    definitions.State.COMPLETED: "Completed",
}
#: Outcomes as answers spell them.
_WORDS = {outcome: outcome.value.capitalize() for outcome in values.Outcome}
_JSON = ("Content-Type", "application/json")
_encoder = msgspec.json.Encoder()


class WrittenView(memberviews.MemberFields, rename="camel", kw_only=True):
    """A member as it was written."""

    outcome: str
    etag: str
    state: str
    next_due_time: str | None


class RowView(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """What became of a row that was carried out."""

    id: str
    outcome: str
    etag: str = ""
    due_time: str = ""


def json(status: int, value: object, headers: Headers = ()) -> HttpResponse:
    return HttpResponse(status, (_JSON, *headers), _encoder.encode(value))


def json_text(status: int, text: bytes, headers: Headers = ()) -> HttpResponse:
    return HttpResponse(status, (_JSON, *headers), text)


def member(stored: values.StoredMember, settings: setspec.SetSettings) -> memberviews.StoredView:
    return memberviews.shown(stored, STATES[stored.state], settings)


def written(
    row: memberjson.ReadMember, answer: values.MemberWritten, settings: setspec.SetSettings
) -> WrittenView:
    """A member as a row says it, with what the queue said of it."""
    state = "Suspended" if row.rule.timing.suspend else "Active"
    if answer.has_ended:
        state = "Completed"
    return WrittenView(
        **memberviews.fields_of(row.id, row.rule, row.at_us, row.payload, settings),
        outcome=_WORDS[answer.outcome],
        etag=answer.tag,
        state=state,
        next_due_time=time(answer.due_us),
    )


def row_answer(answer: values.MemberWritten) -> RowView:
    due_us = answer.due_us
    return RowView(
        answer.id,
        _WORDS[answer.outcome],
        answer.tag,
        "" if due_us is None else memberviews.instant_text(due_us),
    )


def time(instant_us: int | None) -> str | None:
    """RFC 3339, or None."""
    return None if instant_us is None else memberviews.instant_text(instant_us)
