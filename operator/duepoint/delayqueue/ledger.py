"""The ``runs`` streams of all shards, as their reader wants them.

The status writer is one consumer of one group. The ``ran`` channels name the shards that
have something new, and it reads those without blocking; it takes over entries that were read and
never acknowledged (a crash) at the start. What is acknowledged leaves the stream, so that its
length is how far status lags behind; a cap bounds it while there is no reader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from duepoint import clock as clocks
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import index, messages, sharding
from duepoint.delayqueue.definitions import records
from duepoint.delayqueue.wire import scripting, subscription


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeEntry:
    """One entry of a shard's ``runs`` stream, as the reporter reads it.

    Attributes:
        is_lost: written by a claim that did not exist (any more): its slots are for others to end.
        back_us: not outcomes, but that the server went back; 0 = outcomes.
    """

    shard: messages.ShardId
    id: str
    outcomes: bytes
    is_lost: bool = False
    back_us: int = 0


@dataclass(eq=False)
class Ledger:
    """The ``runs`` streams as the one status writer reads them; the layout must have been read."""

    index: index.Index

    def __post_init__(self) -> None:
        self._changed = asyncio.Event()
        self._is_started = False
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
        group: str,
        consumer: str,
        *,
        shards: Collection[messages.ShardId] | None = None,
        count: int = 100,
    ) -> list[OutcomeEntry]:
        """New entries of these shards (default all), at most ``count`` of each."""
        await self._follow()
        asked = list(self._shards if shards is None else shards)
        replies = await self._in_group(
            group,
            asked,
            lambda shard: (
                "XREADGROUP", "GROUP", group, consumer, "COUNT", count,
                "STREAMS", self.index.shard(shard).runs, ">",
            ),
        )  # fmt: skip
        entries = []
        for shard, reply in zip(asked, replies, strict=True):
            for _, found in reply or ():
                entries += _outcomes(shard, found)
        return entries

    async def recover_outcomes(
        self, group: str, consumer: str, *, idle_seconds: float = 0.0
    ) -> list[OutcomeEntry]:
        """Entries that any consumer read and did not acknowledge; they are this consumer's now."""
        await self._follow()
        idle_ms = int(idle_seconds * 1_000)
        entries: list[OutcomeEntry] = []
        cursors = dict.fromkeys(self._shards, "0-0")
        while cursors:
            asked = list(cursors)
            replies = await self._in_group(
                group,
                asked,
                lambda shard: (
                    "XAUTOCLAIM", self.index.shard(shard).runs, group, consumer, idle_ms,
                    cursors[shard], "COUNT", 100,
                ),
            )  # fmt: skip
            for shard, reply in zip(asked, replies, strict=True):
                cursor, found, *_ = reply or (b"0-0", ())
                entries += _outcomes(shard, found)
                cursors[shard] = _text(cursor)
                if cursors[shard] == "0-0":
                    del cursors[shard]
        return entries

    async def ack(self, group: str, entries: Sequence[OutcomeEntry]) -> None:
        """Remove entries whose outcomes are in the status."""
        by_shard: dict[messages.ShardId, list[str]] = {}
        for entry in entries:
            by_shard.setdefault(entry.shard, []).append(entry.id)
        commands: list[tuple[Any, ...]] = []
        for shard, ids in by_shard.items():
            runs = self.index.shard(shard).runs
            commands += (("XACK", runs, group, *ids), ("XDEL", runs, *ids))
        if commands:
            await self.index.read("acknowledge outcomes", *commands)

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

    async def _in_group(
        self,
        group: str,
        shards: Sequence[messages.ShardId],
        command: Callable[[messages.ShardId], tuple[Any, ...]],
    ) -> list[Any]:
        """The command for each shard in one round trip; a missing group is made first."""
        for last in (False, True):
            commands = [command(shard) for shard in shards]
            replies = await self.index.servers.exchange(commands)
            replies = [
                None if self._is_closed(shard, reply) else reply
                for shard, reply in zip(shards, replies, strict=True)
            ]
            failed = [reply for reply in replies if isinstance(reply, Exception)]
            if not failed:
                return replies
            # Of several servers each may have a trouble of its own: a missing group is none.
            others = [error for error in failed if not str(error).startswith("NOGROUP")]
            if others:
                raise scripting.translated(others[0], "read outcomes") from others[0]
            if last:  # the group could not be made: there is no stream to make it on
                raise queue_errors.Uninitialised("the index holds no outcomes") from failed[0]
            # Only on streams that exist: nothing but ``init`` makes a shard.
            await self.index.servers.exchange(
                [("XGROUP", "CREATE", self.index.shard(each).runs, group, "0") for each in shards]
            )
        return []  # pragma: no cover

    def _is_closed(self, shard: messages.ShardId, reply: object) -> bool:
        """A former shard without a stream was emptied to the last entry, and closed."""
        is_former = sharding.layout_of(shard) != self._layout.number
        return is_former and isinstance(reply, Exception) and str(reply).startswith("NOGROUP")

    def _on_subscribed(self) -> None:
        self._unread.update(self._shards)
        self._changed.set()

    def _on_message(self, channel: str, _: bytes) -> None:
        if (shard := self._shard_of.get(channel)) is not None:
            self._unread.add(shard)
            self._changed.set()


def _outcomes(shard: messages.ShardId, found: Sequence[Any]) -> list[OutcomeEntry]:
    entries = []
    for entry_id, raw in found:
        fields = scripting.fields(raw) if raw else {}
        if not fields:
            continue
        back = fields.get(b"back", b"")
        entries.append(
            OutcomeEntry(
                shard=shard,
                id=_text(entry_id),
                outcomes=b"" if b"back" in fields else _packed(fields),
                is_lost=b"lost" in fields,
                back_us=int(back) if back.isdigit() else 0,
            )
        )
    return entries


def _packed(fields: dict[bytes, bytes]) -> bytes:
    """The outcomes of an entry, or of the retry that a script buried; empty if unreadable."""
    if b"o" in fields:
        return fields[b"o"]
    member, record = fields.pop(b"member", b""), fields.pop(b"record", b"")
    named = {_text(name): _text(value) for name, value in fields.items()}
    return records.buried_event(named, member, record)


def _text(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
