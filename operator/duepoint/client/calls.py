"""Requests of the API as values, and what is sent and answered: the one place with its names.

Names are those of the API's JSON in snake case. An answer may have fields that this version does
not know; they are left out, so that a newer API serves an older client.

A call says what to send and how to read the answer; the clients send it. Ids and names are
percent-encoded whole, so no id can name another path. A change that must not be made twice carries
an ``Idempotency-Key`` made here, once for all attempts.
"""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
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
#: Code of a 404 that is about the member, not about the set.
NO_MEMBER = "NoSuchMember"


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


class RowAnswer(answers.RowView, kw_only=True):
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


# -- requests --------------------------------------------------------------------------------------


def _as_it_is(answer: Any) -> Any:  # noqa: ANN401 - of any type
    return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCall(Generic[AnswerT]):
    """One request.

    Attributes:
        path: below the server's URL, encoded.
        answer: the type that the answer's JSON is read as; ``type(None)`` = there is none to read.
        take: what the caller gets of it.
        absent: what the caller gets where there is no such member; UNSET = the problem.
    """

    method: str
    path: str
    answer: type[Any]
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    take: Callable[[Any], AnswerT] = _as_it_is
    absent: Any = UNSET

    def means_absent(self, error: problems.ClientError) -> bool:
        """Whether an error is that there is no such member, and an answer all the same."""
        is_known = isinstance(error, problems.NothingThere) and error.code == NO_MEMBER
        return is_known and self.absent is not UNSET


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeOptions:
    """When a change is carried out, and when it is answered.

    Attributes:
        if_match: only if the member's etag is this one.
        if_absent: only if there is no such member.
        durability: answer only when the change is as safe as this: ``replicas=1``, ``aof`` or
            both with a comma; refused where the servers cannot give it.
        idempotency_key: unset: a random one where a repetition would matter. Write your own where
            a call may be repeated by another process, up to a day later.
    """

    if_match: str = ""
    if_absent: bool = False
    durability: str = ""
    idempotency_key: str = ""

    def headers(self, *, is_repeatable: bool = True) -> dict[str, str]:
        """Of a request; a key costs the API two round trips, so not every change has one.

        Args:
            is_repeatable: without conditions the same request again changes nothing; a ``delay``
                counts from each request.
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


@dataclass(frozen=True, slots=True)
class SetCalls:
    """The requests about one set; both kinds of client have a method for each."""

    namespace: str
    name: str

    @property
    def base(self) -> str:
        return f"/v1/namespaces/{_segment(self.namespace)}/schedulesets/{_segment(self.name)}"

    def info(self) -> ApiCall[answers.SetView]:
        """The set's state and its counts."""
        return ApiCall(method="GET", path=self.base, answer=answers.SetView)

    # -- one member ------------------------------------------------------------------------------

    def get(self, id_: str) -> ApiCall[answers.MemberView]:
        """The member of this id; raises problems.NothingThere where there is none."""
        return ApiCall(method="GET", path=self._member(id_), answer=answers.MemberView)

    def put(
        self, id_: str, spec: MemberSpec, *, options: ChangeOptions = ALWAYS
    ) -> ApiCall[answers.MemberView]:
        """The member is as the spec says; the same again changes nothing."""
        kept = options.headers(is_repeatable=spec.delay is UNSET)
        return _change("PUT", self._member(id_), answers.MemberView, spec, kept)

    def patch(
        self, id_: str, changes: Mapping[str, Any], *, options: ChangeOptions = ALWAYS
    ) -> ApiCall[answers.MemberView]:
        """Some fields of a member are others; None removes one (RFC 7396).

        Args:
            changes: by the names of ``MemberSpec``, or by those of the API (``timeZone``).
        """
        kept = options.headers(is_repeatable=changes.get("delay") is None)
        named = {_FIELDS.get(name, name): value for name, value in changes.items()}
        headers = {**kept, "Content-Type": MERGE_PATCH}
        return _change("PATCH", self._member(id_), answers.MemberView, named, headers)

    def delete(self, id_: str, *, options: ChangeOptions = ALWAYS) -> ApiCall[bool]:
        """There is no member of this id; False where there was none before.

        After a lost answer False may also mean that the first attempt removed it.
        """
        return ApiCall(
            method="DELETE", path=self._member(id_), answer=type(None), headers=options.headers(),
            take=lambda _: True, absent=False,
        )  # fmt: skip

    def create(
        self, spec: MemberSpec, *, options: ChangeOptions = ALWAYS
    ) -> ApiCall[answers.MemberView]:
        """A new one-off, whose id the API chooses: a ULID."""
        kept = options.headers(is_repeatable=False)
        return _change("POST", f"{self.base}/schedules", answers.MemberView, spec, kept)

    def trigger(
        self, id_: str, payload: object = UNSET, *, options: ChangeOptions = ALWAYS
    ) -> ApiCall[str]:
        """The member fires once now; the id of that run. UNSET = with its own payload."""
        body = {} if payload is UNSET else {"payload": payload}
        kept = options.headers(is_repeatable=False)
        path = f"{self._member(id_)}/trigger"
        return _change("POST", path, answers.Triggered, body, kept, attrgetter("run"))

    def next_times(self, id_: str, count: int = 5) -> ApiCall[tuple[str, ...]]:
        """The next slots of a member, RFC 3339 in UTC."""
        return ApiCall(
            method="GET", path=f"{self._member(id_)}/next", answer=ItemPage[str],
            query={"count": str(count)}, take=attrgetter("items"),
        )  # fmt: skip

    # -- many ------------------------------------------------------------------------------------

    def page(
        self, cursor: str = "", *, limit: int = 100, prefix: str = ""
    ) -> ApiCall[ItemPage[answers.MemberView]]:
        """A page of the members, which may be empty and not the last; '' begins."""
        return _page(
            f"{self.base}/schedules", answers.MemberView, limit, cursor=cursor, prefix=prefix
        )

    def due(
        self, since: str, until: str, cursor: str = "", *, limit: int = 100
    ) -> ApiCall[ItemPage[answers.MemberView]]:
        """A page of the members that are due from ``since`` until before ``until``."""
        more = {"cursor": cursor, "dueFrom": since, "dueUntil": until}
        return _page(f"{self.base}/schedules", answers.MemberView, limit, **more)

    def export(self, cursor: str = "", *, limit: int = 1000) -> ApiCall[ItemPage[msgspec.Raw]]:
        """A page of whole members as JSON; ``row_of`` makes a row for ``upsert`` of one."""
        return _page(f"{self.base}/export", msgspec.Raw, limit, cursor=cursor)

    def unacknowledged(self, *, limit: int = 100) -> ApiCall[tuple[answers.UnfinishedSlot, ...]]:
        """Slots that a worker has claimed, or that wait for their next attempt."""
        page = _page(f"{self.base}/unacknowledged", answers.UnfinishedSlot, limit)
        return ApiCall(
            method="GET", path=page.path, answer=page.answer, query=page.query,
            take=attrgetter("items"),
        )  # fmt: skip

    def dead_letters(
        self, cursor: str = "", *, limit: int = 100
    ) -> ApiCall[ItemPage[answers.LetterView]]:
        """A page of the slots that were given up, newest first."""
        return _page(f"{self.base}/deadletters", answers.LetterView, limit, cursor=cursor)

    def replay(self, letters: Sequence[str]) -> ApiCall[tuple[str, ...]]:
        """Up to 100 dead letters fire once more, each under the id that its event had.

        Gives those that were not there.
        """
        path, kept = f"{self.base}/deadletters:replay", ALWAYS.headers(is_repeatable=False)
        return _change(
            "POST", path, answers.Replayed, {"ids": letters}, kept, attrgetter("missing")
        )

    def bulk(self, lines: Sequence[bytes], *, delete: bool, durability: str) -> ApiCall[None]:
        """Rows in one request; the answer is NDJSON, a RowAnswer for each row in its order."""
        verb = "bulkDelete" if delete else "bulkUpsert"
        return ApiCall(
            method="POST", path=f"{self.base}/schedules:{verb}", answer=type(None),
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
        method="GET", path=path, answer=ItemPage[item],  # type: ignore[valid-type]
        query={"limit": str(limit), **given},
    )  # fmt: skip


