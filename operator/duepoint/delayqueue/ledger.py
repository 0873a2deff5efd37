"""The outcomes of runs: the ``runs`` stream of each shard, and the ledger of counted outcomes.

Only the leader reads them. The ``ran`` channels name the shards that have new entries, and it reads
those without blocking. It stores its counts in the same step that removes the entries, so that each
entry counts once, even if the leader changes. A record stays until a status shows it. The length of
a stream is the reader's backlog; a cap bounds it while there is no reader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from duepoint import clock as clocks
from duepoint.delayqueue import index, messages, sharding
from duepoint.delayqueue.wire import scripting, subscription

EntryId = tuple[int, int]

#: Records by their name, with the shards that hold them.
Records = Mapping[str, Sequence[tuple[messages.ShardId, bytes]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeEntry:
    """One entry of a shard's ``runs`` stream, as the reporter reads it.

    Attributes:
        is_lost: written by a claim that was lost: other owners will end its slots.
        back_us: not an outcome, but the instant that the server rolled back to; 0 = outcomes.
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
        """Read the shards of this layout from now on; each of them may have entries."""
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
        """Listen to the shards of the newest layout, if another one was read since."""
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
        """Return the shards that have new entries; all of them after a (re)subscription."""
        await clocks.wait_for(self._changed, timeout_seconds, self.index.clock)
        await self._follow()
        unread, self._unread = sorted(self._unread), set()
        self._changed.clear()
        return tuple(unread)

    async def read_outcomes(
        self, *, shards: Collection[messages.ShardId] | None = None, count: int = 100
    ) -> list[OutcomeEntry]:
        """Return entries of these shards (default all), oldest first, at most ``count`` of each."""
        await self._follow()
        asked = list(self._shards if shards is None else shards)
        replies = await self.index.read(
            "read outcomes",
            *(
                ("XRANGE", self.index.shard(shard).runs, "-", "+", "COUNT", count)
                for shard in asked
            ),
        )
        return [
            _outcome(shard, _text(entry_id), scripting.fields(raw))
            for shard, reply in zip(asked, replies, strict=True)
            for entry_id, raw in reply or ()
        ]

    # -- the ledger ------------------------------------------------------------------------------

    async def records(self) -> Records:
        """Return all records of the ledger."""
        shards = sharding.all_shards(self.index.known_layout())
        commands = [("HGETALL", self.index.shard(shard).ledger) for shard in shards]
        replies = await self.index.read("read the ledger", *commands)
        found: dict[str, list[tuple[messages.ShardId, bytes]]] = {}
        for shard, reply in zip(shards, replies, strict=True):
            for uid, record in scripting.fields(reply).items():
                if not uid:
                    continue  # the sentinel
                found.setdefault(_text(uid), []).append((shard, record))
        return found

    async def store(
        self,
        shard: messages.ShardId,
        records: Mapping[str, bytes],
        *,
        through: str = "",
        shown: Collection[str] = (),
        epoch: messages.Epoch,
    ) -> None:
        """Store records, and remove the entries up to ``through``, which they include.

        Records in ``shown`` are removed: their statuses show them.
        """
        call = self.index.call("recordruns", shard, epoch=epoch)
        pairs = [part for uid, record in records.items() for part in (uid, record)]
        call.put(records=call.run(pairs), shown=call.run(shown))
        if through:
            at_ms, number = order_of(through)
            call.put(behind=f"{at_ms}-{number + 1}")
        await self.index.scripts.run(call)

    # -- entries ---------------------------------------------------------------------------------

    async def dropped(self) -> dict[messages.ShardId, int]:
        """Return, by shard, how many entries were dropped unread since ``forget_dropped``.

        A shard keeps a bounded number of bytes, and nothing older than a week.
        """
        shards = self._shards
        commands = [("HGET", self.index.shard(shard).meta, "runs_dropped") for shard in shards]
        replies = await self.index.read("read how many outcomes were dropped", *commands)
        found = zip(shards, replies, strict=True)
        return {shard: int(count) for shard, count in found if count and int(count) > 0}

    async def forget_dropped(self, dropped: Mapping[messages.ShardId, int]) -> None:
        """Subtract these from the counts of ``dropped``."""
        commands = [
            ("HINCRBY", self.index.shard(shard).meta, "runs_dropped", -count)
            for shard, count in dropped.items()
        ]
        await self.index.read("subtract the dropped outcomes", *commands)

    def _on_subscribed(self) -> None:
        self._unread.update(self._shards)
        self._changed.set()

    def _on_message(self, channel: str, _: bytes) -> None:
        if (shard := self._shard_of.get(channel)) is not None:
            self._unread.add(shard)
            self._changed.set()


def _outcome(shard: messages.ShardId, entry_id: str, fields: dict[bytes, bytes]) -> OutcomeEntry:
    back = fields.get(b"back", b"")
    return OutcomeEntry(
        shard=shard,
        id=entry_id,
        outcomes=fields.get(b"o", b""),
        is_lost=b"lost" in fields,
        back_us=int(back) if back.isdigit() else 0,
    )


def order_of(entry_id: str) -> EntryId:
    """Return the sort key of an entry by its age: milliseconds, and a number."""
    at_ms, _, number = entry_id.partition("-")
    return int(at_ms or 0), int(number or 0)


def _text(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
