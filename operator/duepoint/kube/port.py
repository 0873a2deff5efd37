"""The seam between what Duepoint says to an API server and how it gets there.

``api.ApiSession`` speaks HTTP to a real one, ``local.api.LocalApi`` answers from memory, and one
conformance suite holds both to the same behaviour. Everything else in this
package takes an ``Api`` and never asks which.

What stands on the wire is read here, too: answers, pages of lists and watch events. Everything that
cannot be read becomes ``errors.Unavailable``: a proxy's login page and an answer that was cut off
count as no answer.
"""

from __future__ import annotations

import enum
import urllib.parse
from collections.abc import AsyncIterator, Mapping
from typing import Generic, Protocol, TypeVar

import msgspec

from duepoint.kube import errors
from duepoint.schedules import jsontext

JSON = "application/json"
#: Of an object the metadata alone, from a server that can leave the rest out.
JSON_METADATA = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{JSON}"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"

#: Time one request may take, waiting for a connection and obeying Retry-After included.
REQUEST_TIMEOUT_SECONDS = 15.0
#: Objects per page of a list.
PAGE_LIMIT = 500


class Purpose(enum.Enum):
    """What a request is for: each has connections of its own, so that none starves another."""

    REQUEST = "request"
    LEASE = "lease"


class OwnerReference(msgspec.Struct, frozen=True, rename="camel"):
    """``metav1.OwnerReference``."""

    uid: str = ""
    name: str = ""
    kind: str = ""
    api_version: str = ""
    controller: bool | None = None


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """``metav1.ObjectMeta``, as far as Duepoint reads it."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None
    finalizers: tuple[str, ...] | None = None


def version_of(metadata: Metadata) -> int:
    """The resourceVersion as a number, higher is newer; 0 where it is none."""
    text = metadata.resource_version
    return int(text) if text.isascii() and text.isdigit() else 0


class KubeObject(Protocol):
    """Anything with object metadata."""

    @property
    def metadata(self) -> Metadata: ...


ItemT = TypeVar("ItemT", bound=KubeObject)


class ListMetadata(msgspec.Struct, frozen=True, rename="camel"):
    """``metav1.ListMeta``. ``continue_token`` is empty on the last page."""

    resource_version: str = ""
    continue_token: str = msgspec.field(default="", name="continue")


class ListPage(msgspec.Struct, Generic[ItemT], frozen=True):
    """One page of a list. All pages of a list show the same resource version."""

    metadata: ListMetadata
    items: tuple[ItemT, ...] = ()


class ChangeType(enum.StrEnum):
    """What happened to an object of a watch."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class WatchEvent(msgspec.Struct, Generic[ItemT], frozen=True):
    """One event of a watch; of a deleted object its last state."""

    type: ChangeType
    item: ItemT


class Api(Protocol):
    """An API server. Every method raises ``kube.errors.ApiError`` and nothing else."""

    async def request(
        self,
        verb: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        timeout_seconds: float = REQUEST_TIMEOUT_SECONDS,
        purpose: Purpose = Purpose.REQUEST,
    ) -> bytes:
        """The body of a 2xx answer.

        Args:
            verb: ``GET``, ``POST``, ``PUT``, ``PATCH`` or ``DELETE``.
            path: absolute path, its parts already quoted.
            body: bytes as they are, anything else as JSON; None sends none.
            query: unquoted query parameters.
            content_type: of the body.
            accept: the form of the answer; a server may fall back to the whole as JSON.
            timeout_seconds: for all of it, repeats after 401 and 429 included.
            purpose: whose connections to use.
        """
        ...

    def list_pages(
        self,
        path: str,
        item_type: type[ItemT],
        *,
        limit: int = PAGE_LIMIT,
        query: Mapping[str, str] | None = None,
    ) -> AsyncIterator[ListPage[ItemT]]:
        """The pages of a list in turn. Gone: the list took too long; start it again.

        A page has at most ``limit`` objects, and fewer where those are large.
        The list is complete when the iterator ends without an error, and never before.
        """
        ...

    def watch(
        self,
        path: str,
        item_type: type[ItemT],
        resource_version: str,
        *,
        query: Mapping[str, str] | None = None,
    ) -> AsyncIterator[WatchEvent[ItemT]]:
        """Changes after a resource version, for ever.

        Resumes by itself after closed connections, stalls, throttling and 5xx; ends with Gone
        (list again), Forbidden, NotFound or Unauthorized.
        """
        ...


class TimedApi(Api, Protocol):
    """An API server whose clock can be read."""

    async def time_us(self) -> int:
        """The server's time, UTC in microseconds, to half a second."""
        ...


def path(group_version: str, namespace: str | None, plural: str, name: str = "") -> str:
    """The path of an object, or without a name of all; None: of the whole cluster.

    Args:
        group_version: such as ``/api/v1`` or ``/apis/batch/v1``.
    """
    scope = "" if namespace is None else f"/namespaces/{urllib.parse.quote(namespace, safe='')}"
    of_one = f"/{urllib.parse.quote(name, safe='')}" if name else ""
    return f"{group_version}{scope}/{plural}{of_one}"


async def listed(
    api: Api, path: str, item_type: type[ItemT], query: Mapping[str, str] | None = None
) -> list[ItemT]:
    """All objects of a short list."""
    return [
        item async for page in api.list_pages(path, item_type, query=query) for item in page.items
    ]


async def find(
    api: Api, path: str, item_type: type[ItemT], name: str, *, not_before: int = 0
) -> ItemT | None:
    """The object of that name, or None; found by a list, which needs no right to get.

    Args:
        path: of all such objects of the namespace.
        not_before: a resourceVersion that the answer is at least as new as; the API server answers
            from its cache and asks no database. 0 = as it is now.
    """
    query = {"fieldSelector": f"metadata.name={name}"}
    if not_before:
        query |= {"resourceVersion": str(not_before), "resourceVersionMatch": "NotOlderThan"}
    found = await listed(api, path, item_type, query)
    return next((item for item in found if item.metadata.name == name), None)


async def delete(api: Api, path: str, uid: str, **options: str) -> bool:
    """Delete this very object. False: it was gone already."""
    try:
        await api.request("DELETE", path, {**options, "preconditions": {"uid": uid}})
    except (errors.NotFound, errors.Conflict):  # Conflict: another object has the name now
        return False
    return True


# -- what stands on the wire -----------------------------------------------------------------------

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
    metadata: Metadata


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


def metadata(body: bytes | msgspec.Raw, attempt: str) -> Metadata:
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