def _change(  # noqa: PLR0917 - in the order of a request
    method: str,
    path: str,
    answer: type[Any],
    body: object,
    headers: Mapping[str, str],
    take: Callable[[Any], Any] = _as_it_is,
) -> ApiCall[Any]:
    headers = {"Content-Type": JSON, **headers}
    return ApiCall(
        method=method, path=path, answer=answer, headers=headers, body=encoded(body), take=take
    )


class ReplayedLetters(msgspec.Struct, frozen=True):
    """What became of each dead letter, in a word by its id."""

    results: dict[str, str]


def schedule_letters(namespace: str, cursor: str) -> ApiCall[ItemPage[answers.LetterView]]:
    """Slots of Schedules that were given up, newest first."""
    return _page(_letters(namespace), answers.LetterView, 200, cursor=cursor)


def replay_schedule_letters(namespace: str, ids: Sequence[str]) -> ApiCall[ReplayedLetters]:
    """Run up to 100 of them again; each once, however often it is asked for."""
    return _change("POST", f"{_letters(namespace)}:replay", ReplayedLetters, {"ids": ids}, {})


def _letters(namespace: str) -> str:
    return f"/v1/namespaces/{_segment(namespace)}/deadletters"


#: What the API calls the fields of a spec.
_FIELDS = {each.name: each.encode_name for each in msgspec.structs.fields(MemberSpec)}
_encoder = msgspec.json.Encoder()


def encoded(value: object) -> bytes:
    """JSON; raises ValueError where it is none."""
    try:
        return _encoder.encode(value)
    except (TypeError, msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"it cannot be written as JSON: {error}") from error


def _segment(text: str) -> str:
    """One segment of a path; raises ValueError for what would be none, or another one."""
    if text in ("", ".", ".."):
        raise ValueError(f'"{text}" is no id and no name')
    return parse.quote(text, safe="")
