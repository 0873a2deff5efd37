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
from duepoint.model.answers import RowView
from duepoint.model.member import READ_ONLY

ItemT = TypeVar("ItemT")


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


class ItemPage(msgspec.Struct, Generic[ItemT], frozen=True, kw_only=True):
    """A part of a list.

    Attributes:
        items: at most as many as asked for; there may be none although there are more to come.
        next: the cursor of the next page; empty at the end.
    """

    items: tuple[ItemT, ...] = ()
    next: str = ""


class RowAnswer(RowView, kw_only=True):
    """What became of one row."""

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
