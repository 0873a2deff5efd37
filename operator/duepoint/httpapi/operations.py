"""Every operation of the API: its path, the rights it needs, its parameters and its bodies.

One table from which requests are routed, rights are asked for, parameters are checked, and the
OpenAPI document is made.
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple
from urllib import parse

from duepoint.httpapi import calls
from duepoint.httpapi.problems import OperationProblem

BASE: Final = "/v1/namespaces/{namespace}/schedulesets/{set}"


class Needs(enum.Enum):
    """Which verbs on ``schedulesets/schedules`` an operation needs."""

    GET = ("get",)
    LIST = ("list",)
    CREATE = ("create",)
    PATCH = ("patch",)
    DELETE = ("delete",)
    TRIGGER = ("trigger",)
    REPLAY = ("replay",)
    UPSERT = ("create", "update")
    #: create with If-None-Match, update with If-Match, both without.
    PUT = "by its conditions"
    #: What the API server says to the caller's own token; ``Operation.rights`` has it in words.
    OWN = "by the API server"


class Operation(NamedTuple):
    """One operation.

    Attributes:
        name: its ``operationId``, and its label in metrics.
        path: below ``BASE``.
        parameters: of the query.
        body: name of the schema of the request's body, "" where it has none.
        answers: schema of the body of each success, by status; "" = it has none.
        is_change: it takes ``Idempotency-Key`` and ``Duepoint-Durability``.
        rights: what it needs, in words, where that is not a verb on the members of a set.
        base: what its path begins with.
    """

    name: str
    method: str
    path: str
    needs: Needs
    summary: str
    parameters: tuple[str, ...] = ()
    body: str = ""
    answers: Mapping[int, str] = {}
    is_change: bool = False
    is_bulk: bool = False
    rights: str = ""
    base: str = BASE


OPERATIONS: Final = (
    Operation(
        "getSet", "GET", "", Needs.GET,
        "The set: state, limits, and what it holds now", answers={200: "SetSummary"},
    ),
    Operation(
        "listMembers", "GET", "/schedules", Needs.LIST,
        "Members, in the order of the hashes of their ids, or by due time",
        ("limit", "cursor", "prefix", "dueFrom", "dueUntil"), answers={200: "MemberPage"},
    ),
    Operation(
        "createOneOff", "POST", "/schedules", Needs.CREATE,
        "A new member that fires once, under an id that the API chooses (a ULID)",
        body="OneOff", answers={201: "Member"}, is_change=True,
    ),
    Operation(
        "getMember", "GET", "/schedules/{id}", Needs.GET,
        "One member", answers={200: "Member", 304: ""},
    ),
    Operation(
        "putMember", "PUT", "/schedules/{id}", Needs.PUT,
        "Create a member, or replace it whole", body="MemberFields",
        answers={200: "Member", 201: "Member"}, is_change=True,
    ),
    Operation(
        "patchMember", "PATCH", "/schedules/{id}", Needs.PATCH,
        "Change fields of a member by a JSON merge patch (RFC 7396)", body="MemberPatch",
        answers={200: "Member"}, is_change=True,
    ),
    Operation(
        "deleteMember", "DELETE", "/schedules/{id}", Needs.DELETE,
        "Remove a member; what a worker has already claimed of it may still fire",
        answers={204: ""}, is_change=True,
    ),
    Operation(
        "nextTimes", "GET", "/schedules/{id}/next", Needs.GET,
        "The next times of a member", ("count",), answers={200: "Times"},
    ),
    Operation(
        "triggerMember", "POST", "/schedules/{id}/trigger", Needs.TRIGGER,
        "Run a member now, beside its schedule", body="Trigger",
        answers={202: "Triggered"}, is_change=True,
    ),
    Operation(
        "bulkUpsert", "POST", "/schedules:bulkUpsert", Needs.UPSERT,
        "Create or replace up to 100,000 members", body="MemberRow",
        answers={200: "RowAnswer"}, is_bulk=True,
    ),
    Operation(
        "bulkDelete", "POST", "/schedules:bulkDelete", Needs.DELETE,
        "Remove up to 100,000 members", body="RemovalRow",
        answers={200: "RowAnswer"}, is_bulk=True,
    ),
    Operation(
        "listDue", "GET", "/due", Needs.LIST,
        "Members that are due and that no worker has claimed", ("limit", "cursor"),
        answers={200: "MemberPage"},
    ),
    Operation(
        "listUnacknowledged", "GET", "/unacknowledged", Needs.LIST,
        "Slots that a worker has claimed, or that wait for another attempt", ("limit",),
        answers={200: "OpenSlots"},
    ),
    Operation(
        "exportMembers", "GET", "/export", Needs.LIST,
        "Members, shard by shard: what does not change meanwhile comes exactly once",
        ("limit", "cursor"), answers={200: "MemberPage"},
    ),
    Operation(
        "listDeadLetters", "GET", "/deadletters", Needs.LIST,
        "Slots that were given up, newest first", ("limit", "cursor"),
        answers={200: "LetterPage"},
    ),
    Operation(
        "replayDeadLetters", "POST", "/deadletters:replay", Needs.REPLAY,
        "Run slots again that were given up", body="Replay",
        answers={200: "Replayed"}, is_change=True,
    ),
)  # fmt: skip

#: Headers that decide what a request means; a change that does not take one refuses it.
DECIDING: Final = ("If-Match", "If-None-Match", "Idempotency-Key", "Duepoint-Durability")
_CONDITIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "getMember": ("If-None-Match",),
    "putMember": ("If-Match", "If-None-Match"),
    "patchMember": ("If-Match",),
    "deleteMember": ("If-Match",),
}


def headers_of(operation: Operation) -> tuple[str, ...]:
    """Those of ``DECIDING`` that an operation takes."""
    taken = _CONDITIONS.get(operation.name, ())
    if operation.is_change:
        taken = (*taken, "Idempotency-Key")
    stores = operation.is_change or operation.is_bulk
    if stores and operation.needs not in (Needs.TRIGGER, Needs.REPLAY, Needs.OWN):
        taken = (*taken, "Duepoint-Durability")
    return taken


def body_types(operation: Operation) -> tuple[str, ...]:
    """Of which types a body may be; none where there is no body."""
    if operation.is_bulk:
        return (calls.NDJSON,)
    if not operation.body:
        return ()
    return (calls.MERGE_PATCH, calls.JSON) if operation.method == "PATCH" else (calls.JSON,)


def by_path(listed: Iterable[Operation]) -> dict[str, dict[str, Operation]]:
    """Operations by the template of their whole path, and then by method."""
    found: dict[str, dict[str, Operation]] = {}
    for operation in listed:
        found.setdefault(operation.base + operation.path, {})[operation.method] = operation
    return found


_BY_PATH: Final = by_path(OPERATIONS)

#: Names that objects can have.
NAMESPACE_PATTERN: Final = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
NAME_PATTERN: Final = r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"
_NAMESPACE = re.compile(NAMESPACE_PATTERN)
_NAME = re.compile(NAME_PATTERN)
_OF_A_MEMBER = {"next": "/schedules/{id}/next", "trigger": "/schedules/{id}/trigger"}


class ApiRoute(NamedTuple):
    """Where a path leads.

    Attributes:
        set_name: empty for an operation that is not about a set.
        id: of a member, or the name of a Schedule.
    """

    operation: Operation
    namespace: str
    set_name: str
    id: str


def route(method: str, path: str) -> ApiRoute:
    """The operation of a request; raises Problem NotFound, MethodNotAllowed."""
    parts = path.split("/")
    if len(parts) < 6 or parts[0] or not _is_place(*parts[1:6]):
        raise _nothing()
    namespace, name = parts[3], parts[5]
    below, id_ = _below(parts[6:])
    methods = _BY_PATH.get(BASE + below)
    if methods is None:
        raise _nothing()
    return ApiRoute(chosen(methods, method), namespace, name, id_)


@functools.lru_cache(maxsize=256)
def _is_place(version: str, namespaces: str, namespace: str, sets: str, name: str) -> bool:
    """Whether these segments are those of ``BASE`` with names that objects can have."""
    if (version, namespaces, sets) != ("v1", "namespaces", "schedulesets"):
        return False
    return is_namespace(namespace) and is_object_name(name)


def chosen(methods: Mapping[str, Operation], method: str) -> Operation:
    """The operation of a path by its method; raises Problem MethodNotAllowed."""
    operation = methods.get("GET" if method == "HEAD" else method)
    if operation is None:
        allowed = ", ".join(sorted({*methods, "HEAD"} if "GET" in methods else methods))
        message = f"the path takes {allowed} only"
        raise OperationProblem("MethodNotAllowed", message, headers=(("Allow", allowed),))
    return operation


def is_namespace(text: str) -> bool:
    """Whether a namespace can have this name."""
    return _NAMESPACE.fullmatch(text) is not None


def is_object_name(text: str) -> bool:
    """Whether a Schedule or a ScheduleSet can have this name."""
    return _NAME.fullmatch(text) is not None


def _below(parts: list[str]) -> tuple[str, str]:
    """The template below ``BASE``, and the id in it."""
    if not parts:
        return "", ""
    if len(parts) == 1:
        return f"/{parts[0]}", ""
    id_ = _id(parts[1]) if parts[0] == "schedules" else ""
    if not id_:
        raise _nothing()
    if len(parts) == 2:
        return "/schedules/{id}", id_
    if len(parts) == 3 and parts[2] in _OF_A_MEMBER:
        return _OF_A_MEMBER[parts[2]], id_
    raise _nothing()


def _id(segment: str) -> str:
    """The text of a segment; empty for what some proxy or client would read as another path."""
    if "%" not in segment:
        text = segment
    else:
        try:
            text = parse.unquote(segment, errors="strict")
        except UnicodeDecodeError:
            return ""
    return "" if text in (".", "..") or "/" in text or not text.isprintable() else text


def _nothing() -> OperationProblem:
    return OperationProblem("NotFound", "there is no such path; /openapi.json lists what there is")
