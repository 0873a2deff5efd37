"""Objects with their versions, and the log of changes that watches read.

One number counts every change of every object, as etcd's revision does: a list names the number it
was made at, and a watch goes on from there. The log is bounded; a watch from before its beginning
is Gone and lists again. Documents that are stored are never changed in place, so that the log can
hold them.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

#: Changes that a watch can be behind.
LOG_LENGTH = 20_000

#: Resource, namespace, name.
Key = tuple[str, str, str]
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """One change.

    Attributes:
        type: ``ADDED``, ``MODIFIED`` or ``DELETED``.
        document: the object after it, or the last state of one that was deleted.
        before: the object before it; None of a new one.
    """

    version: int
    type: str
    key: Key
    document: Document
    before: Document | None


class LocalStore:
    """The objects of one server, on one event loop.

    Attributes:
        version: number of the newest change.
        oldest: a watch can begin here or later.
        objects: by key, each as it is now.
    """

    def __init__(self) -> None:
        self.version = 100
        self.oldest = 0
        self.objects: dict[Key, Document] = {}
        self._log: deque[Change] = deque()
        self._changed = asyncio.Event()

    def put(self, key: Key, document: Document) -> None:
        """Store an object as its newest version; the document is the store's from now on."""
        before = self.objects.get(key)
        self._note("ADDED" if before is None else "MODIFIED", key, document, before)
        self.objects[key] = document

    def remove(self, key: Key) -> None:
        """Delete an object; its last state carries the version of its deletion."""
        before = self.objects.pop(key)
        last = {**before, "metadata": dict(before["metadata"])}
        self._note("DELETED", key, last, before)

    def keys(self, resource: str) -> list[Key]:
        """Of all objects of a resource, by namespace and name."""
        return sorted(key for key in self.objects if key[0] == resource)

    def dependents(self, uid: str) -> Iterator[Key]:
        """Objects that name this uid as an owner."""
        for key, document in list(self.objects.items()):
            owners = document["metadata"].get("ownerReferences") or ()
            if any(owner.get("uid") == uid for owner in owners):
                yield key

    def forget_changes(self) -> None:
        """Empty the log: a watch from an earlier version is Gone."""
        self.oldest = self.version
        self._log.clear()
        self._changed.set()

    async def changes_after(self, version: int) -> AsyncIterator[Change]:
        """Every change after this one, for ever; ends where the log begins later than that."""
        while version >= self.oldest:
            for change in self._newer_than(version):
                version = change.version
                yield change
            if version >= self.version:
                self._changed.clear()
                await self._changed.wait()

    def _newer_than(self, version: int) -> list[Change]:
        """From the end of the log, because a watch is hardly ever far behind."""
        newest = list(itertools.takewhile(lambda it: it.version > version, reversed(self._log)))
        return newest[::-1]

    def _note(self, kind: str, key: Key, document: Document, before: Document | None) -> None:
        self.version += 1
        document["metadata"]["resourceVersion"] = str(self.version)
        self._log.append(Change(self.version, kind, key, document, before))
        if len(self._log) > LOG_LENGTH:
            self.oldest = self._log.popleft().version
        self._changed.set()
