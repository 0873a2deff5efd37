"""The table of all API operations: paths, required rights, parameters and bodies.

Routing, authorisation, parameter checks and the OpenAPI document all follow from this table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final
from urllib import parse

from duepoint.httpapi import bulk, calls, listing, members
from duepoint.httpapi.calls import DECIDING, Operation
from duepoint.httpapi.dashboard import objects, queueviews, rows
from duepoint.httpapi.problems import OperationProblem
from duepoint.model.answers import (
    LetterView,
    MemberView,
    Replayed,
    RowView,
    SetView,
    Times,
    Triggered,
)
from duepoint.model.member import WrittenFields

_MATCH, _, _KEY, _SAFETY = DECIDING

OPERATIONS: Final = (
    Operation(
        "getSet", "GET", "", listing.summary, ("get",),
        "The set: its state, limits and current counts", answers={200: SetView},
    ),
    Operation(
        "listMembers", "GET", "/schedules", listing.members, ("list",),
        "Members, in the order of the hashes of their ids, or by due time; those that do not "
        "change meanwhile are listed exactly once",
        ("limit", "cursor", "prefix", "dueFrom", "dueUntil"), answers={200: [MemberView]},
        limit=(100, 5_000),
    ),
    Operation(
        "createOneOff", "POST", "/schedules", members.create, ("create",),
        "A new member that fires once, under an id that the API chooses (a ULID)",
        body=WrittenFields, answers={201: MemberView}, headers=(_KEY, _SAFETY),
    ),
    Operation(
        "getMember", "GET", "/schedules/{id}", members.get, ("get",),
        "One member", answers={200: MemberView},
    ),
    Operation(
        "putMember", "PUT", "/schedules/{id}", members.put, ("create", "update"),
        "Create a member, or replace it whole", body=WrittenFields,
        answers={200: MemberView, 201: MemberView}, headers=DECIDING,
    ),
    Operation(
        "patchMember", "PATCH", "/schedules/{id}", members.patch, ("patch",),
        "Change fields of a member by a JSON merge patch (RFC 7396)", body=WrittenFields,
        answers={200: MemberView}, headers=(_MATCH, _KEY, _SAFETY),
    ),
    Operation(
        "deleteMember", "DELETE", "/schedules/{id}", members.delete, ("delete",),
        "Remove a member; a slot that a worker has already claimed may still fire",
        answers={204: None}, headers=(_MATCH, _KEY, _SAFETY),
    ),
    Operation(
        "nextTimes", "GET", "/schedules/{id}/next", members.next_times, ("get",),
        "The next times of a member", ("count",), answers={200: Times},
    ),
    Operation(
        "triggerMember", "POST", "/schedules/{id}/trigger", members.trigger, ("trigger",),
        "Run a member now, beside its schedule", body=members.Trigger,
        answers={202: Triggered}, headers=(_KEY,),
    ),
    Operation(
        "bulkUpsert", "POST", "/schedules:bulkUpsert", bulk.upsert, ("create", "update"),
        "Create or replace up to 100,000 members", body=WrittenFields,
        answers={200: RowView}, headers=(_SAFETY,), is_bulk=True,
    ),
    Operation(
        "bulkDelete", "POST", "/schedules:bulkDelete", bulk.delete, ("delete",),
        "Remove up to 100,000 members", body=bulk.RemovalRow,
        answers={200: RowView}, headers=(_SAFETY,), is_bulk=True,
    ),
    Operation(
        "listDeadLetters", "GET", "/deadletters", listing.letters, ("list",),
        "Slots that were given up, newest first", ("limit", "cursor"),
        answers={200: [LetterView]}, limit=(100, 500),
    ),
    Operation(
        "replayDeadLetters", "POST", "/deadletters:replay", listing.replay, ("replay",),
        "Replay slots that were given up", body=listing.Replay,
        answers={200: Replayed}, headers=(_KEY,),
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
        "whoAmI", "GET", "/whoami", objects.whoami, (),
        "The token's owner, and the namespaces that they may list", answers={200: objects.Whoami},
        rights="a valid token", base=_ROOT,
    ),
    Operation(
        "listSchedules", "GET", "/schedules", objects.list_schedules, (),
        "Schedules with their next and last slots, in the order of their names",
        ("namespace", "limit", "cursor"), answers={200: [rows.ScheduleRow]}, rights=_LIST,
        base=_ROOT, limit=(500, 500),
    ),
    Operation(
        "listSets", "GET", "/schedulesets", objects.list_sets, (),
        "ScheduleSets with their members, next slot and lag",
        ("namespace", "limit", "cursor"), answers={200: [rows.SetRow]},
        rights=_ALL.format("schedulesets"), base=_ROOT, limit=(500, 500),
    ),
    Operation(
        "getSchedule", "GET", "", objects.get_schedule, (),
        "A Schedule: its conditions, last slots and next times", answers={200: rows.ScheduleDetail},
        rights=_GET, base=_OF_SCHEDULE,
    ),
    Operation(
        "triggerSchedule", "POST", "/trigger", objects.trigger, (),
        "Run a Schedule once, now: creates a ScheduleRun", body=members.Trigger,
        answers={201: objects.CreatedRun},
        rights=f"`create` on `scheduleruns` (group duepoint.dev) of the namespace and {_RUN}",
        base=_OF_SCHEDULE,
    ),
    Operation(
        "suspendSchedule", "POST", "/suspend", objects.suspend, (),
        "Suspend a Schedule: none of its slots runs until it resumes", body=objects.Suspension,
        answers={200: objects.Suspended}, rights="`get` and `patch` on the Schedule",
        base=_OF_SCHEDULE,
    ),
    Operation(
        "resumeSchedule", "POST", "/resume", objects.resume, (),
        "Resume a Schedule; slots of the suspension do not run",
        answers={200: objects.Suspended}, rights="`patch` on the Schedule", base=_OF_SCHEDULE,
    ),
    Operation(
        "forecastLoad", "GET", "/forecast", queueviews.forecast, (),
        "The number of slots of Schedules in each coming hour, and in its worst minute",
        ("namespace", "days", "timeZone"), answers={200: queueviews.Forecast}, rights=_LIST,
        base=_ROOT,
    ),
    Operation(
        "getQueue", "GET", "/queue", queueviews.queue, (),
        "The queue: its points, its lag and its workers",
        ("namespace",), answers={200: queueviews.QueueView}, rights=_LIST, base=_ROOT,
    ),
    Operation(
        "listScheduleLetters", "GET", "/deadletters", queueviews.letters, (),
        "Slots of Schedules that were given up, newest first; of all namespaces the newest, in one "
        "page", ("namespace", "limit", "cursor"), answers={200: [LetterView]}, rights=_LIST,
        base=_ROOT, limit=(200, 200),
    ),
    Operation(
        "replayScheduleLetters", "POST", "/deadletters:replay", queueviews.replay, (),
        "Replay slots of Schedules that were given up", body=listing.Replay,
        answers={200: Replayed},
        rights=f"`list` on `schedules` of the namespace, and {_RUN} of each letter",
        base=_OF_NAMESPACE,
    ),
)  # fmt: skip


def by_path(listed: Iterable[Operation]) -> dict[str, dict[str, Operation]]:
    """Return the operations by the template of their whole path, then by method."""
    found: dict[str, dict[str, Operation]] = {}
    for operation in listed:
        found.setdefault(operation.base + operation.path, {})[operation.method] = operation
    return found


class Routes:
    """Finds the operation of a request by the segments of its path.

    Every second segment from the third place on is a name. The other segments, and how many
    there are, identify the path.
    """

    def __init__(self, listed: Iterable[Operation]) -> None:
        self._paths: dict[tuple[object, ...], tuple[list[str], Mapping[str, Operation]]] = {}
        for path, methods in by_path(listed).items():
            segments = path.split("/")
            names = [segment.strip("{}") for segment in segments[3::2]]
            self._paths[(len(segments), *segments[::2])] = names, methods

    def find(self, method: str, path: str) -> tuple[Operation, dict[str, str]]:
        """Return the operation of a request and the names in its path, by their templates.

        Raises Problem NotFound, MethodNotAllowed.
        """
        segments = path.split("/")
        names, methods = self._paths.get((len(segments), *segments[::2]), ([], {}))
        found = dict(zip(names, map(_text, names, segments[3::2]), strict=False))
        if segments[1:2] != ["v1"] or not methods or "" in found.values():
            message = "the path is unknown; /openapi.json lists all paths"
            raise OperationProblem("NotFound", message)
        operation = methods.get("GET" if method == "HEAD" else method)
        if operation is None:
            allowed = ", ".join(sorted({*methods, "HEAD"} if "GET" in methods else methods))
            message = f"the path allows only {allowed}"
            raise OperationProblem("MethodNotAllowed", message, headers=(("Allow", allowed),))
        return operation, found


def _text(name: str, segment: str) -> str:
    """Return the name in a segment; empty if nothing can have this name.

    Nor may a proxy or client read an id as another path.
    """
    if name == "namespace":
        return segment if calls.is_namespace(segment) else ""
    if name != "id":
        return segment if calls.is_object_name(segment) else ""
    try:
        text = parse.unquote(segment, errors="strict")
    except UnicodeDecodeError:
        return ""
    return "" if text in (".", "..") or "/" in text or not text.isprintable() else text
