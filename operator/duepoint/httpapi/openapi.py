"""The OpenAPI 3.1 document of the API, made from ``operations`` and the tables of its parts.

It is served at ``/openapi.json``, and ``docs/reference/http-api.md`` is made from it.
"""

from __future__ import annotations

from typing import Final

from duepoint import __version__
from duepoint.delayqueue import apirequests
from duepoint.httpapi import bulk, calls, letters, listing, operations, problems, shapes, singles
from duepoint.httpapi.dashboard import forecasts, reads, routes
from duepoint.httpapi.dashboard import letters as dashboardletters
from duepoint.httpapi.dashboard import schemas as dashboardschemas
from duepoint.httpapi.operations import Needs, Operation
from duepoint.httpapi.shapes import COUNT, TEXT, TIME, TIME_OR_NULL, Json, about, object_of, page_of
from duepoint.model import member as memberfields
from duepoint.schedules.sets import members as memberjson
from duepoint.schedules.sets import rowturns

_ID: Final[Json] = {"type": "string", "pattern": memberjson.ID_PATTERN}
_NAMESPACE: Final[Json] = {"type": "string", "pattern": operations.NAMESPACE_PATTERN}
_NAME: Final[Json] = {"type": "string", "pattern": operations.NAME_PATTERN}
_TAG: Final[Json] = {"type": "string", "pattern": memberjson.TAG_PATTERN}


def _nullable(schema: Json, description: str) -> Json:
    """null is absent, as in the objects of Kubernetes."""
    kind = {**schema, "type": [schema["type"], "null"]} if "type" in schema else schema
    if "enum" in kind:
        kind["enum"] = [*kind["enum"], None]
    return about(kind, description)


def _number(usual: int, most: int) -> Json:
    return {"type": "integer", "minimum": 1, "maximum": most, "default": usual}


def _choices(*values: str) -> Json:
    return {"type": "string", "enum": list(values)}


_OPTIONS: Final[Json] = shapes.of(memberfields.OptionFields)["properties"]
_SCHEDULE: Final = _nullable(
    {"type": "string", "maxLength": memberjson.LONGEST_EXPRESSION},
    "an expression, as in spec.schedule of a Schedule",
)
_AT: Final = _nullable(TIME, "once, at this instant")
_DELAY: Final = _nullable(TEXT, "once, so long after the request, such as 90s or 1h30m")

_ANSWERED: Final[Json] = {
    "etag": about(_TAG, "the version: another one after each change"),
    "uid": about(TEXT, "of this life of the id"),
    "state": about(_choices("Active", "Suspended", "Completed"), "Completed: no slot is left"),
    "createdTime": TIME,
    "nextDueTime": about(TIME_OR_NULL, "null: there is none, or a worker has claimed it"),
    "claimed": about({"type": "boolean"}, "a worker has it now"),
}
_IGNORED: Final = {
    name: {"readOnly": True, "description": "of answers; ignored here"}
    for name in memberjson.READ_ONLY
}
_TIMES: Final[Json] = {"schedule": _SCHEDULE, "at": _AT, "delay": _DELAY}
_OWN: Final[Json] = {"id": _ID, "schedule": _SCHEDULE, "at": _AT, **_OPTIONS}

