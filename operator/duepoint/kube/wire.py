"""What stands on the wire: answers, pages of lists and watch events as bytes, and what they mean.

Everything that cannot be read becomes ``errors.Unavailable`` here: a proxy's login page and an
answer that was cut off count as no answer. Pure.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from duepoint.kube import errors, port
from duepoint.schedules import jsontext

#: Longest page that is read, unless it is of one object.
MOST_BYTES = 8 * 1024 * 1024
#: What a page is meant to have at most.
_AIM_BYTES = 4 * 1024 * 1024
#: A page that was too large is asked for again with so many times fewer objects.
_LESS = 8

DecodedT = TypeVar("DecodedT")


class WatchLine(msgspec.Struct):
    """One line of a watch; the object of an ERROR is a Status."""

    type: str
    object: msgspec.Raw


class _MetadataOnly(msgspec.Struct):
    metadata: port.Metadata


_line_decoder = msgspec.json.Decoder(WatchLine)
_metadata_decoder = msgspec.json.Decoder(_MetadataOnly)


def decoded(
    decoder: msgspec.json.Decoder[DecodedT], body: bytes | msgspec.Raw, attempt: str
) -> DecodedT:
    """The answer as a value; raises Unavailable.

    Of what is nested too deeply the depths are left out: the others on the page matter, too.
    """
    try:
        try:
            return decoder.decode(body)
        except RecursionError:
            return decoder.decode(jsontext.clipped(bytes(body)))
    except msgspec.DecodeError as error:
        raise errors.Unavailable(f"{attempt}: answer cannot be read: {error}") from error


def metadata(body: bytes | msgspec.Raw, attempt: str) -> port.Metadata:
    """The metadata of an object; raises Unavailable."""
    return decoded(_metadata_decoder, body, attempt).metadata


def parsed_event(line: bytes, attempt: str) -> WatchLine:
    """A change or a bookmark; raises the error that an ERROR line carries."""
    event = decoded(_line_decoder, line, attempt)
    if event.type == "ERROR":
        status = errors.parse_status(event.object)
        raise errors.from_answer(attempt, status.code or 500, {}, event.object)
    return event


def next_version(event: WatchLine, before: str, path: str) -> str:
    """The version to go on from; versions of one resource may be compared (KEP-5504)."""
    now = metadata(event.object, f"WATCH {path}").resource_version
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


class LineSplitter:
    """Cuts a stream of chunks into lines of any length; blank lines are dropped.

    A watch event is one line and may be 1.5 MB, which the line reader of the HTTP library refuses
    beyond twice its buffer. Work is linear in the bytes, however small the chunks.
    """

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that end in this chunk, in order, without their newline."""
        head, newline, rest = chunk.partition(b"\n")
        if not newline:
            self._pieces.append(chunk)
            return []
        complete = [b"".join([*self._pieces, head]), *rest.split(b"\n")]
        self._pieces = [complete.pop()] if rest else []
        return [line for line in complete if line.strip()]


class PageSize:
    """How many objects of one list to ask for next, so that no page is large.

    An API server counts objects and not bytes, and an object may have a megabyte. A page larger
    than ``MOST_BYTES`` is not read to its end and is asked for again with fewer objects; the sizes
    of earlier pages decide about the next one.

    Attributes:
        limit: objects to ask for.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.limit = most

    @property
    def most_bytes(self) -> int | None:
        """How much of the page is read at most; one object is read, however large."""
        return MOST_BYTES if self.limit > 1 else None

    def shrink(self) -> None:
        """Record that the page was larger than ``most_bytes``."""
        self.limit = max(1, self.limit // _LESS)

    def record(self, size: int) -> None:
        """Record the bytes of a page: the next one may have more objects, or fewer."""
        fitting = self.limit * _AIM_BYTES // max(size, 1)
        self.limit = max(1, min(self._most, 2 * self.limit, fitting))
