"""State that the processes of the HTTP API share: idempotency keys, and rate limits.

A request with an idempotency key is recorded before it is carried out, and again with its answer,
for a day; the number and the bytes of a namespace's requests in a day are limited. Each process
reserves some of the changes that a set may have in a second, so that all of them together keep the
limit. Both are lost with the server's data: nothing depends on them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import index

KEPT_SECONDS = 86_400
#: Most requests with a key of one namespace in a day, and their bytes: the same as of its streams.
MOST_REQUESTS = 1_000_000
MOST_BYTES = 256 << 20
#: About how many bytes Redis takes for a key beside its value.
_OVERHEAD = 150


@dataclass(frozen=True, slots=True)
class Taken:
    """How many changes of a set a process may make before it asks again.

    Attributes:
        granted: 0 = none in this second.
        rest_us: until the next second, by the server's clock.
    """

    granted: int
    rest_us: int


@dataclass(frozen=True, slots=True)
class RepeatedRequest:
    """A request with an idempotency key.

    Attributes:
        owner: the set and the caller, whose keys these are.
        now_us: when it came, which decides the day that it counts to.
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
        """Return the record of an earlier request with this key; b"" if this is the first one.

        Returns None if the namespace has had too many on this day.
        """
        key, taken = self._names(request)
        found, is_first, count, size, _ = await self.index.read(
            "record a request",
            ("GET", key),
            ("SET", key, record, "NX", "EX", KEPT_SECONDS),
            *self._count(taken, _OVERHEAD + len(record), requests=1),
        )
        if found is None and not is_first:  # another process came in between
            (found,) = await self.index.read("read a request", ("GET", key))
        if found is not None:
            return bytes(found)
        if count > MOST_REQUESTS or size > MOST_BYTES:
            await self.index.read("forget a request", ("DEL", key))
            return None
        return b""

    async def finish(self, request: RepeatedRequest, record: bytes) -> None:
        """Store the answer; if it is empty, forget the request, so that it may be repeated."""
        key, taken = self._names(request)
        if not record:
            await self.index.read("forget a request", ("DEL", key))
            return
        await self.index.read(
            "record an answer",
            ("SET", key, record, "XX", "KEEPTTL"),
            *self._count(taken, len(record), requests=0),
        )

    async def resume(self, request: RepeatedRequest, before: bytes, record: bytes) -> bool:
        """Take over a lost request; False if another process has done so since ``before``."""
        key, _ = self._names(request)
        again = f"{key}:{hashlib.sha256(before).hexdigest()[:16]}"
        found, is_first = await self.index.read(
            "resume a request", ("GET", key), ("SET", again, b"", "NX", "EX", KEPT_SECONDS)
        )
        if not is_first or found not in (None, before):
            return False
        await self.index.read("resume a request", ("SET", key, record, "XX", "KEEPTTL"))
        return True

    @staticmethod
    def _count(taken: str, size: int, *, requests: int) -> tuple[tuple[str | int, ...], ...]:
        return (
            ("HINCRBY", taken, "n", requests),
            ("HINCRBY", taken, "b", size),
            ("EXPIRE", taken, KEPT_SECONDS, "NX"),
        )

    def _names(self, request: RepeatedRequest) -> tuple[str, str]:
        names, span = self.index.keys, request.now_us // (KEPT_SECONDS * 1_000_000)
        digest = _digest(request.owner, request.key)
        return names.request(digest), names.requests(request.namespace, span)

    async def take(self, owner: str, *, wanted: int, most: int) -> Taken:
        """Reserve some of the changes of this second; the first reservation begins the second."""
        key = self.index.keys.changes(owner)
        try:
            total, _, rest_ms = await self.index.read(
                "reserve changes",
                ("INCRBY", key, wanted), ("PEXPIRE", key, 1_000, "NX"), ("PTTL", key),
            )  # fmt: skip
        except queue_errors.WriteRefused:
            # A full server counts nothing, and members can still be removed.
            return Taken(wanted, 0)
        return Taken(max(0, min(wanted, most - total + wanted)), 1_000 * max(0, rest_ms))


def _digest(owner: str, key: str) -> str:
    """Return a digest of fixed length for a key of any length, different for each owner."""
    return hashlib.sha256(f"{owner}\n{key}".encode()).hexdigest()[:40]
