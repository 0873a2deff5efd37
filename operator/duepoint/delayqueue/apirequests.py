"""What the processes of the HTTP API have to know of one another: repeated requests, and rates.

A request with an idempotency key is recorded before it is carried out, and again with its answer,
for a day; a set may have so many in a day. Changes are taken from a set's second in parts, so that
all processes together keep its limit. Both go with the server's data: they are conveniences, not
truths.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from duepoint.delayqueue import index

KEPT_SECONDS = 86_400
#: Requests with a key that one set may have in a day: some 200 bytes each.
MOST_REQUESTS = 1_000_000


@dataclass(frozen=True, slots=True)
class Taken:
    """What a process may change of a set before it asks again.

    Attributes:
        granted: 0 = nothing in this second.
        rest_us: until the next second, by the server's clock.
    """

    granted: int
    rest_us: int


@dataclass(eq=False)
class ApiRequests:
    """Idempotency keys and rates; raises QueueUnavailable."""

    index: index.Index

    async def begin(self, owner: str, key: str, record: bytes, *, now_us: int) -> bytes | None:
        """What an earlier request with this key left; b"" where this is the first one.

        None: the set has had too many in this day.
        """
        span = now_us // (KEPT_SECONDS * 1_000_000)
        names = self.index.keys
        call = self.index.call(
            "request",
            None,
            names.request(_digest(owner, key)),
            names.requests(owner, span),
            record=record,
            most=MOST_REQUESTS,
            seconds=KEPT_SECONDS,
        )
        found = await self.index.scripts.run(call)
        return None if found is None else bytes(found)

    async def finish(self, owner: str, key: str, record: bytes) -> None:
        """Keep the answer; an empty one lets the request be made again."""
        name = self.index.keys.request(_digest(owner, key))
        await self.index.scripts.run(self.index.call("requestdone", None, name, record=record))

    async def resume(self, owner: str, key: str, before: bytes, record: bytes) -> bool:
        """Carry a lost request out again; False where another one does so since ``before``."""
        name = self.index.keys.request(_digest(owner, key))
        call = self.index.call("requestdone", None, name, record=record, before=before)
        return bool(await self.index.scripts.run(call) == b"OK")

    async def take(self, owner: str, *, wanted: int, most: int) -> Taken:
        """Take a part of what may be changed in this second."""
        name = self.index.keys.changes(owner)
        call = self.index.call("takechanges", None, name, wanted=wanted, most=most)
        granted, rest_us = await self.index.scripts.run(call)
        return Taken(int(granted), int(rest_us))


def _digest(owner: str, key: str) -> str:
    """Of one length for keys of any length, and different for each owner."""
    return hashlib.sha256(f"{owner}\n{key}".encode()).hexdigest()[:40]
