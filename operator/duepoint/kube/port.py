"""The interface to an API server, with the parsing of its answers.

``api.ApiSession`` speaks HTTP to a real server, ``local.api.LocalApi`` answers from memory, and one
conformance suite checks that both behave alike. Everything else in this package takes an ``Api``
and does not know which one it is.

Answers, pages of lists and watch events are parsed here, too. An answer that cannot be parsed, such
as a proxy's login page or a truncated body, becomes ``errors.Unavailable``: it counts as no answer.
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
#: Asks for the metadata of objects alone, if the server can leave the rest out.
JSON_METADATA = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{JSON}"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"

#: The timeout of a request, with the waits for a connection and for Retry-After.
REQUEST_TIMEOUT_SECONDS = 15.0
#: The most objects in a page of a list.
PAGE_LIMIT = 500


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
    """Return the resourceVersion as a number, higher is newer; 0 = it is not a number."""
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
    """One event of a watch; for a deleted object with its last state."""

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
    ) -> bytes:
        """Send a request and return the body of its 2xx answer.

        Args:
            verb: ``GET``, ``POST``, ``PUT``, ``PATCH`` or ``DELETE``.
            path: absolute path, its parts already quoted.
            body: bytes as they are, anything else as JSON; None sends none.
            query: unquoted query parameters.
            content_type: the type of the body.
            accept: the form of the answer; a server may fall back to the whole object as JSON.
            timeout_seconds: the timeout, including repeats after 401 and 429.
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
        """Yield the pages of a list in turn. Gone: the list took too long; start it again.

        A page has at most ``limit`` objects, and fewer if these are large. The list is complete
        only when the iterator ends without an error.
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
        """Yield changes after a resource version, for ever.

        Resumes by itself after closed connections, stalls, throttling and 5xx; ends with Gone
        (list again), Forbidden, NotFound or Unauthorized.
        """
        ...


class TimedApi(Api, Protocol):
    """An API server whose clock can be read."""

    async def time_us(self) -> int:
        """Return the server's time, UTC in microseconds, to half a second."""
        ...


def path(group_version: str, namespace: str | None, plural: str, name: str = "") -> str:
    """Return the path of an object, or of all without a ``name``; ``namespace`` None = cluster.

    Args:
        group_version: such as ``/api/v1`` or ``/apis/batch/v1``.
    """
    scope = "" if namespace is None else f"/namespaces/{urllib.parse.quote(namespace, safe='')}"
    of_one = f"/{urllib.parse.quote(name, safe='')}" if name else ""
    return f"{group_version}{scope}/{plural}{of_one}"


async def listed(
    api: Api, path: str, item_type: type[ItemT], query: Mapping[str, str] | None = None
) -> list[ItemT]:
    """Return all objects of a short list."""
    return [
        item async for page in api.list_pages(path, item_type, query=query) for item in page.items
    ]


async def find(
    api: Api, path: str, item_type: type[ItemT], name: str, *, not_before: int = 0
) -> ItemT | None:
    """Return the object of that name, or None; uses a list, which does not need the right to get.

    Args:
        path: the path of all such objects of the namespace.
        not_before: the least resourceVersion of the answer, which the API server then takes from
            its cache and not from its database. 0 = the newest.
    """
    query = {"fieldSelector": f"metadata.name={name}"}
    if not_before:
        query |= {"resourceVersion": str(not_before), "resourceVersionMatch": "NotOlderThan"}
    found = await listed(api, path, item_type, query)
    return next((item for item in found if item.metadata.name == name), None)


async def delete(api: Api, path: str, uid: str, **options: str) -> bool:
    """Delete this very object; False = it was already gone."""
    try:
        await api.request("DELETE", path, {**options, "preconditions": {"uid": uid}})
    except (errors.NotFound, errors.Conflict):  # Conflict: another object has the name now
        return False
    return True


# -- parsing answers -------------------------------------------------------------------------------

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
    """Decode an answer; raises Unavailable.

    Levels that are nested too deeply are left out, so that the other objects can be read.
    """
    try:
        try:
            return decoder.decode(body)
        except RecursionError:
            return decoder.decode(jsontext.clipped(bytes(body)))
    except msgspec.DecodeError as error:
        raise errors.Unavailable(f"{attempt}: answer cannot be read: {error}") from error


def metadata(body: bytes | msgspec.Raw, attempt: str) -> Metadata:
    """Return the metadata of an object; raises Unavailable."""
    return decoded(_metadata_decoder, body, attempt).metadata


def parsed_event(line: bytes, attempt: str) -> WatchLine:
    """Return a change or a bookmark; raises the error of an ERROR line."""
    event = decoded(_line_decoder, line, attempt)
    if event.type == "ERROR":
        status = errors.parse_status(event.object)
        raise errors.from_answer(attempt, status.code or 500, {}, event.object)
    return event


def next_version(event: WatchLine, before: str, path: str) -> str:
    """Return the version to continue from; versions of one resource are comparable (KEP-5504)."""
    now = metadata(event.object, f"WATCH {path}").resource_version
    if now.isdecimal() and before.isdecimal() and int(now) < int(before):
        raise errors.Gone(f"WATCH {path}: the server's store has gone back in time", status=410)
    return now


def resource_of(path: str) -> str:
    """Return the resource of a path, for metrics: ``jobs``, ``schedules/status``, ``leases``."""
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
        """Return the lines that end in this chunk, in order, without their newline."""
        head, newline, rest = chunk.partition(b"\n")
        if not newline:
            self._pieces.append(chunk)
            return []
        complete = [b"".join([*self._pieces, head]), *rest.split(b"\n")]
        self._pieces = [complete.pop()] if rest else []
        return [line for line in complete if line.strip()]
