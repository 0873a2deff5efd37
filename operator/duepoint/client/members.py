"""What the client sends and gets: members, pages of them, and answers to rows.

Names are those of the API's JSON in snake case. An answer may have fields that this version does
not know; they are left out, so that a newer API serves an older client.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from duepoint.client import problems

ItemT = TypeVar("ItemT")

#: Names of a stored member that only the API writes.
READ_ONLY = ("etag", "uid", "state", "createdTime", "nextDueTime", "claimed")


class MemberSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What is wanted of a member: exactly one of ``schedule``, ``at`` and ``delay``.

    What is left out comes from the set's ``spec.defaults``, as they are when this is written.

    Attributes:
        schedule: one expression, as in ``spec.schedule`` of a Schedule.
        at: one instant, with its zone; as text, RFC 3339.
        delay: one instant so long after the API gets the request, such as ``90s`` or ``24h``.
        payload: anything that is JSON; UNSET = the set's own.
        time_zone: IANA name.
        starting_deadline_seconds: a slot that could not begin so long after its time is missed.
        jitter: the largest delay added to a slot, such as ``30s``.
        dst: ``{"gap": "RunOnce" | "Skip", "overlap": "First" | "Second" | "Both"}``.

    Raises:
        ValueError: two times, none, one without its zone, or several schedules.
    """

    schedule: str | UnsetType = UNSET
    at: dt.datetime | str | UnsetType = UNSET
    delay: str | UnsetType = UNSET
    payload: Any = UNSET
    time_zone: str | UnsetType = UNSET
    suspend: bool = False
    starting_deadline_seconds: int | UnsetType = UNSET
    catch_up_policy: str | UnsetType = UNSET
    catch_up_limit: int | UnsetType = UNSET
    concurrency_policy: str | UnsetType = UNSET
    jitter: str | UnsetType = UNSET
    dst: Mapping[str, str] | UnsetType = UNSET

    def __post_init__(self) -> None:
        times = [name for name in ("schedule", "at", "delay") if getattr(self, name) is not UNSET]
        if len(times) != 1:
            given = " and ".join(times) if times else "none of them"
            raise ValueError(f"write exactly one of schedule, at and delay; there is {given}")
        if not isinstance(self.schedule, str | UnsetType):
            raise ValueError("schedule: a member has one expression; use a member for each")  # noqa: TRY004
        if isinstance(self.at, dt.datetime) and self.at.tzinfo is None:
            raise ValueError(f"at: {self.at.isoformat()} has no zone; add tzinfo=datetime.UTC")


class MemberRow(MemberSpec, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A member with its id, one of many to be written together.

    Raises:
        ValueError: as of ``MemberSpec``, or a ``delay``: rows may be sent again after a lost
            answer, and it would count from the repetition.
    """

    id: str

    def __post_init__(self) -> None:
        if self.delay is not UNSET:
            raise ValueError("delay: a row may be sent twice, so write the instant itself, as at")
        super().__post_init__()


class MemberView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A member as the API has it.

    Attributes:
        etag: names this version, for ``if_match``; another one after every change.
        at: of a one-off; RFC 3339 in UTC.
        payload: None also where the member has none of its own.
        state: ``Active``, ``Suspended`` or ``Completed``.
        next_due_time: None where there is none, or while a worker has claimed it.
        uid, created_time, claimed: known after ``get`` and lists; a change does not answer them.
    """

    id: str
    etag: str = ""
    uid: str = ""
    schedule: str | None = None
    at: str | None = None
    payload: Any = None
    time_zone: str | None = None
    suspend: bool = False
    starting_deadline_seconds: int | None = None
    catch_up_policy: str | None = None
    catch_up_limit: int | None = None
    concurrency_policy: str | None = None
    jitter: str | None = None
    dst: Mapping[str, str] | None = None
    state: str = ""
    created_time: str | None = None
    next_due_time: str | None = None
    claimed: bool = False


class ItemPage(msgspec.Struct, Generic[ItemT], frozen=True, kw_only=True):
    """A part of a list.

    Attributes:
        items: at most as many as asked for; there may be none although there are more to come.
        next: the cursor of the next page; empty at the end.
    """

    items: tuple[ItemT, ...] = ()
    next: str = ""


class LimitsView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a set may have: members, bytes of a payload, changes a second."""

    members: int = 0
    payload_bytes: int = 0
    changes_per_second: int = 0


class DurabilityView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the Redis servers promise: see ``status.durability`` of a ScheduleSet."""

    persistence: str = ""
    replicas: int = 0
    loss_window: str = ""


class SetView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A set and what it holds at the moment.

    Attributes:
        state: ``Ready``, ``Suspended``, ``Deleting`` or ``Stalled``.
        managed_by_rows: the set is kept equal to its rows, and takes no changes.
        members: how many there are.
        armed: how many wait for a due time.
        in_flight: how many a worker has claimed.
        lag_seconds: how long the oldest overdue member has waited; 0 where none is overdue.
    """

    namespace: str
    name: str
    uid: str = ""
    state: str = ""
    managed_by_rows: bool = False
    members: int = 0
    armed: int = 0
    in_flight: int = 0
    next_due_time: str | None = None
    lag_seconds: float | None = 0.0
    limits: LimitsView = LimitsView()
    durability: DurabilityView = DurabilityView()


class UnfinishedSlot(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A slot that a worker has claimed, or that waits for its next attempt.

    Attributes:
        id: of the member.
        claimed: a worker has it now.
    """

    id: str
    slot_time: str | None = None
    attempt: int = 0
    since_time: str | None = None
    claimed: bool = False
    last_error: str = ""


class LetterView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A slot that was given up.

    Attributes:
        id: of the letter, for ``replay``.
        schedule: id of the member.
    """

    id: str
    schedule: str = ""
    slot_time: str | None = None
    dead_time: str | None = None
    reason: str = ""
    message: str = ""
    attempts: int | None = None


class RowAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of one row.

    Attributes:
        outcome: ``Created``, ``Replaced``, ``Unchanged``, ``Removed`` or ``Absent``; empty where
            the row was refused.
        due_time: when the member is due next.
        error: why it was refused.
        fatal: no row: the API read no further, because of ``error``.
    """

    id: str | None = None
    outcome: str = ""
    etag: str = ""
    due_time: str | None = None
    error: problems.ProblemText | None = None
    fatal: bool = False

    @property
    def is_refused(self) -> bool:
        return self.error is not None

    def raise_if_refused(self) -> None:
        """Raise the exception that a request of this row alone would have raised."""
        if self.error is not None:
            raise problems.of_problem(self.error)


_as_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


def row_of(member: msgspec.Raw | bytes) -> bytes:
    """A line for ``upsert`` of a member as ``export`` gives it: without what only the API writes.

    Raises:
        ValueError: it is no JSON object.
    """
    try:
        fields = _as_object.decode(member)
    except msgspec.DecodeError as error:
        raise ValueError(f"it is no member as JSON: {error}") from error
    return on_one_line(
        msgspec.json.encode({name: fields[name] for name in fields if name not in READ_ONLY})
    )


def on_one_line(text: bytes) -> bytes:
    """JSON without a line break: a payload has the white space that it was written with."""
    return text.replace(b"\n", b" ").replace(b"\r", b" ")
