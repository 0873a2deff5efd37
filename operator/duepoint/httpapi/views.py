"""JSON of the API's answers; members appear in a form that can be written back.

A member shows what holds for it, whether it said so or the set's defaults did when it was written.
So a member that is read from a set and written back to it stays the same.
"""

from __future__ import annotations

import functools
from typing import Any

import msgspec

from duepoint.delayqueue.members import values
from duepoint.expressions import durations, expression
from duepoint.model import answers
from duepoint.net.httpserver import Headers, HttpResponse
from duepoint.schedules import definition as definitions
from duepoint.schedules import rule as rules
from duepoint.schedules.sets import members as memberjson

_STATES = {
    definitions.State.ARMED: "Active",
    definitions.State.SUSPENDED: "Suspended",
    definitions.State.COMPLETED: "Completed",
}
#: Outcomes as answers spell them.
_WORDS = {outcome: outcome.value.capitalize() for outcome in values.Outcome}
_JSON = ("Content-Type", "application/json")
_encoder = msgspec.json.Encoder()


def json(status: int, value: object, headers: Headers = ()) -> HttpResponse:
    return HttpResponse(status, (_JSON, *headers), _encoder.encode(value))


# -- members ---------------------------------------------------------------------------------------


class MemberAnswer(answers.MemberView, rename="camel", omit_defaults=True):
    """A member as it is stored or was written; with nothing else, its writable fields."""


#: Fields of a member that its policy has under the same names.
_POLICY = set(MemberAnswer.__struct_fields__) & set(rules.Policy.__struct_fields__)


def member(stored: values.StoredMember) -> MemberAnswer:
    return MemberAnswer(
        **_fields_of(stored),
        etag=stored.tag,
        uid=stored.uid,
        state=_STATES[stored.state],
        created_time=time(stored.created_us),
        next_due_time=time(stored.due_us),
        claimed=stored.claimed,
    )


def written(row: memberjson.ReadMember, answer: values.MemberWritten) -> MemberAnswer:
    """Return a written member: its row with the queue's result."""
    state = "Suspended" if row.rule.timing.suspend else "Active"
    return MemberAnswer(
        **_fields_of(row),
        outcome=_WORDS[answer.outcome],
        etag=answer.tag,
        state="Completed" if answer.has_ended else state,
        next_due_time=time(answer.due_us),
    )


def row_answer(answer: values.MemberWritten) -> answers.RowView:
    due_time = time(answer.due_us) or ""
    return answers.RowView(
        id=answer.id, outcome=_WORDS[answer.outcome], etag=answer.tag, due_time=due_time
    )


def own(stored: values.StoredMember) -> bytes:
    """Return the writable fields as the body of a request; a merge patch applies to this."""
    return _encoder.encode(MemberAnswer(**_fields_of(stored)))


def _fields_of(one: values.StoredMember | memberjson.ReadMember) -> dict[str, Any]:
    """Return the writable fields of a member that is stored or being written."""
    fields = {"id": one.id, **_of_rule(one.rule)}
    if one.at_us is not None:
        fields["at"] = time(one.at_us)
    if one.payload:
        fields["payload"] = msgspec.Raw(one.payload)
    return fields


@functools.lru_cache(maxsize=4_096)
def _of_rule(rule: rules.Rule) -> dict[str, Any]:
    timing = rule.timing
    fields: dict[str, Any] = {
        **{name: getattr(rule.policy, name) for name in _POLICY},
        "time_zone": timing.time_zone,
        "dst": {"gap": timing.gap, "overlap": timing.overlap},
        "jitter": durations.format_duration(timing.jitter_ms * 1_000),
        "suspend": timing.suspend,
    }
    if timing.schedules != rules.ONCE:
        fields["schedule"] = timing.schedules[0]
    return fields


def time(instant_us: int | None) -> str | None:
    """Return RFC 3339 in UTC, with as many digits as needed; None for None."""
    return None if instant_us is None else expression.utc_text(instant_us)
