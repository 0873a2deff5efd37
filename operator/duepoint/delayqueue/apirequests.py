"""What the processes of the HTTP API have to know of one another: repeated requests, and rates.

A request with an idempotency key is recorded before it is carried out, and again with its answer,
for a day; a namespace may have so many in a day, and so many bytes of them. Changes are taken from
a set's second in parts, so that all processes together keep its limit. Both go with the server's
data: they are conveniences, not truths.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from duepoint.delayqueue import index

KEPT_SECONDS = 86_400
#: Requests with a key that one namespace may have in a day, and bytes of them: as of its streams.
MOST_REQUESTS = 1_000_000
MOST_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Taken:
    """What a process may change of a set before it asks again.

    Attributes:
        granted: 0 = nothing in this second.
        rest_us: until the next second, by the server's clock.
    """

    granted: int
    rest_us: int


@dataclass(frozen=True, slots=True)
class RepeatedRequest:
    """A request with an idempotency key.

    Attributes:
        owner: whose keys these are: the set, and the caller.
        now_us: when it came, which says of which day it is.
    """

    namespace: str
    owner: str
    key: str
    now_us: int


@dataclass(eq=False)
class ApiRequests:
    """Idempotency keys and rates; raises QueueUnavailable."""

    index: index.Index

    async def begin(self, request: RepeatedRequest, record: bytes) -> bytes | None:
        """What an earlier request with this key left; b"" where this is the first one.

        None: the namespace has had too many in this day.
        """
        call = self.index.call(
            "request",
            None,
            *self._names(request),
            record=record,
            most=MOST_REQUESTS,
            most_bytes=MOST_BYTES,
            seconds=KEPT_SECONDS,
        )
        found = await self.index.scripts.run(call)
        return None if found is None else bytes(found)

    async def finish(self, request: RepeatedRequest, record: bytes) -> None:
        """Keep the answer; an empty one lets the request be made again."""
        call = self.index.call("requestdone", None, *self._names(request), record=record)
        await self.index.scripts.run(call)

    async def resume(self, request: RepeatedRequest, before: bytes, record: bytes) -> bool:
        """Carry a lost request out again; False where another one does so since ``before``."""
        names = self._names(request)
        call = self.index.call("requestdone", None, *names, record=record, before=before)
        return bool(await self.index.scripts.run(call) == b"OK")

    def _names(self, request: RepeatedRequest) -> tuple[str, str]:
        names, span = self.index.keys, request.now_us // (KEPT_SECONDS * 1_000_000)
        digest = _digest(request.owner, request.key)
        return names.request(digest), names.requests(request.namespace, span)

    async def take(self, owner: str, *, wanted: int, most: int) -> Taken:
        """Take a part of what may be changed in this second."""
        name = self.index.keys.changes(owner)
        call = self.index.call("takechanges", None, name, wanted=wanted, most=most)
        granted, rest_us = await self.index.scripts.run(call)
        return Taken(int(granted), int(rest_us))


def _digest(owner: str, key: str) -> str:
    """Of one length for keys of any length, and different for each owner."""
    return hashlib.sha256(f"{owner}\n{key}".encode()).hexdigest()[:40]
