"""Requests of the HTTP API as values, with the types of their bodies and answers.

Field names are those of the API's JSON in snake case. Unknown fields of an answer are ignored, so
that an older client works with a newer API.

A call says what to send and how to read the answer; the clients send it. Ids and names are
percent-encoded as a whole, so no id can name another path. A change that must not be made twice
carries an ``Idempotency-Key``, generated here once for all attempts.
"""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib import parse

import msgspec
from msgspec import UNSET, UnsetType

from duepoint.client import problems
from duepoint.model import answers
from duepoint.model.member import READ_ONLY

AnswerT = TypeVar("AnswerT")
ItemT = TypeVar("ItemT")

JSON = "application/json"
NDJSON = "application/x-ndjson"
MERGE_PATCH = "application/merge-patch+json"
_PROBLEM = "application/problem+json"
#: Code of a 404 for a missing member, not a missing set.
NO_MEMBER = "NoSuchMember"


class MemberSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The desired state of a member, with exactly one of ``schedule``, ``at`` and ``delay``.

    When the member is written, the set's ``spec.defaults`` fill the fields that are left out.

    Attributes:
        schedule: one expression, as in ``spec.schedule`` of a Schedule.
        at: one instant, with its zone; as text, RFC 3339.
        delay: one instant this long after the API gets the request, such as ``90s`` or ``24h``.
        payload: anything that is JSON; UNSET = the set's own.
        time_zone: IANA name.
        starting_deadline_seconds: a slot that cannot start within this time is missed.
        jitter: the largest delay added to a slot, such as ``30s``.
        dst: ``{"gap": "RunOnce" | "Skip", "overlap": "First" | "Second" | "Both"}``.

    Raises:
        ValueError: no time or more than one, a time without a zone, or several schedules.
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
    """A member with its id, one of many to write together.

    Raises:
        ValueError: as in ``MemberSpec``, or for a ``delay``: rows may be sent again after a lost
            answer, and the delay would then count from the retry.
    """

    id: str

    def __post_init__(self) -> None:
        if self.delay is not UNSET:
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
        raise ValueError(f"it is no member as JSON: {error}") from error
    return on_one_line(
        msgspec.json.encode({name: fields[name] for name in fields if name not in READ_ONLY})
    )


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


# -- requests --------------------------------------------------------------------------------------


def _read_as(answer: type[Any], field_name: str = "") -> Callable[[bytes], Any]:
    """Return a reader for JSON of this type: of the whole answer, or of one field."""

    def read(body: bytes) -> Any:  # noqa: ANN401 - of any type
        found = msgspec.json.decode(body, type=answer)
        return getattr(found, field_name) if field_name else found

    return read


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCall(Generic[AnswerT]):
    """One request.

    Attributes:
        path: the encoded path below the server's URL.
        read: turns the body of a success into the caller's result.
        absent: the caller's result if there is no such member; UNSET = raise the problem.
    """

    method: str
    path: str
    read: Callable[[bytes], AnswerT]
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    absent: Any = UNSET

    def means_absent(self, error: problems.ClientError) -> bool:
        """Whether the error says that there is no such member, and ``absent`` is the result."""
        is_known = isinstance(error, problems.NothingThere) and error.code == NO_MEMBER
        return is_known and self.absent is not UNSET


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeOptions:
    """Under which conditions a change is made, and how safe it must be before the answer.

    Attributes:
        if_match: only if the member's etag is this one.
        if_absent: only if there is no such member.
        durability: answer only when the change is this safe: ``replicas=1``, ``aof`` or both with
            a comma; refused if the servers cannot provide it.
        idempotency_key: unset: a random one if a retry would matter. Set your own if another
            process may repeat the call, up to a day later.
    """

    if_match: str = ""
    if_absent: bool = False
    durability: str = ""
    idempotency_key: str = ""

    def headers(self, *, is_repeatable: bool = True) -> dict[str, str]:
        """Return the headers of a change; a key costs the API two round trips, so not all have one.

        Args:
            is_repeatable: without conditions, repeating the request changes nothing; not so with
                a ``delay``, which counts from each request.
        """
        found: dict[str, str] = {}
        if self.idempotency_key or self.if_match or self.if_absent or not is_repeatable:
            found["Idempotency-Key"] = self.idempotency_key or secrets.token_hex(16)
        if self.if_match:
            found["If-Match"] = f'"{self.if_match}"'
        if self.if_absent:
            found["If-None-Match"] = "*"
        if self.durability:
            found["Duepoint-Durability"] = self.durability
        return found