SCHEMAS: Final[Json] = {
    "Member": object_of(
        {**_OWN, **_ANSWERED},
        "id", "etag", "uid", "state", "createdTime", "nextDueTime", "claimed",
    ),
    "MemberFields": about(
        object_of(
            {"id": _nullable(_ID, "that of the URL"), **_TIMES, **_OPTIONS, **_IGNORED},
            closed=True,
        ),
        "Exactly one of schedule, at and delay.",
    ),
    "OneOff": about(
        object_of({"at": _AT, "delay": _DELAY, **_OPTIONS, **_IGNORED}, closed=True),
        "Exactly one of at and delay.",
    ),
    "MemberPatch": about(
        {"type": "object"},
        "A merge patch of MemberFields: null removes a field, so that the set's default counts.",
    ),
    "MemberRow": about(
        object_of(
            {
                "id": _ID, "schedule": _SCHEDULE, "at": _AT, **_OPTIONS, **_IGNORED,
                "ifMatch": _nullable(_TAG, "only where the member has this etag"),
                "ifNoneMatch": _nullable(_choices("*"), "only where there is no such member"),
            },
            "id", closed=True,
        ),
        "Exactly one of schedule and at; a delay would count from each attempt anew.",
    ),
    "RemovalRow": object_of(
        {"id": _ID, "ifMatch": _nullable(_TAG, "only where the member has this etag")},
        "id", closed=True,
    ),
    "WrittenMember": about(
        object_of(
            {
                **_OWN,
                "outcome": _choices("Created", "Replaced", "Unchanged"),
                **{name: _ANSWERED[name] for name in ("etag", "state", "nextDueTime")},
            },
            "id", "outcome", "etag", "state", "nextDueTime",
        ),
        "The member as it was written.",
    ),
    "MemberPage": about(
        page_of("Member"),
        "A page may be short, even empty, while there is more to come.",
    ),
    "RowAnswer": about(
        object_of(
            {
                "id": about({"type": "string"}, "of the row, where it has one that can be"),
                "outcome": _choices("Created", "Replaced", "Unchanged", "Removed", "Absent"),
                "etag": _TAG,
                "dueTime": TIME,
                "line": about({"type": "integer", "minimum": 1}, "of a row that was refused"),
                "error": object_of(
                    {"status": COUNT, "code": TEXT, "detail": TEXT, "field": TEXT},
                    "status", "code", "detail",
                ),
                "fatal": about({"type": "boolean"}, "nothing behind this line was read"),
            }
        ),
        "One line for each row, in the order of the rows.",
    ),
    "SetSummary": object_of(
        {
            "namespace": TEXT,
            "name": TEXT,
            "uid": TEXT,
            "state": _choices("Ready", "Suspended", "Stalled", "Deleting"),
            "managedByRows": about({"type": "boolean"}, "members cannot be changed here"),
            "members": COUNT,
            "armed": about(COUNT, "points that wait, retries among them"),
            "inFlight": about(COUNT, "points that workers hold"),
            "nextDueTime": TIME_OR_NULL,
            "lagSeconds": about({"type": "number"}, "how long the oldest has been overdue"),
            "limits": object_of(
                {"members": COUNT, "payloadBytes": COUNT, "changesPerSecond": COUNT}
            ),
            "durability": object_of(
                {
                    "persistence": _choices("aof", "rdb", "aof+rdb", "none"),
                    "replicas": COUNT,
                    "lossWindow": about(TEXT, "what can be lost when a server is lost"),
                }
            ),
        },
        "namespace", "name", "uid", "state", "members",
    ),
    "Times": object_of({"items": {"type": "array", "items": TIME}}, "items"),
    "Trigger": object_of({"payload": {"description": "in place of the member's"}}, closed=True),
    "Triggered": object_of({"run": TEXT, "slotTime": TIME}, "run", "slotTime"),
    "OpenSlots": object_of(
        {
            "items": {
                "type": "array",
                "items": object_of(
                    {
                        "id": about(_ID, "of the member"),
                        "slotTime": TIME_OR_NULL,
                        "attempt": about(COUNT, "how many were made"),
                        "sinceTime": TIME_OR_NULL,
                        "dueTime": about(TIME_OR_NULL, "of the next attempt"),
                        "claimed": {"type": "boolean"},
                        "lastError": TEXT,
                    },
                    "id",
                ),
            }
        },
        "items",
    ),
    "LetterPage": object_of(
        {
            "items": {
                "type": "array",
                "items": object_of(
                    {
                        "id": about(TEXT, "of the letter, for a replay"),
                        "namespace": about(TEXT, "of a Schedule; members have that of their set"),
                        "schedule": about(TEXT, "id of the member, or name of the Schedule"),
                        "slotTime": TIME_OR_NULL,
                        "deadTime": TIME_OR_NULL,
                        "reason": TEXT,
                        "message": TEXT,
                        "attempts": COUNT,
                    },
                    "id",
                ),
            },
            "next": TEXT,
        },
        "items", "next",
    ),
    "Replay": object_of(
        {
            "ids": {
                "type": "array", "items": TEXT,
                "minItems": 1, "maxItems": letters.MOST_REPLAYED,
            }
        },
        "ids", closed=True,
    ),
    "Replayed": object_of(
        {"replayed": COUNT, "missing": {"type": "array", "items": TEXT}}, "replayed", "missing"
    ),
    "Problem": object_of(
        {
            "title": TEXT,
            "status": COUNT,
            "code": {"type": "string", "enum": list(problems.KINDS)},
            "detail": TEXT,
            "field": about(TEXT, "of the body, the query or the headers"),
            "requestId": about(TEXT, "names the request in the log"),
        },
        "title", "status", "code", "detail",
    ),
}  # fmt: skip

_LIMITS: Final = {
    "exportMembers": (listing.USUALLY_EXPORTED, listing.MOST_EXPORTED),
    "listDeadLetters": (letters.USUALLY_LISTED, letters.MOST_LISTED),
    "listScheduleLetters": (dashboardletters.MOST_LISTED, dashboardletters.MOST_LISTED),
    "listSchedules": (reads.MOST_LISTED, reads.MOST_LISTED),
    "listSets": (reads.MOST_LISTED, reads.MOST_LISTED),
}
_PARAMETERS: Final[dict[str, tuple[Json, str]]] = {
    "cursor": ({"type": "string", "maxLength": 512}, "`next` of the page before"),
    "prefix": (_ID, "only ids that begin so"),
    "dueFrom": (TIME, "only members due from here on, oldest first"),
    "dueUntil": (TIME, "only members due before this instant"),
    "namespace": (_NAMESPACE, "of one namespace; unset = of all"),
    "days": (_number(forecasts.USUAL_DAYS, forecasts.MOST_DAYS), "how many to look ahead"),
    "timeZone": ({"type": "string", "maxLength": 64}, "of the hours; default Etc/UTC"),
    "count": (_number(singles.USUAL_TIMES, singles.MOST_TIMES), "how many"),
}


