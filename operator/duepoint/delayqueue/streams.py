"""Which streams of users a namespace has, so that it has no more than it may.

The operator enlists the stream of a Schedule before it arms it; workers never ask, so firing costs
nothing more. A stream has its place for as long as its key exists; the key is made at once, without
an entry, so that a stream that has not been used yet has a place, too. Names of keys that somebody
has deleted give theirs back when a place is wanted.
"""

from __future__ import annotations

import asyncio

from duepoint.delayqueue import index, quotas
from duepoint.delayqueue.wire import scripting


class Streams:
    """Users' streams: their places, and entries for them."""

    def __init__(
        self,
        *,
        index: index.Index,
        quotas: quotas.Quotas,
    ) -> None:
        self._index = index
        self._quotas = quotas

    #: What was enlisted is not taken for a deleted one before its key is made.
    _enlisting: asyncio.Lock | None = None

    async def enlist(self, namespace: str, name: str, *, anyhow: bool = False) -> bool:
        """The stream is one of its namespace's and exists; False where that has its number.

        Args:
            anyhow: however many there are.
        """
        if self._enlisting is None:
            self._enlisting = asyncio.Lock()
        async with self._enlisting:
            is_enlisted = await self._enlist(namespace, name, anyhow=anyhow)
            if not is_enlisted and await self._forget_deleted(namespace):
                is_enlisted = await self._enlist(namespace, name, anyhow=anyhow)
            if is_enlisted:
                keys = (
                    self._index.keys.stream(namespace, name),
                    self._index.keys.stream_state(namespace, name),
                )
                await self._index.scripts.run(scripting.Arguments().call("prepare", keys))
        return is_enlisted

    async def _enlist(self, namespace: str, name: str, *, anyhow: bool) -> bool:
        arguments = scripting.Arguments(name=name, most=self._quotas.streams, anyhow=anyhow)
        call = arguments.call("enlist", [self._index.keys.streams(namespace)])
        reply: bytes = await self._index.scripts.run(call)
        return reply != b"FULL"

    async def _forget_deleted(self, namespace: str) -> int:
        """How many streams of the namespace do not exist any more; they have no place now."""
        key = self._index.keys.streams(namespace)
        (members,) = await self._index.read("read the streams of a namespace", ("SMEMBERS", key))
        names = sorted(member.decode(errors="replace") for member in members)
        found = await self._index.read(
            "look for the streams of a namespace",
            *(("EXISTS", self._index.keys.stream(namespace, name)) for name in names),
        )
        gone = [name for name, exists in zip(names, found, strict=True) if not exists]
        if gone:
            await self._index.read("forget deleted streams", ("SREM", key, *gone))
        return len(gone)
