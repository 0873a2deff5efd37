"""The ``runs`` streams of all shards, as their reader wants them.

The status writer is the one reader. The ``ran`` channels name the shards that have something new,
and it reads those without blocking. What is acknowledged leaves the stream, so that its length is
how far status lags behind; a cap bounds it while there is no reader. A new reader begins with all
that is there; a mark in each shard says which entries a former one had read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from duepoint import clock as clocks
from duepoint.delayqueue import index, messages, sharding
from duepoint.delayqueue.definitions import records
from duepoint.delayqueue.wire import scripting, subscription

#: The field of ``meta`` with the id of the newest entry that was read.
_READ = "runs_read"

EntryId = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeEntry:
    """One entry of a shard's ``runs`` stream, as the reporter reads it.

    Attributes:
        was_read: another process had read it, and may have written it to a status.
        is_lost: written by a claim that did not exist (any more): its slots are for others to end.
        back_us: not outcomes, but that the server went back; 0 = outcomes.
    """

    shard: messages.ShardId
    id: str
    outcomes: bytes
    was_read: bool = False
    is_lost: bool = False
    back_us: int = 0


@dataclass(eq=False)
class Ledger:
    """The ``runs`` streams as the one status writer reads them; the layout must have been read."""

    index: index.Index

    def __post_init__(self) -> None:
        self._changed = asyncio.Event()
        self._is_started = False
        self._marks: dict[messages.ShardId, EntryId] = {}
        self._use(self.index.known_layout())

    def _use(self, layout: messages.Layout) -> None:
        """Look at the shards of this layout from now on; every one of them may have something."""
        self._layout = layout
        self._shards = sharding.all_shards(layout)
        self._unread: set[messages.ShardId] = set(self._shards)
        self._changed.set()
        self._shard_of = {self.index.shard(shard).ran: shard for shard in self._shards}
        self._subscription = subscription.Subscription(
            self.index.servers,
            tuple(self._shard_of),
            on_subscribed=self._on_subscribed,
            on_message=self._on_message,
            clock=self.index.clock,
        )

    async def _follow(self) -> None:
        """The layout may have been read anew since: listen to the shards that it has now."""
        if self.index.known_layout() == self._layout:
            return
        await self._subscription.close()
        self._use(self.index.known_layout())
        if self._is_started:
            await self._subscription.start()

    async def start(self) -> None:
        """Subscribe; the first ``wait_for_outcomes`` returns at once."""
        self._is_started = True
        self.index.on_layout.append(self._changed.set)
        await self._follow()
        await self._subscription.start()

    async def close(self) -> None:
        if self._changed.set in self.index.on_layout:
            self.index.on_layout.remove(self._changed.set)
        await self._subscription.close()

    async def wait_for_outcomes(self, timeout_seconds: float) -> tuple[messages.ShardId, ...]:
        """The shards to which something was added; all of them after a (re)subscription."""
        await clocks.wait_for(self._changed, timeout_seconds, self.index.clock)
        await self._follow()
        unread, self._unread = sorted(self._unread), set()
        self._changed.clear()
        return tuple(unread)

    async def read_outcomes(
        self,
        behind: Mapping[messages.ShardId, str],
        *,
        shards: Collection[messages.ShardId] | None = None,
        count: int = 100,
    ) -> list[OutcomeEntry]:
        """Entries of these shards (default all), the oldest first, at most ``count`` of each.

        It is noted that they were read before they are answered with: the next process takes them
        for some that a status may show.

        Args:
            behind: ids, behind which a shard is read; from its beginning where it has none.
        """
        await self._follow()
        asked = list(self._shards if shards is None else shards)
        if unknown := [shard for shard in asked if shard not in self._marks]:
            await self._read_marks(unknown)
        replies = await self.index.read(
            "read outcomes",
            *(
                ("XRANGE", self.index.shard(shard).runs, first, "+", "COUNT", count)
                for shard in asked
                for first in (f"({behind[shard]}" if shard in behind else "-",)
            ),
        )
        found = [
            (shard, [(_text(entry_id), fields) for entry_id, fields in reply])
            for shard, reply in zip(asked, replies, strict=True)
            if reply
        ]
        if not found:
            return []
        await self.index.read(
            "note which outcomes were read",
            *(
                ("HSET", self.index.shard(shard).meta, _READ, entries[-1][0])
                for shard, entries in found
            ),
        )
        return [
            _outcome(shard, entry_id, scripting.fields(raw), self._marks[shard])
            for shard, entries in found
            for entry_id, raw in entries
        ]

    async def _read_marks(self, shards: Sequence[messages.ShardId]) -> None:
        """What another process had read of these shards, when this one first reads them."""
        commands = [("HMGET", self.index.shard(shard).meta, _READ) for shard in shards]
        replies = await self.index.read("read which outcomes were read", *commands)
        for shard, (mark,) in zip(shards, replies, strict=True):
            self._marks[shard] = order_of(_text(mark or b""))

    async def ack(self, entries: Sequence[OutcomeEntry]) -> None:
        """Remove entries whose outcomes are in the status."""
        by_shard: dict[messages.ShardId, list[str]] = {}
        for entry in entries:
            by_shard.setdefault(entry.shard, []).append(entry.id)
        commands = [("XDEL", self.index.shard(shard).runs, *ids) for shard, ids in by_shard.items()]
        await self.index.read("remove outcomes", *commands)

    async def dropped(self) -> dict[messages.ShardId, int]:
        """Entries dropped, unread or unacknowledged, since ``forget_dropped`` by shard.

        A shard holds a bounded number of bytes, and nothing older than a week.
        """
        shards = self._shards
        commands = [("HGET", self.index.shard(shard).meta, "runs_dropped") for shard in shards]
        replies = await self.index.read("read what was dropped", *commands)
        found = zip(shards, replies, strict=True)
        return {shard: int(count) for shard, count in found if count and int(count) > 0}

    async def forget_dropped(self, dropped: Mapping[messages.ShardId, int]) -> None:
        """Subtract these from what ``dropped`` counts."""
        commands = [
            ("HINCRBY", self.index.shard(shard).meta, "runs_dropped", -count)
            for shard, count in dropped.items()
        ]
        await self.index.read("note what was dropped", *commands)

    def _on_subscribed(self) -> None:
        self._unread.update(self._shards)
        self._changed.set()

    def _on_message(self, channel: str, _: bytes) -> None:
        if (shard := self._shard_of.get(channel)) is not None:
            self._unread.add(shard)
            self._changed.set()


def _outcome(
    shard: messages.ShardId, entry_id: str, fields: dict[bytes, bytes], mark: EntryId
) -> OutcomeEntry:
    back = fields.get(b"back", b"")
    return OutcomeEntry(
        shard=shard,
        id=entry_id,
        outcomes=b"" if b"back" in fields else _packed(fields),
        was_read=order_of(entry_id) <= mark,
        is_lost=b"lost" in fields,
        back_us=int(back) if back.isdigit() else 0,
    )


def order_of(entry_id: str) -> EntryId:
    """Entries of one stream by age: milliseconds, and a number."""
    at_ms, _, number = entry_id.partition("-")
    return int(at_ms or 0), int(number or 0)


def _packed(fields: dict[bytes, bytes]) -> bytes:
    """The outcomes of an entry, or of the retry that a script buried; empty if unreadable."""
    if b"o" in fields:
        return fields[b"o"]
    member, record = fields.pop(b"member", b""), fields.pop(b"record", b"")
    named = {_text(name): _text(value) for name, value in fields.items()}
    return records.buried_event(named, member, record)


def _text(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