#: Bodies that may be left out.
_OPTIONAL: Final = frozenset({"Trigger", "ScheduleTrigger", "Suspension"})


def document(*, dashboard: bool = True) -> Json:
    """The whole document; ``dashboard``: with its operations, which are there only with it."""
    listed = (*operations.OPERATIONS, *(routes.OPERATIONS if dashboard else ()))
    paths = {
        path: {method.lower(): _operation(operation) for method, operation in methods.items()}
        for path, methods in operations.by_path(listed).items()
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Duepoint HTTP API",
            "version": __version__,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            "description": _DESCRIPTION,
        },
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token of the Kubernetes cluster, such as a ServiceAccount's.",
                }
            },
            "schemas": {**SCHEMAS, **dashboardschemas.SCHEMAS} if dashboard else SCHEMAS,
        },
    }


_DESCRIPTION: Final = (
    "Members of ScheduleSets: read and changed by programs, in Redis only. Every refusal is a "
    "problem (RFC 9457) with a stable code."
)


def _operation(operation: Operation) -> Json:
    described: Json = {
        "operationId": operation.name,
        "summary": operation.summary,
        "description": _rights(operation),
        "parameters": [*_path_parameters(operation), *_query(operation), *_headers(operation)],
        "responses": _responses(operation),
    }
    if operation.body:
        described["requestBody"] = {
            "required": operation.body not in _OPTIONAL,
            "content": {
                kind: _content(operation.body) for kind in operations.body_types(operation)
            },
        }
        if operation.is_bulk:
            described["requestBody"]["description"] = (
                f"Newline-delimited JSON, at most {bulk.MOST_ROWS} rows of at most "
                f"{rowturns.MOST_ROW_BYTES} bytes. Rows are answered in their order while more are "
                "being sent. Rows above the set's rate wait."
            )
    return described


def _rights(operation: Operation) -> str:
    needs = operation.needs
    if needs is Needs.OWN:
        return f"Needs {operation.rights}."
    if needs is Needs.PUT:
        verbs = "`create` with If-None-Match, `update` with If-Match, and both otherwise"
    else:
        verbs = " and ".join(f"`{verb}`" for verb in needs.value)
    return f"Needs {verbs} on `schedulesets/schedules` (group duepoint.dev) of the set."


def _content(schema: str) -> Json:
    return {"schema": {"$ref": f"#/components/schemas/{schema}"}}


def _path_parameters(operation: Operation) -> list[Json]:
    known = {"namespace": _NAMESPACE, "set": _NAME, "schedule": _NAME, "id": _ID}
    path = operation.base + operation.path
    texts = {name: schema for name, schema in known.items() if f"{{{name}}}" in path}
    return [
        {"name": name, "in": "path", "required": True, "schema": schema}
        for name, schema in texts.items()
    ]


def _query(operation: Operation) -> list[Json]:
    found = []
    for name in operation.parameters:
        if name == "limit":
            usual, most = _LIMITS.get(operation.name, (listing.USUALLY_LISTED, listing.MOST_LISTED))
            schema = _number(usual, most)
            description = "most items of the page"
        else:
            schema, description = _PARAMETERS[name]
        found.append({"name": name, "in": "query", "schema": schema, "description": description})
    return found


def _headers(operation: Operation) -> list[Json]:
    meanings = {
        "If-Match": "only where the member has this tag, or one of these; * = any",
        "If-None-Match": (
            "answer 304 where the member still has this tag"
            if operation.method == "GET"
            else "`*`: only where there is no such member"
        ),
        "Idempotency-Key": (
            "1 to 255 printable characters: the request is carried out once, and a repeat within "
            f"{apirequests.KEPT_SECONDS // 3_600} hours gets the first answer"
        ),
        "Duepoint-Durability": (
            "`replicas=1`, `aof`, or both with a comma, and perhaps `timeout=500` (ms): answer "
            "when the change is as safe as that"
        ),
    }
    return [
        {"name": name, "in": "header", "schema": TEXT, "description": meanings[name]}
        for name in operations.headers_of(operation)
    ]


def _responses(operation: Operation) -> Json:
    found: Json = {}
    for status, schema in operation.answers.items():
        answer: Json = {"description": _SUCCESS[status]}
        if schema:
            kind = calls.NDJSON if operation.is_bulk else calls.JSON
            answer["content"] = {kind: _content(schema)}
        headers = {}
        if schema in ("Member", "WrittenMember") or status == 304:
            headers["ETag"] = {"schema": TEXT}
        if operation.name == "createOneOff":
            headers["Location"] = {"schema": TEXT}
        if headers:
            answer["headers"] = headers
        found[str(status)] = answer
    found["default"] = {
        "description": "A problem.",
        "content": {problems.CONTENT_TYPE: _content("Problem")},
    }
    return found


_SUCCESS: Final = {
    200: "Carried out.",
    201: "A new member.",
    202: "The run is due.",
    204: "Removed.",
    304: "Unchanged.",
}
