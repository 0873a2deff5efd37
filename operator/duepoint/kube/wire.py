"""What stands on the wire: answers and watch events as bytes, and what they mean.

Everything that cannot be read becomes ``errors.Unavailable`` here: a proxy's login page and an
answer that was cut off count as no answer. Pure.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from duepoint.kube import errors, port
from duepoint.schedules import nesting

DecodedT = TypeVar("DecodedT")


class Event(msgspec.Struct):
    """One line of a watch; the object of an ERROR is a Status."""

    type: str
    object: msgspec.Raw


class _Marked(msgspec.Struct):
    metadata: port.Metadata


_event_decoder = msgspec.json.Decoder(Event)
_marked_decoder = msgspec.json.Decoder(_Marked)


def decoded(
    decoder: msgspec.json.Decoder[DecodedT], body: bytes | msgspec.Raw, attempt: str
) -> DecodedT:
    """The answer as a value; raises Unavailable."""
    try:
        return _decoded(decoder, body)
    except msgspec.DecodeError as error:
        raise errors.Unavailable(f"{attempt}: answer cannot be read: {error}") from error


def _decoded(decoder: msgspec.json.Decoder[DecodedT], body: bytes | msgspec.Raw) -> DecodedT:
    """Of what is nested too deeply the depths are left out: the others on the page matter, too."""
    try:
        return decoder.decode(body)
    except RecursionError:
        return decoder.decode(nesting.clipped(bytes(body)))


def parsed_event(line: bytes, attempt: str) -> Event:
    """An event that tells a change or a bookmark; raises what an ERROR tells."""
    event = decoded(_event_decoder, line, attempt)
    if event.type == "ERROR":
        status = errors.parse_status(event.object)
        raise errors.from_answer(attempt, status.code or 500, {}, event.object)
    return event


def next_version(event: Event, before: str, path: str) -> str:
    """The version to go on from; versions of one resource may be compared (KEP-5504)."""
    now = decoded(_marked_decoder, event.object, f"WATCH {path}").metadata.resource_version
    if now.isdecimal() and before.isdecimal() and int(now) < int(before):
        raise errors.Gone(f"WATCH {path}: the server's store has gone back in time", status=410)
    return now


def resource_of(path: str) -> str:
    """The resource a path is about, for metrics: ``jobs``, ``schedules/status``, ``leases``."""
    parts = path.strip("/").split("/")
    rest = parts[3:] if parts[0] == "apis" else parts[2:]
    if len(rest) > 2 and rest[0] == "namespaces":
        rest = rest[2:]
    return "/".join(rest[:1] + rest[2:3]) or "other"
