"""JSON of the API's answers; members appear in a form that can be written back.

A member's field appears if its value, or the set's default for it, differs from the usual default.
So a member that is read from a set and written back to it stays the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import msgspec

from duepoint.delayqueue.members import values
from duepoint.expressions import durations, expression
from duepoint.model import answers
from duepoint.net.requests import Headers, HttpResponse
from duepoint.schedules import definition as definitions
from duepoint.schedules import rule as rules
from duepoint.schedules.sets import members as memberjson
from duepoint.schedules.sets import setspec

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


def member(stored: values.StoredMember, settings: setspec.SetSettings) -> MemberAnswer:
    return MemberAnswer(
        **_fields_of(stored, settings),
        etag=stored.tag,
        uid=stored.uid,
        state=_STATES[stored.state],
        created_time=time(stored.created_us),
        next_due_time=time(stored.due_us),
        claimed=stored.claimed,
    )


def written(
    row: memberjson.ReadMember, answer: values.MemberWritten, settings: setspec.SetSettings
) -> MemberAnswer:
    """Return a written member: its row with the queue's result."""
    state = "Suspended" if row.rule.timing.suspend else "Active"
    return MemberAnswer(
        **_fields_of(row, settings),
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


def own(stored: values.StoredMember, settings: setspec.SetSettings) -> bytes:
    """Return the writable fields as the body of a request; a merge patch applies to this."""
    return _encoder.encode(MemberAnswer(**_fields_of(stored, settings)))


def _fields_of(
    one: values.StoredMember | memberjson.ReadMember, settings: setspec.SetSettings
) -> dict[str, Any]:
    """Return the writable fields of a member that is stored or being written."""
    fields = {"id": one.id, **_of_rule(one.rule, settings.defaults)}
    if one.at_us is not None:
        fields["at"] = time(one.at_us)
    if one.payload:
        fields["payload"] = msgspec.Raw(one.payload)
    return fields


@functools.lru_cache(maxsize=4_096)
def _of_rule(rule: rules.Rule, defaults: setspec.MemberDefaults) -> dict[str, Any]:
    """Return the fields whose value, or whose default in the set, differs from the usual one."""
    timing, policy = rule.timing, rule.policy
    usual, usual_policy = setspec.MemberDefaults(), rules.Policy()

    def odd(value: object, default: object, common: object) -> bool:
        return value != common or default != common

    fields: dict[str, Any] = {}
    if timing.schedules != rules.ONCE:
        fields["schedule"] = timing.schedules[0]
    if odd(timing.time_zone, defaults.time_zone, usual.time_zone):
        fields["time_zone"] = timing.time_zone
    pairs = (
        ("gap", timing.gap, defaults.gap, usual.gap),
        ("overlap", timing.overlap, defaults.overlap, usual.overlap),
    )
    if dst := {
        name: value for name, value, default, common in pairs if odd(value, default, common)
    }:
        fields["dst"] = dst
    if odd(timing.jitter_ms, defaults.jitter_ms, 0):
        fields["jitter"] = durations.format_duration(timing.jitter_ms * 1_000)
    if policy.deadline_seconds is not None:
        fields["starting_deadline_seconds"] = policy.deadline_seconds
    names: tuple[tuple[str, Callable[[rules.Policy], object]], ...] = (
        ("catch_up_policy", lambda one: one.catch_up),
        ("catch_up_limit", lambda one: one.catch_up_limit),
        ("concurrency_policy", lambda one: one.concurrency),
    )
    for name, of in names:
        if odd(of(policy), of(defaults.policy), of(usual_policy)):
            fields[name] = of(policy)
    if timing.suspend:
        fields["suspend"] = True
    return fields


def time(instant_us: int | None) -> str | None:
    """Return RFC 3339 in UTC, with as many digits as needed; None for None."""
    return None if instant_us is None else expression.utc_text(instant_us)
