"""An in-memory API server: a ``kube.port.Api`` with the behaviour that Duepoint relies on.

Names are unique (409), writes have versions (409), status is a subresource with a JSON Patch that
may test, lists have pages and selectors, watches resume from a version or are Gone, and a namespace
may be absent. Deleting an object deletes its dependents, and Events are dropped after an hour, as
in a cluster. There are no users, no schemas and no Pods; nothing runs a Job. The suite
``tests/conformance/test_kube.py`` checks it against a real API server.

Each watch has its own position in the log. ``changes_after`` wakes all watches at once, so a slow
one does not delay others.

One number counts every change of every object, like etcd's revision: a list names the number of its
time, and a watch continues from there. The log is bounded; a watch from before its beginning is
Gone and lists again. Stored documents are never changed in place, so that the log can refer to
them.
"""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from duepoint.kube import port, times
from duepoint.kube.local import documents
from duepoint.kube.local.documents import NamedObject

#: The most changes that a watch can be behind.
LOG_LENGTH = 20_000

#: Resource, namespace, name.
Key = tuple[str, str, str]
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """One change.

    Attributes:
        type: ``ADDED``, ``MODIFIED`` or ``DELETED``.
        document: the object after the change, or the last state of a deleted one.
        before: the object before the change; None = it is new.
    """

    version: int
    type: str
    key: Key
    document: Document
    before: Document | None


class LocalStore:
    """The objects of one server, on one event loop.

    Attributes:
        version: the number of the newest change.
        oldest: a watch can begin at this number or later.
        objects: the current objects, by key.
    """

    def __init__(self) -> None:
        self.version = 100
        self.oldest = 0
        self.objects: dict[Key, Document] = {}
        self._log: deque[Change] = deque()
        self._changed = asyncio.Event()

    def put(self, key: Key, document: Document) -> None:
        """Store an object as its newest version; the store owns the document from now on."""
        before = self.objects.get(key)
        self._note("ADDED" if before is None else "MODIFIED", key, document, before)
        self.objects[key] = document

    def remove(self, key: Key) -> None:
        """Delete an object; its last state has the version of its deletion."""
        before = self.objects.pop(key)
        last = {**before, "metadata": dict(before["metadata"])}
        self._note("DELETED", key, last, before)

    def keys(self, resource: str) -> list[Key]:
        """Return the keys of a resource's objects, by namespace and name."""
        return sorted(key for key in self.objects if key[0] == resource)

    def dependents(self, uid: str) -> Iterator[Key]:
        """Yield the keys of objects that name this uid as an owner."""
        for key, document in list(self.objects.items()):
            owners = document["metadata"].get("ownerReferences") or ()
            if any(owner.get("uid") == uid for owner in owners):
                yield key

    async def changes_after(self, version: int) -> AsyncIterator[Change]:
        """Yield every change after this one, for ever; ends if the log begins later."""
        while version >= self.oldest:
            for change in self._newer_than(version):
                version = change.version
                yield change
            if version >= self.version:
                self._changed.clear()
                await self._changed.wait()

    def _newer_than(self, version: int) -> list[Change]:
        """Return newer changes; searches from the end, because watches are hardly ever behind."""
        newest = list(itertools.takewhile(lambda it: it.version > version, reversed(self._log)))
        return newest[::-1]

    def _note(self, kind: str, key: Key, document: Document, before: Document | None) -> None:
        self.version += 1
        document["metadata"]["resourceVersion"] = str(self.version)
        self._log.append(Change(self.version, kind, key, document, before))
        if len(self._log) > LOG_LENGTH:
            self.oldest = self._log.popleft().version
        self._changed.set()


# -- the server ------------------------------------------------------------------------------------

ItemT = TypeVar("ItemT", bound=port.KubeObject)

#: How long an Event is kept, as with ``--event-ttl`` of kube-apiserver.
EVENT_TTL_US = 3_600_000_000

#: A decoded body of any shape.
_Json = Any


