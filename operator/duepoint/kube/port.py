"""The seam between what Duepoint says to an API server and how it gets there.

``api.ApiSession`` speaks HTTP to a real one, ``tests.fakes.fakekubernetes.FakeKubernetes`` answers
from memory, and one conformance suite holds both to the same behaviour. Everything else in this
package takes an ``Api`` and never asks which.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Mapping
from typing import Generic, Protocol, TypeVar

import msgspec

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
    WATCH = "watch"
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


def version_of(metadata: Metadata) -> int:
    """The resourceVersion as a number, higher is newer; 0 where it is none."""
    text = metadata.resource_version
    return int(text) if text.isascii() and text.isdigit() else 0


class Item(Protocol):
    """Anything with object metadata."""

    @property
    def metadata(self) -> Metadata: ...


ItemT = TypeVar("ItemT", bound=Item)


class ListMetadata(msgspec.Struct, frozen=True, rename="camel"):
    """``metav1.ListMeta``. ``continue_token`` is empty on the last page."""

    resource_version: str = ""
    continue_token: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct, Generic[ItemT], frozen=True):
    """One page of a list. All pages of a list show the same resource version."""

    metadata: ListMetadata
    items: tuple[ItemT, ...] = ()


class ChangeType(enum.StrEnum):
    """What happened to an object of a watch."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class Change(msgspec.Struct, Generic[ItemT], frozen=True):
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
    ) -> AsyncIterator[Page[ItemT]]:
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
    ) -> AsyncIterator[Change[ItemT]]:
        """Changes after a resource version, for ever.

        Resumes by itself after closed connections, stalls, throttling and 5xx; ends with Gone
        (list again), Forbidden, NotFound or Unauthorized.
        """
        ...
