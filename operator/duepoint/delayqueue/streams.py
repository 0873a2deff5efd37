"""Users' streams: which ones a namespace has, and entries for them.

The operator enlists the stream of a Schedule before it arms it; workers never ask, so firing costs
nothing more. A stream has its place for as long as its key exists; the key is created at once,
without an entry, so that a stream that has not been used yet has a place, too. Deleted keys give
their places back when a place is wanted.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from duepoint.delayqueue import index, messages, quotas
from duepoint.delayqueue.wire import scripting
from duepoint.schedules import points

#: A group of readers that exists for a moment: without an entry a stream is made by one alone.
_MAKER = "duepoint-maker"


@dataclass(eq=False)
class Streams:
    """Users' streams: their places, and entries for them."""

    index: index.Index
    quotas: quotas.Quotas

    def __post_init__(self) -> None:
        # An enlisted stream is not taken for a deleted one before its key is created.
        self._enlisting = asyncio.Lock()

    async def enlist(self, namespace: str, name: str, *, anyhow: bool = False) -> bool:
        """The stream is one of its namespace's and exists; False where that has its number.

        Args:
            anyhow: however many there are.
        """
        async with self._enlisting:
            is_enlisted = await self._enlist(namespace, name, anyhow=anyhow)
            if not is_enlisted and await self._forget_deleted(namespace):
                is_enlisted = await self._enlist(namespace, name, anyhow=anyhow)
            if is_enlisted:
                await self._prepare(*self._keys(namespace, name))
        return is_enlisted

    async def _enlist(self, namespace: str, name: str, *, anyhow: bool) -> bool:
        key = self.index.keys.streams(namespace)
        is_there, count = await self.index.read(
            "look for a stream's place", ("SISMEMBER", key, name), ("SCARD", key)
        )
        if not is_there and (anyhow or count < self.quotas.streams):
            await self.index.read("enlist a stream", ("SADD", key, name))
            return True
        return bool(is_there)

    async def _prepare(self, stream: str, state: str) -> None:
        """The stream exists, and what is counted of it; what is there, of any type, stays.

        A script that names a key that is not there has to wait while its slot moves to another
        node.
        """
        _, is_there = await self.index.read(
            "prepare a stream", ("HSETNX", state, "in", 0), ("EXISTS", stream)
        )
        if not is_there:
            await self.index.read(
                "make a stream",
                ("XGROUP", "CREATE", stream, _MAKER, "$", "MKSTREAM"),
                ("XGROUP", "DESTROY", stream, _MAKER),
            )

    async def _forget_deleted(self, namespace: str) -> int:
        """How many streams of the namespace do not exist any more; they have no place now."""
        key = self.index.keys.streams(namespace)
        (members,) = await self.index.read("read the streams of a namespace", ("SMEMBERS", key))
        names = sorted(member.decode(errors="replace") for member in members)
        found = await self.index.read(
            "look for the streams of a namespace",
            *(("EXISTS", self.index.keys.stream(namespace, name)) for name in names),
        )
        gone = [name for name, exists in zip(names, found, strict=True) if not exists]
        if gone:
            await self.index.read("forget deleted streams", ("SREM", key, *gone))
        return len(gone)

    async def append(self, entries: messages.StreamEntries) -> list[str]:
        """The entries by themselves, all or none, in one script; their ids.

        For a cluster, where they cannot go in with a settlement. Raises ``errors.WrongType``, and
        QueueUnavailable where it is unknown whether they are in.
        """
        call = scripting.ScriptCall("append", ())
        self.put_entries(call, [entries])
        ids = await self.index.pipelined_appends.run(call)
        return [id_.decode() for id_ in ids]

    def put_entries(
        self, call: scripting.ScriptCall, groups: Sequence[messages.StreamEntries]
    ) -> None:
        """Add entries of several streams, and the streams' keys, to a call."""
        put = []
        for group in groups:
            stream, state = map(call.key, self._keys(group.namespace, group.name))
            where = {"key": stream, "state": state, "most_bytes": self.quotas.of_stream}
            put.append({**_entries(call, group), **where})
        call.put(entries=put)

    def _keys(self, namespace: str, name: str) -> tuple[str, str]:
        """The stream, and what is counted of it."""
        names = self.index.keys
        return names.stream(namespace, name), names.stream_state(namespace, name)


def _entries(call: scripting.ScriptCall, entries: messages.StreamEntries) -> dict[str, object]:
    """One stream's entries; what all of them have alike is sent and handled once."""
    are_chains = set(map(len, entries.members)) == {points.CHAIN_LENGTH}
    columns = list(zip(*entries.values, strict=True))
    own = [
        number
        for number, column in enumerate(columns, start=1)
        if number == 1 or column.count(column[0]) < len(column)
    ]
    values = zip(*(columns[number - 1] for number in own), strict=True)
    common = quotas.entry_bytes(entries.same[1::2])
    size = common * len(entries.members) + sum(len(value) for column in columns for value in column)
    return {
        "bytes": size,
        "max_length": entries.max_length,
        "members": call.run(() if are_chains else entries.members),
        "joined": call.position(b"".join(entries.members)) if are_chains else 0,
        "names": call.run((*entries.names, *entries.same[::2])),
        "common": call.run((*(column[0] for column in columns), *entries.same[1::2])),
        "own": own,
        "values": call.run(itertools.chain.from_iterable(values)),
        "outcome": call.position(entries.outcomes) if entries.outcomes else 0,
    }
