"""Users' streams: registers them within the quota of their namespace, and appends entries.

The operator enlists the stream of a Schedule before it arms it; workers never check, so this adds
no cost to firing. A stream keeps its place in the quota as long as its key exists. The key is
created at once, without an entry, so that an unused stream has a place, too. The places of deleted
keys are freed when another stream needs one.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from duepoint.delayqueue import index, messages, quotas
from duepoint.delayqueue.wire import scripting

#: A consumer group that exists for a moment: only one can create a stream without an entry.
_MAKER = "duepoint-maker"


@dataclass(eq=False)
class Streams:
    """Registers users' streams, and appends entries to them."""

    index: index.Index
    quotas: quotas.Quotas

    def __post_init__(self) -> None:
        # Without it, an enlisted stream would look deleted until its key is created.
        self._enlisting = asyncio.Lock()

    async def enlist(self, namespace: str, name: str, *, anyhow: bool = False) -> bool:
        """Register a stream of its namespace and create it; False if the quota is used up.

        Args:
            anyhow: ignore the quota.
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
            "look a stream up", ("SISMEMBER", key, name), ("SCARD", key)
        )
        if not is_there and (anyhow or count < self.quotas.streams):
            await self.index.read("enlist a stream", ("SADD", key, name))
            return True
        return bool(is_there)

    async def _prepare(self, stream: str, state: str) -> None:
        """Create the stream and its counters; existing keys, of any type, stay.

        A script that names a missing key has to wait while its slot migrates to another node.
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
        """Free the places of the namespace's deleted streams; return how many there were."""
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
        """Append entries without a settlement, all or none, in one script; return their ids.

        For a cluster, where one script cannot also settle. Raises ``errors.WrongType``, and
        QueueUnavailable if it is unknown whether they were appended.
        """
        call = scripting.ScriptCall("append", ())
        self.put_entries(call, [entries])
        ids = await self.index.pipelined.run(call)
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
        """Return the keys of the stream and of its counters."""
        names = self.index.keys
        return names.stream(namespace, name), names.stream_state(namespace, name)


def _entries(call: scripting.ScriptCall, entries: messages.StreamEntries) -> dict[str, object]:
    """Return one stream's entries as arguments; values common to all are sent only once."""
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
        "names": call.run((*entries.names, *entries.same[::2])),
        "common": call.run((*(column[0] for column in columns), *entries.same[1::2])),
        "own": own,
        "values": call.run(itertools.chain.from_iterable(values)),
    }
