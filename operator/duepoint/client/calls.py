"""Requests of the API as values: the one place that knows its paths and the names in its JSON.

A call says what to send and how to read the answer; the clients send it. Ids and names are
percent-encoded whole, so no id can name another path. A change that must not be made twice carries
an ``Idempotency-Key`` made here, once for all attempts.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib import parse

import msgspec
from msgspec import UNSET

from duepoint.client import members
from duepoint.model import answers

AnswerT = TypeVar("AnswerT")

JSON = "application/json"
NDJSON = "application/x-ndjson"
MERGE_PATCH = "application/merge-patch+json"
_PROBLEM = "application/problem+json"
#: Code of a 404 that is about the member, not about the set.
NO_MEMBER = "NoSuchMember"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCall(Generic[AnswerT]):
    """One request.

    Attributes:
        path: below the server's URL, encoded.
        answer: the type that the answer's JSON is read as; ``type(None)`` = there is none to read.
    """

    method: str
    path: str
    answer: type[AnswerT]
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


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
    """The requests about one set."""

    namespace: str
    name: str

    @property
    def base(self) -> str:
        return f"/v1/namespaces/{_segment(self.namespace)}/schedulesets/{_segment(self.name)}"

    def info(self) -> ApiCall[answers.SetView]:
        return ApiCall(method="GET", path=self.base, answer=answers.SetView)

    # -- one member ------------------------------------------------------------------------------

    def get(self, id_: str) -> ApiCall[answers.MemberView]:
        return ApiCall(method="GET", path=self._member(id_), answer=answers.MemberView)

    def put(
        self, id_: str, spec: members.MemberSpec, options: ChangeOptions
    ) -> ApiCall[answers.MemberView]:
        return ApiCall(
            method="PUT", path=self._member(id_), answer=answers.MemberView,
            headers={
                "Content-Type": JSON,
                **options.headers(is_repeatable=spec.delay is UNSET),
            },
            body=encoded(spec),
        )  # fmt: skip

    def patch(
        self, id_: str, changes: Mapping[str, Any], options: ChangeOptions
    ) -> ApiCall[answers.MemberView]:
        return ApiCall(
            method="PATCH", path=self._member(id_), answer=answers.MemberView,
            headers={
                "Content-Type": MERGE_PATCH,
                **options.headers(is_repeatable=changes.get("delay") is None),
            },
            body=encoded({_FIELDS.get(name, name): value for name, value in changes.items()}),
        )  # fmt: skip

    def delete(self, id_: str, options: ChangeOptions) -> ApiCall[None]:
        return ApiCall(
            method="DELETE", path=self._member(id_), answer=type(None), headers=options.headers()
        )

    def create(
        self, spec: members.MemberSpec, options: ChangeOptions
    ) -> ApiCall[answers.MemberView]:
        return ApiCall(
            method="POST", path=f"{self.base}/schedules", answer=answers.MemberView,
            headers={"Content-Type": JSON, **options.headers(is_repeatable=False)},
            body=encoded(spec),
        )  # fmt: skip

    def trigger(
        self, id_: str, payload: object, options: ChangeOptions
    ) -> ApiCall[answers.Triggered]:
        body = {} if payload is UNSET else {"payload": payload}
        return ApiCall(
            method="POST", path=f"{self._member(id_)}/trigger", answer=answers.Triggered,
            headers={"Content-Type": JSON, **options.headers(is_repeatable=False)},
            body=encoded(body),
        )  # fmt: skip

    def next_times(self, id_: str, count: int) -> ApiCall[members.ItemPage[str]]:
        return ApiCall(
            method="GET", path=f"{self._member(id_)}/next", answer=members.ItemPage[str],
            query={"count": str(count)},
        )  # fmt: skip

    # -- many ------------------------------------------------------------------------------------

    def page(
        self, cursor: str, *, limit: int, prefix: str = ""
    ) -> ApiCall[members.ItemPage[answers.MemberView]]:
        return ApiCall(
            method="GET", path=f"{self.base}/schedules",
            answer=members.ItemPage[answers.MemberView],
            query=_query(limit=limit, cursor=cursor, prefix=prefix),
        )  # fmt: skip

    def due(
        self, cursor: str, *, since: str, until: str, limit: int
    ) -> ApiCall[members.ItemPage[answers.MemberView]]:
        return ApiCall(
            method="GET", path=f"{self.base}/schedules",
            answer=members.ItemPage[answers.MemberView],
            query=_query(limit=limit, cursor=cursor, dueFrom=since, dueUntil=until),
        )  # fmt: skip

    def export(self, cursor: str, *, limit: int) -> ApiCall[members.ItemPage[msgspec.Raw]]:
        """A page of members as the API wrote them."""
        return ApiCall(
            method="GET", path=f"{self.base}/export", answer=members.ItemPage[msgspec.Raw],
            query=_query(limit=limit, cursor=cursor),
        )  # fmt: skip

    def unacknowledged(self, *, limit: int) -> ApiCall[members.ItemPage[answers.UnfinishedSlot]]:
        return ApiCall(
            method="GET", path=f"{self.base}/unacknowledged",
            answer=members.ItemPage[answers.UnfinishedSlot], query=_query(limit=limit),
        )  # fmt: skip

    def dead_letters(
        self, cursor: str, *, limit: int
    ) -> ApiCall[members.ItemPage[answers.LetterView]]:
        return ApiCall(
            method="GET", path=f"{self.base}/deadletters",
            answer=members.ItemPage[answers.LetterView],
            query=_query(limit=limit, cursor=cursor),
        )  # fmt: skip

    def replay(self, letters: Sequence[str]) -> ApiCall[answers.Replayed]:
        return ApiCall(
            method="POST", path=f"{self.base}/deadletters:replay",
            answer=answers.Replayed,
            headers={"Content-Type": JSON, **ALWAYS.headers(is_repeatable=False)},
            body=encoded({"ids": letters}),
        )  # fmt: skip

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


class ReplayedLetters(msgspec.Struct, frozen=True):
    """What became of each dead letter, in a word by its id."""

    results: dict[str, str]


def schedule_letters(namespace: str, cursor: str) -> ApiCall[members.ItemPage[answers.LetterView]]:
    """Slots of Schedules that were given up, newest first."""
    return ApiCall(
        method="GET", path=_letters(namespace), answer=members.ItemPage[answers.LetterView],
        query=_query(limit=200, cursor=cursor),
    )  # fmt: skip


def replay_schedule_letters(namespace: str, ids: Sequence[str]) -> ApiCall[ReplayedLetters]:
    """Run up to 100 of them again; each once, however often it is asked for."""
    return ApiCall(
        method="POST", path=f"{_letters(namespace)}:replay", answer=ReplayedLetters,
        headers={"Content-Type": JSON}, body=encoded({"ids": ids}),
    )  # fmt: skip


def _letters(namespace: str) -> str:
    return f"/v1/namespaces/{_segment(namespace)}/deadletters"


#: What the API calls the fields of a spec.
_FIELDS = {each.name: each.encode_name for each in msgspec.structs.fields(members.MemberSpec)}
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


def _query(**given: str | int) -> dict[str, str]:
    return {name: str(value) for name, value in given.items() if value != ""}
