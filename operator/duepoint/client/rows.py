"""What a program sends and gets: members as they are written, rows, and their answers.

Field names are those of the API's JSON in snake case. Unknown fields of an answer are ignored, so
that an older client works with a newer API.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from duepoint.client import problems
from duepoint.model import answers
from duepoint.model.member import READ_ONLY, OptionFields

ItemT = TypeVar("ItemT")


class MemberSpec(OptionFields, kw_only=True, omit_defaults=True):
    """The desired state of a member, with exactly one of ``schedule``, ``at`` and ``delay``.

    The other fields are those of a set's rows. When the member is written, the set's
    ``spec.defaults`` fill the fields that are left out.

    Attributes:
        schedule: one expression, as in ``spec.schedule`` of a Schedule.
        at: one instant, with its zone; as text, RFC 3339.
        delay: one instant this long after the API gets the request, such as ``90s`` or ``24h``.
        payload: anything that is JSON; None = the set's own.
        dst: ``{"gap": "RunOnce" | "Skip", "overlap": "First" | "Second" | "Both"}``.

    Raises:
        ValueError: no time or more than one, a time without a zone, or several schedules.
    """

    schedule: str | None = None
    at: dt.datetime | str | None = None
    delay: str | None = None
    payload: Any = None
    dst: Mapping[str, str] | None = None  # type: ignore[assignment]  # as JSON says it

    def __post_init__(self) -> None:
        times = [name for name in ("schedule", "at", "delay") if getattr(self, name) is not None]
        if len(times) != 1:
            given = " and ".join(times) if times else "none of them"
            raise ValueError(f"write exactly one of schedule, at and delay; there is {given}")
        if not isinstance(self.schedule, str | None):
            raise ValueError("schedule: a member has one expression; use a member for each")  # noqa: TRY004
        if isinstance(self.at, dt.datetime) and self.at.tzinfo is None:
            raise ValueError(f"at: {self.at.isoformat()} has no zone; add tzinfo=datetime.UTC")


class MemberRow(MemberSpec, kw_only=True, omit_defaults=True):
    """A member with its id, one of many to write together.

    Raises:
        ValueError: as in ``MemberSpec``, or for a ``delay``: rows may be sent again after a lost
            answer, and the delay would then count from the retry.
    """

    id: str

    def __post_init__(self) -> None:
        if self.delay is not None:
            raise ValueError("delay: a row may be sent twice, so write the instant itself, as at")
        super().__post_init__()


class ItemPage(msgspec.Struct, Generic[ItemT], frozen=True, kw_only=True):
    """A page of a list.

    Attributes:
        items: at most as many as requested; a page may be empty although more pages follow.
        next: the cursor of the next page; empty at the end.
    """

    items: tuple[ItemT, ...] = ()
    next: str = ""


class RowAnswer(answers.RowView, kw_only=True):
    """The result of one row."""

    @property
    def is_refused(self) -> bool:
        return self.error is not None

    @property
    def is_passing(self) -> bool:
        """Whether the row was refused now, but may be accepted later."""
        return self.is_refused and isinstance(self.problem(), problems.ServiceBusy)

    def problem(self) -> problems.ApiProblem:
        """Return, for a refused row, the exception that a request with it alone would raise."""
        return problems.of_problem(self.error or answers.Problem())

    def raise_if_refused(self) -> None:
        """Raise the problem, if the row was refused."""
        if self.is_refused:
            raise self.problem()


_as_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


def row_of(member: msgspec.Raw | bytes) -> bytes:
    """Return an exported member as a line for ``upsert``, without the fields that the API sets.

    Raises:
        ValueError: it is not a JSON object.
    """
    try:
        fields = _as_object.decode(member)
    except msgspec.DecodeError as error:
        raise ValueError(f"it is not a member as JSON: {error}") from error
    return on_one_line(encoded({name: fields[name] for name in fields if name not in READ_ONLY}))


#: Most rows in a batch.
ROWS = 1_000
#: Most bytes in a batch; a single row may be longer.
BYTES = 1024 * 1024


def batches(rows: Iterable[MemberRow | str | bytes]) -> Iterator[list[bytes]]:
    """Yield batches of lines, of rows to write or ids to delete; send each in one request.

    A batch ends at ``ROWS`` rows or ``BYTES`` bytes, whichever comes first. Both are far below the
    API's limits, so that after a lost connection only about a second's work is repeated.

    Raises:
        ValueError: a row cannot be JSON, such as a payload with a NaN or an unknown type of date.
    """
    lines: list[bytes] = []
    size = 0
    for row in rows:
        line = _line(row)
        if lines and (len(lines) == ROWS or size + len(line) >= BYTES):
            yield lines
            lines, size = [], 0
        lines.append(line)
        size += len(line) + 1
    if lines:
        yield lines


def _line(row: MemberRow | str | bytes) -> bytes:
    if isinstance(row, bytes):
        return row.strip()
    return on_one_line(encoded({"id": row} if isinstance(row, str) else row))


def on_one_line(text: bytes) -> bytes:
    """Return JSON without line breaks; a payload keeps the white space of its author."""
    return text.replace(b"\n", b" ").replace(b"\r", b" ")


_encoder = msgspec.json.Encoder()


def encoded(value: object) -> bytes:
    """Return a value as JSON; raises ValueError if JSON cannot represent it."""
    try:
        return _encoder.encode(value)
    except (TypeError, msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"it cannot be written as JSON: {error}") from error