class LocalApi:
    """The API server. Use it on one event loop.

    Args:
        now_us: the clock for creation times, in microseconds since the epoch.
        namespaces: namespaces that exist from the start, in addition to ``kube-system``.
    """

    def __init__(self, now_us: Callable[[], int], *, namespaces: tuple[str, ...] = ()) -> None:
        self._now_us = now_us
        self._store = LocalStore()
        for name in ("kube-system", *namespaces):
            self.add_namespace(name)

    def add_namespace(self, name: str) -> None:
        """Create a namespace unless it exists."""
        key = ("namespaces", "", name)
        if key not in self._store.objects:
            self._store.put(key, {"metadata": {"name": name, "uid": str(uuid.uuid4())}})

    # -- port.Api --------------------------------------------------------------------------

    async def request(
        self,
        verb: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = port.JSON,
        accept: str = port.JSON,
        timeout_seconds: float = port.REQUEST_TIMEOUT_SECONDS,
    ) -> bytes:
        """See ``port.Api.request``."""
        del timeout_seconds
        await asyncio.sleep(0)  # let other tasks run, as a network would
        target = documents.parse(verb, path)
        answer = self._answer(verb, target, _document(body), dict(query or {}), content_type)
        if accept == port.JSON_METADATA and "items" not in answer:
            kind = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
            answer = {**kind, "metadata": answer.get("metadata", {})}
        return msgspec.json.encode(answer)

    async def list_pages(
        self,
        path: str,
        item_type: type[ItemT],
        *,
        limit: int = port.PAGE_LIMIT,
        query: Mapping[str, str] | None = None,
    ) -> AsyncIterator[port.ListPage[ItemT]]:
        """See ``port.Api.list_pages``."""
        async for page in pages_of(self.request, path, item_type, limit, query):
            yield page

    async def watch(
        self,
        path: str,
        item_type: type[ItemT],
        resource_version: str,
        *,
        query: Mapping[str, str] | None = None,
    ) -> AsyncIterator[port.WatchEvent[ItemT]]:
        """See ``port.Api.watch``."""
        target = documents.parse("WATCH", path)
        asked = dict(query or {})
        decoder = msgspec.json.Decoder(item_type)
        async for change in self._store.changes_after(int(resource_version)):
            if (kind := _shown_as(change, target, asked)) is not None:
                body = msgspec.json.encode(change.document)
                item = port.decoded(decoder, body, f"WATCH {path}")
                yield port.WatchEvent(kind, item)
        raise documents.refusal(target, 410, "Expired", "too old resource version")

    async def time_us(self) -> int:
        """See ``port.TimedApi.time_us``."""
        return self._now_us()

    # -- verbs -----------------------------------------------------------------------------

    def _answer(
        self,
        verb: str,
        target: NamedObject,
        document: _Json,
        query: dict[str, str],
        content_type: str,
    ) -> dict[str, Any]:
        match verb:
            case "POST" if target.subresource == "token":
                message = "this server issues no tokens for ServiceAccounts"
                raise documents.refusal(target, 404, "NotFound", message)
            case "GET" if target.name:
                return self._existing(target)
            case "GET":
                return self._listed(target, query)
            case "POST":
                return self._create(target, document, dry_run=query.get("dryRun") == "All")
            case "PUT":
                return self._replace(target, document)
            case "PATCH":
                return self._patch(target, document, content_type)
            case "DELETE":
                return self._delete(target, document or {})
            case _:
                raise documents.refusal(target, 405, "MethodNotAllowed", "no such verb")

    def _existing(self, target: NamedObject) -> dict[str, Any]:
        found = self._store.objects.get(target.key)
        if found is None:
            raise documents.not_found(target)
        return found

    def _listed(self, target: NamedObject, query: dict[str, str]) -> dict[str, Any]:
        version, after = str(self._store.version), ("", "")
        if token := query.get("continue"):
            version, *rest = token.split("|")
            after = (rest[0], rest[1])
            if int(version) < self._store.oldest:
                raise documents.refusal(target, 410, "Expired", "the continue token is too old")
        labels, fields = query.get("labelSelector", ""), documents.fields_of(target, query)
        found = [
            (key, document)
            for key in self._store.keys(target.resource)
            if key[1:] > after
            and target.namespace in ("", key[1])
            and documents.has_fields(document := self._store.objects[key], fields)
            and documents.has_labels(document, labels)
        ]
        limit = int(query.get("limit") or len(found) or 1)
        metadata = {"resourceVersion": version}
        if len(found) > limit:
            metadata["continue"] = "|".join([version, *found[limit - 1][0][1:]])
        return {"metadata": metadata, "items": [document for _, document in found[:limit]]}

    def _create(
        self, target: NamedObject, document: dict[str, Any], *, dry_run: bool
    ) -> dict[str, Any]:
        metadata = document.setdefault("metadata", {})
        name = metadata.get("name") or metadata.get("generateName", "") + uuid.uuid4().hex[:5]
        key = (target.resource, target.namespace, name)
        documents.check_new(target, document)
        self._check_namespace(target)
        if key in self._store.objects:
            message = f'{target.resource} "{name}" already exists'
            raise documents.refusal(target, 409, "AlreadyExists", message)
        metadata |= {
            "name": name,
            "namespace": target.namespace,
            "uid": str(uuid.uuid4()),
            "generation": 1,
            "creationTimestamp": times.time_text(self._now_us()),
        }
        if target.resource in documents.BORN_UNSEEN:
            document["status"] = {"observedGeneration": -1}
        if target.resource == "events":
            self._drop_old_events()
        if not dry_run:
            self._store.put(key, document)
        return document

    def _replace(self, target: NamedObject, document: dict[str, Any]) -> dict[str, Any]:
        existing = self._existing(target)
        before, metadata = existing["metadata"], document["metadata"]
        if metadata.get("resourceVersion") not in (None, before["resourceVersion"]):
            raise documents.refusal(target, 409, "Conflict", "the object has been modified")
        _check_uid(target, existing, metadata.get("uid"))
        is_changed = document.get("spec") != existing.get("spec")
        metadata |= {key: before[key] for key in _KEPT if key in before}
        metadata["generation"] = before["generation"] + is_changed
        if "status" in existing:
            document["status"] = existing["status"]
        self._store.put(target.key, document)
        return document

    def _patch(self, target: NamedObject, patch: _Json, content_type: str) -> dict[str, Any]:
        existing = self._existing(target)
        document = documents.copied(existing)
        if content_type == port.JSON_PATCH:
            if not all(documents.apply_operation(document, operation) for operation in patch):
                message = "the server rejected our request due to an error in our request"
                raise documents.refusal(target, 422, "Invalid", message)
        elif content_type == port.MERGE_PATCH:
            documents.merge(document, patch)
        else:
            raise documents.refusal(target, 415, "UnsupportedMediaType", content_type)
        if target.subresource == "status":
            documents.check_status(
                target, existing.get("status") or {}, document.get("status") or {}
            )
            document = {**documents.copied(existing), "status": document.get("status")}
        elif document.get("spec") != existing.get("spec"):
            document["metadata"]["generation"] = existing["metadata"]["generation"] + 1
        self._store.put(target.key, document)
        if document["metadata"].get("deletionTimestamp") and not _finalizers(document):
            self._remove(target)
        return document

    def _delete(self, target: NamedObject, options: dict[str, Any]) -> dict[str, Any]:
        existing = self._existing(target)
        uid = (options.get("preconditions") or {}).get("uid")
        _check_uid(target, existing, uid)
        if not _finalizers(existing):
            self._remove(target)
            return {"kind": "Status", "status": "Success"}
        if existing["metadata"].get("deletionTimestamp"):
            return existing
        deleted = documents.copied(existing)
        deleted["metadata"] |= {
            "deletionTimestamp": times.time_text(self._now_us()),
            "generation": existing["metadata"]["generation"] + 1,
        }
        self._store.put(target.key, deleted)
        return deleted

    def _remove(self, target: NamedObject) -> None:
        uid = self._store.objects[target.key]["metadata"]["uid"]
        self._store.remove(target.key)
        self._collect(uid)

    # -- the work of a cluster's controllers ---------------------------------------------------

    def _collect(self, uid: str) -> None:
        """Delete what the deleted object owned, as the garbage collector does."""
        for key in self._store.dependents(uid):
            document = self._store.objects.get(key)
            if document is not None:  # else it was deleted with another dependent
                self._store.remove(key)
                self._collect(document["metadata"]["uid"])

    def _check_namespace(self, target: NamedObject) -> None:
        if target.namespace and ("namespaces", "", target.namespace) not in self._store.objects:
            message = f'namespaces "{target.namespace}" not found'
            raise documents.refusal(target, 404, "NotFound", message)

    def _drop_old_events(self) -> None:
        oldest_us = self._now_us() - EVENT_TTL_US
        for key in self._store.keys("events"):
            created = self._store.objects[key]["metadata"]["creationTimestamp"]
            if times.parse_us(created) < oldest_us:
                self._store.remove(key)


