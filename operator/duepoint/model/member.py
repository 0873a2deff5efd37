"""A member of a ScheduleSet, as users write it."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, ClassVar, Final

import msgspec

from duepoint.model.vocabulary import (
    Fields,
    Int32,
    Int64,
    Keywords,
    Rule,
    any_json,
    choices,
    matches,
    one_of,
    within,
)

MOST_PAYLOAD_BYTES: Final = 16_384
LONGEST_EXPRESSION: Final = 200
#: Fields that exist only in answers.
READ_ONLY: Final = ("etag", "uid", "state", "createdTime", "nextDueTime", "claimed")

MemberId = Annotated[
    str,
    Keywords(minLength=1, maxLength=128),
    matches(
        r"^[A-Za-z0-9][A-Za-z0-9._:~@-]*$",
        "write a letter or digit, then letters, digits and . _ : ~ @ - only, such as customer:4711",
    ),
]
Tag = Annotated[str, matches(r"^[0-9a-f]{8}$", "write the eight hexadecimal digits of an etag")]
_Ignored = Annotated[msgspec.Raw, Keywords(readOnly=True), "Of answers; ignored here."]


class DstFields(Fields, forbid_unknown_fields=True):
    """What happens to fixed times of day when the clocks change. unset = as in spec.defaults."""

    gap: Annotated[
        str | None,
        choices("RunOnce", "Skip"),
        "A local time that does not exist (spring) - RunOnce runs at the first instant after the "
        "gap, Skip does not run. unset = as in spec.defaults.",
    ] = None
    overlap: Annotated[
        str | None,
        choices("First", "Second", "Both"),
        "A local time that exists twice (autumn) - which of the two instants runs. unset = as in "
        "spec.defaults.",
    ] = None


class OptionFields(Fields):
    """The fields of a member besides its id and time, in rows, requests and answers alike."""

    time_zone: Annotated[
        str | None,
        Keywords(maxLength=64),
        "IANA name of the time zone of its expression. unset = that of spec.defaults.",
    ] = None
    dst: DstFields | None = None
    jitter: Annotated[
        str | None,
        Keywords(maxLength=32),
        "Largest delay added to each slot, such as 30s. unset = as in spec.defaults.",
    ] = None
    starting_deadline_seconds: Annotated[
        Int64 | None,
        within(0),
        "A slot that cannot start within this many seconds after its time is missed. unset = as "
        "in spec.defaults.",
    ] = None
    catch_up_policy: Annotated[
        str | None,
        choices("Latest", "All", "None"),
        "Which of several overdue slots run after an outage. unset = as in spec.defaults.",
    ] = None
    catch_up_limit: Annotated[
        Int32 | None,
        within(1, 10_000),
        "With catchUpPolicy: All, how many overdue slots run at most. unset = as in spec.defaults.",
    ] = None
    concurrency_policy: Annotated[
        str | None,
        choices("", "Allow", "Forbid"),
        "What a due slot does while a former run is active. unset = as in spec.defaults.",
    ] = None
    suspend: Annotated[bool | None, "Hold this member. unset = false."] = None
    payload: Annotated[
        msgspec.Raw,
        any_json(MOST_PAYLOAD_BYTES),
        "Any JSON up to limits.payloadBytes. unset = the payload of the set.",
    ] = msgspec.Raw()


class MemberRowFields(OptionFields, kw_only=True):
    """One member."""

    id: Annotated[MemberId, "Name of the member within the set."]
    schedule: Annotated[
        str | None,
        Keywords(maxLength=LONGEST_EXPRESSION),
        "When it runs, written as in spec.schedule of a Schedule. Exactly one of schedule and at. "
        "unset = at.",
    ] = None
    at: Annotated[
        dt.datetime | None, "When it runs once. Exactly one of schedule and at. unset = schedule."
    ] = None
    RULES: ClassVar[tuple[Rule, ...]] = (
        one_of(schedule="", at="a row has no delay, which counts from a request"),
    )


class WrittenFields(OptionFields, forbid_unknown_fields=True, gc=False, kw_only=True):
    """A member in a request or a row, with exactly one time.

    A member that was read can be written back: fields that only an answer has are ignored.
    """

    id: Annotated[MemberId | None, "In a request that of the URL."] = None
    schedule: Annotated[
        str | None,
        Keywords(maxLength=LONGEST_EXPRESSION),
        "An expression, as in spec.schedule of a Schedule.",
    ] = None
    at: Annotated[dt.datetime | None, "Once, at this instant."] = None
    delay: Annotated[
        str | None, "Once, this long after the request, such as 90s or 1h30m; not in a row."
    ] = None
    if_match: Annotated[Tag | None, "Of a row: only if the member has this etag."] = None
    if_none_match: Annotated[
        str | None, choices("*"), "Of a row: only if there is no such member."
    ] = None
    etag: _Ignored = msgspec.Raw()
    uid: _Ignored = msgspec.Raw()
    state: _Ignored = msgspec.Raw()
    created_time: _Ignored = msgspec.Raw()
    next_due_time: _Ignored = msgspec.Raw()
    claimed: _Ignored = msgspec.Raw()
