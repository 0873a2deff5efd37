"""The answers of the HTTP API. Its OpenAPI document and its client are based on these Structs.

A field with a default may be missing. An answer of a newer API may have fields that are not here;
the client ignores them.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from duepoint.model.member import OptionFields, Tag
from duepoint.model.vocabulary import Fields, Time, choices, within

Count = Annotated[int, within(0)]


class Problem(Fields, kw_only=True, omit_defaults=True):
    """Why a request was refused (RFC 9457); ``type`` is left out, which means about:blank."""

    title: str = ""
    status: Count = 0
    code: Annotated[str, "Stable; other texts may change."] = ""
    detail: str = ""
    field: Annotated[str, "Of the body, the query or the headers."] = ""
    request_id: Annotated[str, "Names the request in the log."] = ""


class MemberView(OptionFields, kw_only=True):
    """A member as the API returns it."""

    id: str
    etag: Annotated[Tag, "Names this version, for If-Match; another one after every change."] = ""
    uid: Annotated[str, "Changes when the member is removed and created again."] = ""
    schedule: str | None = None
    at: Annotated[Time | None, "Of a one-off, in UTC."] = None
    payload: Annotated[Any, "Null also if the member has none of its own."] = None
    suspend: bool = False
    state: Annotated[
        str, choices("Active", "Suspended", "Completed"), "Completed: no slot is left."
    ] = ""
    created_time: Time | None = None
    next_due_time: Annotated[
        Time | None, "Missing: there is none, or a worker has claimed the member."
    ] = None
    claimed: Annotated[bool, "A worker has it now."] = False
    outcome: Annotated[
        str, choices("", "Created", "Replaced", "Unchanged"), "Of a change, which has no uid."
    ] = ""


class LimitsView(Fields, kw_only=True):
    """The limits of a set: members, bytes of a payload, changes a second."""

    members: Count = 0
    payload_bytes: Count = 0
    changes_per_second: Count = 0


class DurabilityView(Fields, kw_only=True):
    """What the Redis servers promise: see status.durability of a ScheduleSet."""

    persistence: Annotated[str, choices("aof", "rdb", "aof+rdb", "none")] = ""
    replicas: Count = 0
    loss_window: Annotated[str, "What can be lost when a server is lost."] = ""


class SetView(Fields, kw_only=True):
    """A set and what it holds at the moment."""

    namespace: str
    name: str
    uid: str = ""
    state: Annotated[str, choices("Ready", "Suspended", "Stalled", "Deleting")] = ""
    managed_by_rows: Annotated[
        bool, "The set is kept equal to its rows; its members cannot be changed here."
    ] = False
    members: Count = 0
    armed: Annotated[Count, "Points that wait, retries among them."] = 0
    in_flight: Annotated[Count, "Points that workers hold."] = 0
    next_due_time: Time | None = None
    lag_seconds: Annotated[
        float | None, "How long the oldest overdue point has waited; 0: none is overdue."
    ] = 0.0
    limits: LimitsView = msgspec.field(default_factory=LimitsView)
    durability: DurabilityView = msgspec.field(default_factory=DurabilityView)


class Times(Fields, kw_only=True):
    """The next times of a member."""

    items: tuple[Time, ...]


class LetterView(Fields, kw_only=True):
    """A dead letter: a slot that was given up."""

    id: Annotated[str, "Of the letter, for a replay."]
    namespace: str = ""
    schedule: Annotated[str, "Id of the member, or name of the Schedule."] = ""
    slot_time: Time | None = None
    dead_time: Time | None = None
    reason: str = ""
    message: str = ""
    attempts: Count | None = None


class RowView(Fields, kw_only=True, omit_defaults=True, gc=False):
    """The result of one row; each has a line, in the order of the rows."""

    id: Annotated[str | None, "Of the row, if it is a valid one."] = None
    outcome: Annotated[
        str,
        choices("Created", "Replaced", "Unchanged", "Removed", "Absent"),
        "Missing if the row was refused.",
    ] = ""
    etag: Tag = ""
    due_time: Annotated[Time | None, "When the member is due next."] = None
    line: Annotated[int, within(1), "Of a row that was refused."] = 0
    error: Annotated[Problem | None, "Why it was refused."] = None
    fatal: Annotated[bool, "Nothing after this line was read."] = False


class Triggered(Fields, kw_only=True):
    """The run that a trigger started."""

    run: str
    slot_time: Time = ""


class Replayed(Fields, kw_only=True):
    """The result of a replay of dead letters: how many fire again, and which do not."""

    replayed: Count = 0
    missing: tuple[str, ...] = ()
    results: Annotated[
        dict[str, str],
        "By id: replayed, gone (no such letter, or none that you may see), absent (no such "
        "Schedule or member any more), forbidden or unreadable.",
    ] = msgspec.field(default_factory=dict)
