"""The OpenAPI 3.1 document of the API, generated from ``operations`` and the model.

The API serves it at ``/openapi.json``, and ``docs/reference/http-api.md`` is generated from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from duepoint import __version__
from duepoint.delayqueue import apirequests
from duepoint.httpapi import bulk, calls, members, operations, problems
from duepoint.httpapi.calls import Operation
from duepoint.httpapi.dashboard import objects, queueviews
from duepoint.model import answers, member, schemas
from duepoint.model.answers import Problem
from duepoint.model.schemas import TEXT, TIME, Json, about, object_of
from duepoint.model.vocabulary import Fields
from duepoint.schedules.sets import members as memberjson

_NAMESPACE: Final[Json] = {"type": "string", "pattern": calls.NAMESPACE_PATTERN}
_NAME: Final[Json] = {"type": "string", "pattern": calls.NAME_PATTERN}


def _number(usual: int, most: int) -> Json:
    return {"type": "integer", "minimum": 1, "maximum": most, "default": usual}


_ID: Final[Json] = schemas.plain_of(member.MemberRowFields)["properties"]["id"]


def _components(listed: Iterable[Operation]) -> Json:
    """Return the schemas of all bodies, by name."""
    bodies = [each for one in listed for each in (one.body, *one.answers.values(), Problem)]
    kinds = [each[0] if isinstance(each, list) else each for each in bodies]
    found = {each.__name__: schemas.plain_of(each) for each in kinds if isinstance(each, type)}
    found["Problem"]["properties"]["code"]["enum"] = list(problems.KINDS)
    return found


#: The names in paths.
_NAMES: Final = {"namespace": _NAMESPACE, "set": _NAME, "schedule": _NAME, "id": _ID}
_PARAMETERS: Final[dict[str, tuple[Json, str]]] = {
    "cursor": ({"type": "string", "maxLength": 512}, "`next` of the page before"),
    "prefix": (_ID, "only ids that begin so"),
    "dueFrom": (TIME, "only members due from here on, oldest first"),
    "dueUntil": (TIME, "only members due before this instant"),
    "namespace": (_NAMESPACE, "of one namespace; unset = of all"),
    "days": (_number(queueviews.USUAL_DAYS, queueviews.MOST_DAYS), "how many to look ahead"),
    "timeZone": ({"type": "string", "maxLength": 64}, "of the hours; default Etc/UTC"),
    "count": (_number(members.USUAL_TIMES, members.MOST_TIMES), "how many"),
    # headers
    "If-Match": (TEXT, "only where the member has this tag; * = any"),
    "If-None-Match": (TEXT, "`*`: only where there is no such member"),
    "Idempotency-Key": (
        TEXT,
        (
            "1 to 255 printable characters: the request is carried out once, and a repeat within "
            f"{apirequests.KEPT_SECONDS // 3_600} hours gets the first answer"
        ),
    ),
    "Duepoint-Durability": (
        TEXT,
        (
            "`replicas=1`, `aof`, or both with a comma, and perhaps `timeout=500` (ms): answer "
            "when the change is as safe as that"
        ),
    ),
}


#: Bodies that may be left out.
_OPTIONAL: Final = (members.Trigger, objects.Suspension)


def document(*, dashboard: bool = True) -> Json:
    """Return the whole document; ``dashboard``: include the dashboard's operations."""
    listed = (*operations.OPERATIONS, *(operations.PAGES if dashboard else ()))
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
            "schemas": _components(listed),
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
        "parameters": _parameters(operation),
        "responses": _responses(operation),
    }
    if operation.body:
        described["requestBody"] = {
            "required": operation.body not in _OPTIONAL,
            "content": {kind: _content(operation.body) for kind in operation.body_types},
        }
        if operation.is_bulk:
            described["requestBody"]["description"] = (
                f"Newline-delimited JSON, at most {bulk.MOST_ROWS} rows of at most "
                f"{memberjson.MOST_ROW_BYTES} bytes. Rows are answered in their order while more "
                "are being sent. Rows above the set's rate wait."
            )
    return described


def _rights(operation: Operation) -> str:
    if not operation.is_of_set:
        return f"Needs {operation.rights}."
    if operation.method == "PUT":
        verbs = "`create` with If-None-Match, `update` with If-Match, and both otherwise"
    else:
        verbs = " and ".join(f"`{verb}`" for verb in operation.needs)
    return f"Needs {verbs} on `schedulesets/schedules` (group duepoint.dev) of the set."


def _content(body: type[Fields] | list[type[Fields]]) -> Json:
    if isinstance(body, list):
        items = {"type": "array", "items": _content(body[0])["schema"]}
        next_ = about(TEXT, "the cursor of the next page; empty at the end")
        page = object_of({"items": items, "next": next_}, "items", "next")
        return {"schema": about(page, "It may be short, even empty, while there is more to come.")}
    return {"schema": {"$ref": f"#/components/schemas/{body.__name__}"}}


def _parameters(operation: Operation) -> list[Json]:
    """Return the names in the path, the parameters of the query, and the headers."""
    path = operation.base + operation.path
    found: list[Json] = [
        {"name": name, "in": "path", "required": True, "schema": schema}
        for name, schema in _NAMES.items()
        if f"{{{name}}}" in path
    ]
    known = _PARAMETERS | {"limit": (_number(*operation.limit), "most items of the page")}
    for place, names in (("query", operation.parameters), ("header", operation.headers)):
        for name in names:
            schema, meaning = known[name]
            found.append({"name": name, "in": place, "schema": schema, "description": meaning})
    return found


def _responses(operation: Operation) -> Json:
    found: Json = {}
    for status, body in operation.answers.items():
        answer: Json = {"description": _SUCCESS[status]}
        if body:
            kind = calls.NDJSON if operation.is_bulk else calls.JSON
            answer["content"] = {kind: _content(body)}
        headers = {}
        if body is answers.MemberView:
            headers["ETag"] = {"schema": TEXT}
        if operation.name == "createOneOff":
            headers["Location"] = {"schema": TEXT}
        if headers:
            answer["headers"] = headers
        found[str(status)] = answer
    found["default"] = {
        "description": "A problem.",
        "content": {problems.CONTENT_TYPE: _content(Problem)},
    }
    return found


_SUCCESS: Final = {
    200: "Carried out.",
    201: "A new member.",
    202: "The run is due.",
    204: "Removed.",
}