async def pages_of(
    request: Callable[..., Awaitable[bytes]],
    path: str,
    item_type: type[ItemT],
    limit: int,
    query: Mapping[str, str] | None,
) -> AsyncIterator[port.ListPage[ItemT]]:
    """Yield the pages of a list, read with this ``port.Api.request``; see ``list_pages``."""
    decoder = msgspec.json.Decoder(port.ListPage[item_type])  # type: ignore[valid-type]
    asked = {**(query or {}), "limit": str(limit)}
    while True:
        body = await request("GET", path, query=asked)
        page = port.decoded(decoder, body, f"GET {path}")
        yield page
        if not page.metadata.continue_token:
            return
        asked["continue"] = page.metadata.continue_token


#: Metadata that a replacing request cannot change.
_KEPT = ("uid", "creationTimestamp", "finalizers", "deletionTimestamp")


def _finalizers(document: Mapping[str, Any]) -> list[str]:
    return document["metadata"].get("finalizers") or []


def _check_uid(target: NamedObject, existing: Mapping[str, Any], uid: str | None) -> None:
    if uid not in (None, existing["metadata"]["uid"]):
        message = "Precondition failed: UID in precondition"
        raise documents.refusal(target, 409, "Conflict", message)


def _selects(
    target: NamedObject, query: Mapping[str, str], namespace: str, document: Mapping[str, Any]
) -> bool:
    return (
        target.namespace in ("", namespace)
        and documents.has_labels(document, query.get("labelSelector", ""))
        and documents.has_fields(document, documents.fields_of(target, query))
    )


def _shown_as(
    change: Change, target: NamedObject, query: Mapping[str, str]
) -> port.ChangeType | None:
    """Return the change as a watch with these selectors sees it; None = it does not see it."""
    if change.key[0] != target.resource:
        return None
    namespace = change.key[1]
    was = change.before is not None and _selects(target, query, namespace, change.before)
    is_now = change.type != "DELETED" and _selects(target, query, namespace, change.document)
    match was, is_now:
        case True, True:
            return port.ChangeType.MODIFIED
        case False, True:
            return port.ChangeType.ADDED
        case True, False:
            return port.ChangeType.DELETED
        case _:
            return None


def _document(body: object) -> _Json:
    if body is None:
        return None
    encoded = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return msgspec.json.decode(encoded)