ALWAYS = ChangeOptions()
_MEMBER = _read_as(answers.MemberView)


@dataclass(frozen=True, slots=True)
class SetCalls:
    """The requests about one set; both clients have a method for each."""

    namespace: str
    name: str

    @property
    def base(self) -> str:
        return f"/v1/namespaces/{_segment(self.namespace)}/schedulesets/{_segment(self.name)}"

    def info(self) -> ApiCall[answers.SetView]:
        """Read the set's state and its counts."""
        return ApiCall(method="GET", path=self.base, read=_read_as(answers.SetView))

    # -- one member ------------------------------------------------------------------------------

    def get(self, id_: str) -> ApiCall[answers.MemberView]:
        """Read the member with this id; raises problems.NothingThere if there is none."""
        return ApiCall(method="GET", path=self._member(id_), read=_MEMBER)

    def put(
        self, id_: str, spec: MemberSpec, *, options: ChangeOptions = ALWAYS
    ) -> ApiCall[answers.MemberView]:
        """Create or replace a member; repeating the call changes nothing."""
        kept = options.headers(is_repeatable=spec.delay is UNSET)
        return _change("PUT", self._member(id_), _MEMBER, spec, kept)

    def patch(
        self, id_: str, changes: Mapping[str, Any], *, options: ChangeOptions = ALWAYS
    ) -> ApiCall[answers.MemberView]:
        """Change some fields of a member; None removes a field (RFC 7396).

        Args:
            changes: by the names of ``MemberSpec``, or by those of the API (``timeZone``).
        """
        kept = options.headers(is_repeatable=changes.get("delay") is None)
        named = {_FIELDS.get(name, name): value for name, value in changes.items()}
        headers = {**kept, "Content-Type": MERGE_PATCH}
        return _change("PATCH", self._member(id_), _MEMBER, named, headers)

    def delete(self, id_: str, *, options: ChangeOptions = ALWAYS) -> ApiCall[bool]:
        """Delete the member with this id; False if there was none.

        After a lost answer False may also mean that the first attempt deleted it.
        """
        return ApiCall(
            method="DELETE", path=self._member(id_), headers=options.headers(),
            read=lambda _: True, absent=False,
        )  # fmt: skip

    def create(
        self, spec: MemberSpec, *, options: ChangeOptions = ALWAYS
    ) -> ApiCall[answers.MemberView]:
        """Create a one-off, whose id the API chooses: a ULID."""
        kept = options.headers(is_repeatable=False)
        return _change("POST", f"{self.base}/schedules", _MEMBER, spec, kept)

    def trigger(
        self, id_: str, payload: object = UNSET, *, options: ChangeOptions = ALWAYS
    ) -> ApiCall[str]:
        """Fire the member once now; returns the id of that run. UNSET = with its own payload."""
        body = {} if payload is UNSET else {"payload": payload}
        kept = options.headers(is_repeatable=False)
        read = _read_as(answers.Triggered, "run")
        return _change("POST", f"{self._member(id_)}/trigger", read, body, kept)

    def next_times(self, id_: str, count: int = 5) -> ApiCall[tuple[str, ...]]:
        """Read the next slots of a member, RFC 3339 in UTC."""
        return ApiCall(
            method="GET", path=f"{self._member(id_)}/next", query={"count": str(count)},
            read=_read_as(ItemPage[str], "items"),
        )  # fmt: skip

    # -- many ------------------------------------------------------------------------------------

    def page(
        self, cursor: str = "", *, limit: int = 100, prefix: str = ""
    ) -> ApiCall[ItemPage[answers.MemberView]]:
        """Read a page of members, '' = the first; a page may be empty without being the last."""
        return _page(
            f"{self.base}/schedules", answers.MemberView, limit, cursor=cursor, prefix=prefix
        )

    def due(
        self, since: str, until: str, cursor: str = "", *, limit: int = 100
    ) -> ApiCall[ItemPage[answers.MemberView]]:
        """Read a page of the members that are due from ``since`` until before ``until``."""
        more = {"cursor": cursor, "dueFrom": since, "dueUntil": until}
        return _page(f"{self.base}/schedules", answers.MemberView, limit, **more)

    def export(self, cursor: str = "", *, limit: int = 1000) -> ApiCall[ItemPage[msgspec.Raw]]:
        """Read a page of whole members as JSON; ``row_of`` turns one into a row for ``upsert``."""
        return _page(f"{self.base}/export", msgspec.Raw, limit, cursor=cursor)

    def dead_letters(
        self, cursor: str = "", *, limit: int = 100
    ) -> ApiCall[ItemPage[answers.LetterView]]:
        """Read a page of the dead letters, newest first."""
        return _page(f"{self.base}/deadletters", answers.LetterView, limit, cursor=cursor)

    def replay(self, letters: Sequence[str]) -> ApiCall[tuple[str, ...]]:
        """Fire up to 100 dead letters once more, each with the id that its event had.

        Returns the ids that do not exist.
        """
        path, kept = f"{self.base}/deadletters:replay", ALWAYS.headers(is_repeatable=False)
        return _change("POST", path, _read_as(answers.Replayed, "missing"), {"ids": letters}, kept)

    def bulk(
        self, lines: Sequence[bytes], *, delete: bool, durability: str
    ) -> ApiCall[list[RowAnswer]]:
        """Send rows in one request; the answer is NDJSON, one line for each row in their order."""
        verb = "bulkDelete" if delete else "bulkUpsert"
        return ApiCall(
            method="POST", path=f"{self.base}/schedules:{verb}", read=_row_answers.decode_lines,
            headers={
                "Content-Type": NDJSON,
                "Accept": f"{NDJSON}, {_PROBLEM}",
                **({"Duepoint-Durability": durability} if durability else {}),
            },
            body=b"\n".join(lines) + b"\n",
        )  # fmt: skip

    def _member(self, id_: str) -> str:
        return f"{self.base}/schedules/{_segment(id_)}"


