"""The tables of docs/reference/http-api.md, made from the OpenAPI document of the API.

Everything above its heading "Operations" is written by hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from duepoint.httpapi import openapi, problems
from tools import fieldsdoc

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "http-api.md"
_HEADING = "## Operations\n"
#: Schema of a member -> the request or answer that uses it.
_MEMBERS = {"WrittenFields": "request", "MemberView": "answer"}


def page() -> str:
    """Return the page with the tables of the current API."""
    return PAGE.read_text().partition(_HEADING)[0] + "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    document = openapi.document()
    yield f"{_HEADING}\nHeaders, parameters, bodies and answers of each are in `/openapi.json`.\n"
    yield "| operation | what it does | answers |\n|---|---|---|"
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            answers = ", ".join(each for each in operation["responses"] if each != "default")
            about = f"{operation['summary']}. {operation['description']}"
            yield f"| `{method.upper()} {path}` | {about} | {answers} |"
    schemas = document["components"]["schemas"]
    yield "\n## Fields of a member\n\n| field | in | type | meaning |\n|---|---|---|---|"
    where: dict[str, list[str]] = {}
    fields: dict[str, dict[str, Any]] = {}
    for schema, place in _MEMBERS.items():
        for name, field in _fields(schemas[schema]):
            where.setdefault(name, []).append(place)
            fields.setdefault(name, field)
    for name, field in fields.items():
        places = "all" if len(where[name]) == len(_MEMBERS) else ", ".join(where[name])
        about = f"{fieldsdoc.type_of(field)} | {field.get('description', '')}"
        yield f"| `{name}` | {places} | {about} |"
    for heading, schema in (("a set", "SetView"), ("an answer to a row", "RowView")):
        yield f"\n## Fields of {heading}\n\n| field | type | meaning |\n|---|---|---|"
        for name, field in _fields(schemas[schema]):
            yield f"| `{name}` | {fieldsdoc.type_of(field)} | {field.get('description', '')} |"
    yield (
        "\n## Problems\n\nEvery refusal is `application/problem+json` (RFC 9457) with `title`,"
        " `status`, `code`, `detail`, perhaps\n`field`, and `requestId`, which the log names too."
        " Branch on `code`; texts may change.\n\n| code | status | title |\n|---|---|---|"
    )
    yield from (
        f"| `{code}` | {kind.status} | {kind.title} |" for code, kind in problems.KINDS.items()
    )


def _fields(schema: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    for name, field in schema["properties"].items():
        if field.get("readOnly"):
            continue
        yield f"{prefix}{name}", field
        inner = field.get("items", field)
        if "properties" in inner:
            yield from _fields(inner, f"{prefix}{name}{'[]' if inner is not field else ''}.")
