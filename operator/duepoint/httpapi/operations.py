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


#: Headers that decide what a request means; a change that does not take one refuses it.
DECIDING: Final = ("If-Match", "If-None-Match", "Idempotency-Key", "Duepoint-Durability")
_MATCH, _NONE_MATCH, _KEY, _SAFETY = DECIDING


class Operation(NamedTuple):
    """One operation.

    Attributes:
        name: its ``operationId``, and its label in metrics.
        path: below ``BASE``.
        parameters: of the query.
        limit: of a page, usually and at most, where ``limit`` is one of the parameters.
        body: name of the schema of the request's body, "" where it has none.
        answers: schema of the body of each success, by status; "" = it has none.
        headers: those of ``DECIDING`` that it takes.
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
    headers: tuple[str, ...] = ()
    limit: tuple[int, int] = (100, 1_000)
    is_bulk: bool = False
    rights: str = ""
    base: str = BASE

    @property
    def is_change(self) -> bool:
        """Whether a repeat with the same key gets the first answer."""
        return _KEY in self.headers

    @property
    def body_types(self) -> tuple[str, ...]:
        """Of which types a body may be; none where there is no body."""
        if self.is_bulk:
            return (calls.NDJSON,)
        if not self.body:
            return ()
        return (calls.MERGE_PATCH, calls.JSON) if self.method == "PATCH" else (calls.JSON,)

    def verbs(self, headers: Mapping[str, str]) -> tuple[str, ...]:
        """The verbs that a request with these headers needs."""
        if self.needs is not Needs.PUT:
            verbs: tuple[str, ...] = self.needs.value
            return verbs
        if "if-none-match" in headers:
            return ("create",)
        return ("update",) if "if-match" in headers else ("create", "update")

    def check_deciding(self, headers: Mapping[str, str]) -> None:
        """Raise Problem InvalidHeader: a condition or promise that is passed over is broken."""
        if self.method == "GET" or self.needs is Needs.OWN:
            return
        for name in DECIDING:
            if name not in self.headers and name.lower() in headers:
                taken = ", ".join(self.headers) or "none"
                message = f"this operation does not take it; it takes {taken}"
                raise OperationProblem("InvalidParameter", message, field=name)


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
        body="OneOff", answers={201: "Member"}, headers=(_KEY, _SAFETY),
    ),
    Operation(
        "getMember", "GET", "/schedules/{id}", Needs.GET,
        "One member", answers={200: "Member", 304: ""}, headers=(_NONE_MATCH,),
    ),
    Operation(
        "putMember", "PUT", "/schedules/{id}", Needs.PUT,
        "Create a member, or replace it whole", body="MemberFields",
        answers={200: "Member", 201: "Member"}, headers=DECIDING,
    ),
    Operation(
        "patchMember", "PATCH", "/schedules/{id}", Needs.PATCH,
        "Change fields of a member by a JSON merge patch (RFC 7396)", body="MemberPatch",
        answers={200: "Member"}, headers=(_MATCH, _KEY, _SAFETY),
    ),
    Operation(
        "deleteMember", "DELETE", "/schedules/{id}", Needs.DELETE,
        "Remove a member; what a worker has already claimed of it may still fire",
        answers={204: ""}, headers=(_MATCH, _KEY, _SAFETY),
    ),
    Operation(
        "nextTimes", "GET", "/schedules/{id}/next", Needs.GET,
        "The next times of a member", ("count",), answers={200: "Times"},
    ),
    Operation(
        "triggerMember", "POST", "/schedules/{id}/trigger", Needs.TRIGGER,
        "Run a member now, beside its schedule", body="Trigger",
        answers={202: "Triggered"}, headers=(_KEY,),
    ),
    Operation(
        "bulkUpsert", "POST", "/schedules:bulkUpsert", Needs.UPSERT,
        "Create or replace up to 100,000 members", body="MemberRow",
        answers={200: "RowAnswer"}, headers=(_SAFETY,), is_bulk=True,
    ),
    Operation(
        "bulkDelete", "POST", "/schedules:bulkDelete", Needs.DELETE,
        "Remove up to 100,000 members", body="RemovalRow",
        answers={200: "RowAnswer"}, headers=(_SAFETY,), is_bulk=True,
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
        ("limit", "cursor"), answers={200: "MemberPage"}, limit=(1_000, 5_000),
    ),
    Operation(
        "listDeadLetters", "GET", "/deadletters", Needs.LIST,
        "Slots that were given up, newest first", ("limit", "cursor"),
        answers={200: "LetterPage"}, limit=(100, 500),
    ),
    Operation(
        "replayDeadLetters", "POST", "/deadletters:replay", Needs.REPLAY,
        "Run slots again that were given up", body="Replay",
        answers={200: "Replayed"}, headers=(_KEY,),
    ),
)  # fmt: skip


_ROOT: Final = "/v1"
_OF_NAMESPACE: Final = "/v1/namespaces/{namespace}"
_OF_SCHEDULE: Final = "/v1/namespaces/{namespace}/schedules/{schedule}"

_ALL = "`list` on `{}` (group duepoint.dev) of the namespace, or of the cluster without one"
_LIST = _ALL.format("schedules")
_GET = "`get` on the Schedule"
_RUN = "`run` on the Schedule"

#: Those that the dashboard's pages call.
PAGES: Final = (
    Operation(
        "whoAmI", "GET", "/whoami", Needs.OWN,
        "Whose token it is, and which namespaces they may list", answers={200: "Whoami"},
        rights="a valid token", base=_ROOT,
    ),
    Operation(
        "listSchedules", "GET", "/schedules", Needs.OWN,
        "Schedules with their next and last slots, in the order of their names",
        ("namespace", "limit", "cursor"), answers={200: "SchedulePage"}, rights=_LIST, base=_ROOT,
        limit=(500, 500),
    ),
    Operation(
        "listSets", "GET", "/schedulesets", Needs.OWN,
        "ScheduleSets with their members, next slot and lag",
        ("namespace", "limit", "cursor"), answers={200: "SetPage"},
        rights=_ALL.format("schedulesets"), base=_ROOT, limit=(500, 500),
    ),
    Operation(
        "getSchedule", "GET", "", Needs.OWN,
        "A Schedule: its conditions, last slots and next times", answers={200: "ScheduleDetail"},
        rights=_GET, base=_OF_SCHEDULE,
    ),
    Operation(
        "triggerSchedule", "POST", "/trigger", Needs.OWN,
        "Run a Schedule once, now: creates a ScheduleRun", body="ScheduleTrigger",
        answers={201: "CreatedRun"},
        rights=f"`create` on `scheduleruns` (group duepoint.dev) of the namespace and {_RUN}",
        base=_OF_SCHEDULE,
    ),
    Operation(
        "suspendSchedule", "POST", "/suspend", Needs.OWN,
        "Hold a Schedule: none of its slots runs until it resumes", body="Suspension",
        answers={200: "Suspended"}, rights="`get` and `patch` on the Schedule", base=_OF_SCHEDULE,
    ),
    Operation(
        "resumeSchedule", "POST", "/resume", Needs.OWN,
        "Let a Schedule go on; slots of the suspension do not run",
        answers={200: "Suspended"}, rights="`patch` on the Schedule", base=_OF_SCHEDULE,
    ),
    Operation(
        "forecastLoad", "GET", "/forecast", Needs.OWN,
        "How many slots of Schedules each coming hour, and its worst minute, has",
        ("namespace", "days", "timeZone"), answers={200: "Forecast"}, rights=_LIST, base=_ROOT,
    ),
    Operation(
        "getQueue", "GET", "/queue", Needs.OWN,
        "How full the queue is, how late, and who works on it",
        ("namespace",), answers={200: "QueueView"}, rights=_LIST, base=_ROOT,
    ),
    Operation(
        "listAllLetters", "GET", "/deadletters", Needs.OWN,
        "The newest slots of Schedules of all namespaces that were given up; `next` is empty",
        ("limit",), answers={200: "LetterPage"},
        rights="`list` on `schedules` (group duepoint.dev) of the cluster", base=_ROOT,
        limit=(200, 200),
    ),
    Operation(
        "listScheduleLetters", "GET", "/deadletters", Needs.OWN,
        "Slots of Schedules that were given up, newest first", ("limit", "cursor"),
        answers={200: "LetterPage"},
        rights="`list` on `schedules` (group duepoint.dev) of the namespace", base=_OF_NAMESPACE,
        limit=(200, 200),
    ),
    Operation(
        "replayScheduleLetters", "POST", "/deadletters:replay", Needs.OWN,
        "Run slots of Schedules again that were given up", body="Replay",
        answers={200: "ReplayedLetters"},
        rights=f"`list` on `schedules` of the namespace, and {_RUN} of each letter",
        base=_OF_NAMESPACE,
    ),
)  # fmt: skip


def by_path(listed: Iterable[Operation]) -> dict[str, dict[str, Operation]]:
    """Operations by the template of their whole path, and then by method."""
    found: dict[str, dict[str, Operation]] = {}
    for operation in listed:
        found.setdefault(operation.base + operation.path, {})[operation.method] = operation
    return found


#: Names that objects can have.
NAMESPACE_PATTERN: Final = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
NAME_PATTERN: Final = r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"
_NAMESPACE = re.compile(NAMESPACE_PATTERN)
_NAME = re.compile(NAME_PATTERN)


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


class _Place:
    """What may follow in a path: segments by their text, or any text under a name."""

    __slots__ = ("any", "below", "methods", "name")

    def __init__(self) -> None:
        self.below: dict[str, _Place] = {}
        self.name = ""
        self.any: _Place | None = None
        self.methods: Mapping[str, Operation] = {}


class Routes:
    """Finds the operation of a request by the segments of its path."""

    def __init__(self, listed: Iterable[Operation]) -> None:
        self._root = _Place()
        for path, methods in by_path(listed).items():
            place = self._root
            for segment in path.split("/"):
                if segment.startswith("{"):
                    place.name = segment.strip("{}")
                    place.any = place.any or _Place()
                    place = place.any
                else:
                    place = place.below.setdefault(segment, _Place())
            place.methods = methods

    def find(self, method: str, path: str) -> ApiRoute:
        """Where a request leads; raises Problem NotFound, MethodNotAllowed."""
        place = self._root
        found: dict[str, str] = {}
        for segment in path.split("/"):
            below = place.below.get(segment)
            if below is None:
                below, text = place.any, _text(place.name, segment)
                if below is None or not text:
                    raise _nothing()
                found[place.name] = text
            place = below
        if not place.methods:
            raise _nothing()
        id_ = found.get("id") or found.get("schedule", "")
        operation = _chosen(place.methods, method)
        return ApiRoute(operation, found.get("namespace", ""), found.get("set", ""), id_)


def _text(name: str, segment: str) -> str:
    """What a segment says under this name; empty where nothing can be called so."""
    if name == "id":
        return _id(segment)
    is_one = is_namespace if name == "namespace" else is_object_name
    return segment if is_one(segment) else ""


def _chosen(methods: Mapping[str, Operation], method: str) -> Operation:
    """The operation of a path by its method; raises Problem MethodNotAllowed."""
    operation = methods.get("GET" if method == "HEAD" else method)
    if operation is None:
        allowed = ", ".join(sorted({*methods, "HEAD"} if "GET" in methods else methods))
        message = f"the path takes {allowed} only"
        raise OperationProblem("MethodNotAllowed", message, headers=(("Allow", allowed),))
    return operation


@functools.lru_cache(maxsize=256)
def is_namespace(text: str) -> bool:
    """Whether a namespace can have this name."""
    return _NAMESPACE.fullmatch(text) is not None


@functools.lru_cache(maxsize=256)
def is_object_name(text: str) -> bool:
    """Whether a Schedule or a ScheduleSet can have this name."""
    return _NAME.fullmatch(text) is not None


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