def _page(path: str, item: type[ItemT], limit: int, **query: str) -> ApiCall[ItemPage[ItemT]]:
    given = {name: text for name, text in query.items() if text}
    return ApiCall(
        method="GET", path=path, query={"limit": str(limit), **given},
        read=_read_as(ItemPage[item]),  # type: ignore[valid-type]
    )  # fmt: skip


def _change(
    method: str,
    path: str,
    read: Callable[[bytes], AnswerT],
    body: object,
    headers: Mapping[str, str],
) -> ApiCall[AnswerT]:
    headers = {"Content-Type": JSON, **headers}
    return ApiCall(method=method, path=path, read=read, headers=headers, body=encoded(body))


class ReplayedLetters(msgspec.Struct, frozen=True):
    """The result of each dead letter in one word, by its id."""

    results: dict[str, str]


def schedule_letters(namespace: str, cursor: str) -> ApiCall[ItemPage[answers.LetterView]]:
    """Read the dead letters of Schedules, newest first."""
    return _page(_letters(namespace), answers.LetterView, 200, cursor=cursor)


def replay_schedule_letters(namespace: str, ids: Sequence[str]) -> ApiCall[ReplayedLetters]:
    """Run up to 100 of them again; each once, however often the request is repeated."""
    read = _read_as(ReplayedLetters)
    return _change("POST", f"{_letters(namespace)}:replay", read, {"ids": ids}, {})


def _letters(namespace: str) -> str:
    return f"/v1/namespaces/{_segment(namespace)}/deadletters"


#: The API's names of the fields of a spec.
_FIELDS = {each.name: each.encode_name for each in msgspec.structs.fields(MemberSpec)}
_encoder = msgspec.json.Encoder()
_row_answers = msgspec.json.Decoder(RowAnswer)


def encoded(value: object) -> bytes:
    """Return a value as JSON; raises ValueError if JSON cannot represent it."""
    try:
        return _encoder.encode(value)
    except (TypeError, msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"it cannot be written as JSON: {error}") from error


def _segment(text: str) -> str:
    """Return one segment of a path; raises ValueError for a text that would change the path."""
    if text in ("", ".", ".."):
        raise ValueError(f'"{text}" is no id and no name')
    return parse.quote(text, safe="")
