# ruff: noqa: E501 - the lines of a page are those of its Markdown
"""docs/reference/http-api.md from the OpenAPI document of the API.

python -m tools.httpapidoc            write the page
python -m tools.httpapidoc --check    say whether it is current; nothing is written
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from duepoint.httpapi import openapi, problems

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "http-api.md"

_HEAD = """# The HTTP API

<!-- Written by `python -m tools.httpapidoc`; edit that, or operator/duepoint/httpapi. -->

`duepoint api` reads and changes the [members](../explanation/schedules-and-members.md) of
[ScheduleSets](scheduleset.md). It keeps nothing: members stand in Redis, sets in the cluster. Any number of
replicas may run. The chart installs it with `api.enabled: true`; [settings](settings.md#of-the-http-api). Programs in
Python use the [client](client.md), people [`duepoint set`](set-commands.md). The API describes itself at
`/openapi.json` (OpenAPI 3.1), from which this page is made.

With `api.dashboard.enabled` it serves the [web dashboard](../howto/use-the-dashboard.md) under `/dashboard/`, and the operations on
Schedules that its pages call. These read and change objects of the cluster with the caller's own token.

## Who may do what

Every request carries `Authorization: Bearer` and a token of the cluster, such as a ServiceAccount's. The API
server is asked whose it is (TokenReview) and what they may do (SubjectAccessReview: group `duepoint.dev`, resource
`schedulesets`, subresource `schedules`, the name of the set). What is granted is remembered for 10 seconds, what is
refused for 2. From the fifth second on a grant that is used is asked for again, and requests do not wait for that. While
the API server does not answer, or is slow, a grant stands until it is 30 seconds old. The chart's roles, which aggregate to the cluster's `view`, `edit` and `admin`, have the verbs below.
Who lacks `get` hears 404 for everything, whether it is there or not. There are no cookies and no anonymous access;
`/openapi.json` and the files of the dashboard need no token.

The dashboard's operations are judged otherwise: after the TokenReview, the request goes on to the API server with
the caller's token, which says what they may see and do; a refusal carries its words. What only Redis knows is asked for after a
SubjectAccessReview, for the right that is named at the operation. Such a token must be one that the API server itself takes, also where
`api.audiences` names others.

A change that a browser sends from another site's page is refused: by `Sec-Fetch-Site`, and where the browser does not send
that, by an `Origin` that is neither `Host` nor `X-Forwarded-Host`. Every `POST`, `PUT` and `PATCH` needs its `Content-Type`, with an empty
body too, which such a page cannot send.

## Rules

- **Bodies** are JSON in UTF-8 that can be read in one way only, of at most 4 KiB more than `limits.payloadBytes` of the set (of the
  dashboard's operations 68 KiB), sent within 30 seconds. A row of a stream has the same bound. Equal keys, `NaN`, numbers beyond a
  double, half a surrogate pair, a byte order mark and more than 100 levels are refused, as are unknown fields. `null` is
  absent. Read-only fields are passed over, so what a `GET` or an export gives can be written again.
- **Tags.** `ETag` names the version of a member. `If-Match` refuses a change of another version (412), `If-None-Match: *`
  one of a member that is there. A change that says the same as what stands there is `Unchanged` and keeps the tag. A `PATCH` leaves
  the text of what it does not name as it is, also within the payload.
- **Repeats.** A request with an `Idempotency-Key` is carried out once; a repeat within 24 hours by the same caller gets the
  first answer with `Idempotency-Replayed: true` (one above 1 KiB without its `payload`), with another body, or another
  `Duepoint-Durability`, 409. The caller is the user, whichever of their tokens comes. If the API dies between a change and its
  record, a repeat (10 seconds later) makes the same change again: the same id, the same event id. A trigger is then a
  second run. A namespace takes 1,000,000 keys a day, and 256 MiB of what is kept with them; then 429.
- **Repeats without a key.** A `PUT`, `PATCH` or `DELETE` leads to the same state again, with two exceptions. A `delay` counts from
  each request: write `at`, or send a key. A one-off leaves its set when it has ended, unless
  `spec.retention.endedSeconds` keeps it. For a minute more (less where more than 4,000 one-offs of a shard end in a minute)
  a change or row with the same id and the same `at` makes none again: it is `Unchanged`, its state `Completed`, or 412 with
  `If-None-Match: *`. Later it makes a new one, with the same id of its event, or is refused as `TooLate`, as any [instant that
  has passed](semantics.md#late-missed-catching-up).
- **When a change is answered** Redis has it; [what a lost server can take](scheduleset.md) stands in the set's status.
  `Duepoint-Durability: replicas=1`, `aof` or both wait for more. Where no server has that, 409 comes before the change;
  where it takes longer than `timeout=` (1,000 ms), 503 `NotDurable` says that the change is stored all the same.
- **Headers that decide** (`If-Match`, `If-None-Match`, `Idempotency-Key`, `Duepoint-Durability`) are refused by a change that does not
  take them, as 400 `InvalidHeader`; the operations below name theirs.
- **Rates.** `limits.changesPerSecond` of a set holds over all replicas, and counts changes that are refused, too. Beyond it a single change is 429 with
  `Retry-After`, and the rows of a stream wait: each half second's rows are answered as they are stored, and those
  that waited are read anew where the set was edited meanwhile, with its defaults and limits of then. `limits.members` may be passed by what several replicas have under way.
- **Bulk streams** are answered line by line in the order of the rows, while they are still being sent. A row that was
  answered is stored; of a stream that is cut, some rows behind the last answer may be. A line with `fatal` says why
  nothing behind it was read. Token, rights and the set are looked at again before each batch of rows is stored: what is taken away
  ends a stream within the same seconds as it ends requests. A stream of which no row comes in 10 seconds ends, empty lines or not. There are 64
  streams a replica, 16 of them of a namespace.
- **Triggers.** 100 runs of a member may wait for a receiver, 4,096 of a set, and 8,192 of a namespace, 128 MiB with the largest payloads
  (in one shard these divided by the number of shards, but 100 at least); further ones are 429.
- **Lists** go on by `next`. They are not a snapshot: what is created or removed meanwhile may be missing, what stays comes
  once. A cursor belongs to one list of one set, and to the present number of shards.
- **Bounds**: URL 4 KiB, 100 headers of 32 KiB, a head within 10 seconds, 1 KiB of a body in 10 seconds, an answer read within
  30 seconds; 1,000 connections a replica (`api.connections`), 750 of them from one address, and 100 unfinished handshakes of TLS. An address
  of IPv6 is its /64. Where there is no place, an idle connection of the address that has most is closed for one that has fewer. 256
  pipelined requests on each connection. Trailers are passed over, a change of the protocol (`Upgrade`) is refused.
- **Tokens.** After 100 tokens of an address that were not valid, 20 a second are asked about, and further unknown ones are 429.
- **What stops**: a member that is removed or changed does not take back what a worker has already claimed of it.
"""


def page() -> str:
    """The whole page."""
    document = openapi.document()
    parts = [_HEAD, "## Operations\n"]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parts.append(_operation(method.upper(), path, operation))
    parts.append("## Fields\n")
    for name, schema in document["components"]["schemas"].items():
        if name not in ("Problem", "MemberPatch"):
            parts.append(_schema(name, schema))
    parts.append(_problems())
    return "\n".join(parts).rstrip() + "\n"


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    lines = [f"### `{method} {path}`\n", f"{operation['summary']}. {operation['description']}\n"]
    shown = [each for each in operation["parameters"] if each["in"] != "path"]
    if shown:
        lines += ["| | | meaning |", "|---|---|---|"]
        lines += [
            f"| `{each['name']}` | {each['in']} | {each['description']}{_bounds(each['schema'])} |"
            for each in shown
        ]
        lines.append("")
    if body := operation.get("requestBody"):
        kinds = " or ".join(f"`{kind}`" for kind in body["content"])
        lines.append(
            f"Body: {_linked(_first(body['content']))} as {kinds}. {_about(body)}".rstrip()
        )
    answers = []
    for status, answer in operation["responses"].items():
        if status != "default":
            what = f" {_linked(_first(answer['content']))}" if "content" in answer else ""
            answers.append(f"{status}{what}")
    lines.append(f"Answers: {', '.join(answers)}.\n")
    return "\n".join(lines)


def _about(part: dict[str, Any]) -> str:
    return str(part.get("description", ""))


def _first(content: dict[str, Any]) -> str:
    reference: str = next(iter(content.values()))["schema"]["$ref"]
    return reference.rpartition("/")[2]


def _linked(name: str) -> str:
    if name == "MemberPatch":
        return "a merge patch of [MemberFields](#memberfields)"
    return f"[{name}](#{name.lower()})"


def _bounds(schema: dict[str, Any]) -> str:
    if "maximum" not in schema:
        return ""
    return f"; {schema['minimum']} to {schema['maximum']}, default {schema['default']}"


def _schema(name: str, schema: dict[str, Any]) -> str:
    lines = [f"### {name}\n"]
    if "description" in schema:
        lines.append(f"{schema['description']}\n")
    lines += ["| field | type | meaning |", "|---|---|---|"]
    lines += _rows(schema, "")
    return "\n".join(lines) + "\n"


def _rows(schema: dict[str, Any], prefix: str) -> list[str]:
    rows = []
    required = schema.get("required", ())
    for name, field in schema["properties"].items():
        if field.get("readOnly"):
            continue
        must = " (always)" if name in required else ""
        rows.append(f"| `{prefix}{name}` | {_type(field)}{must} | {_about(field)} |")
        inner = field.get("items", field)
        if "properties" in inner:
            rows += _rows(inner, f"{prefix}{name}{'[]' if inner is not field else ''}.")
    return rows


def _type(field: dict[str, Any]) -> str:
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"] if value)
    kinds = field.get("type", "any")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    shown = " or ".join(kind for kind in kinds if kind != "null")
    if field.get("format") == "date-time":
        shown = "time"
    if shown == "array":
        reference = field["items"].get("$ref", "")
        shown = f"list of {_linked(reference.rpartition('/')[2]) if reference else 'objects'}"
        if field["items"].get("type") == "string":
            shown = "list of times" if "format" in field["items"] else "list of strings"
    return shown


def _problems() -> str:
    lines = [
        "## Problems\n",
        "Every refusal is `application/problem+json` (RFC 9457) with `title`, `status`, `code`, `detail`, perhaps",
        "`field`, and `requestId`, which the log names too. Branch on `code`; texts may change.\n",
        "| code | status | title |",
        "|---|---|---|",
    ]
    lines += [
        f"| `{code}` | {kind.status} | {kind.title} |" for code, kind in problems.KINDS.items()
    ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether it is current")
    chosen = parser.parse_args(arguments)
    current = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == page()
    if chosen.check:
        if not current:
            print(f"{PAGE.name} is stale: run python -m tools.httpapidoc", file=sys.stderr)
        return 0 if current else 1
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
