"""The outcome streams of the queue in memory: ``ledger.Ledger`` for tests.

Entries that were read stay pending for the group until they are acknowledged, as in a consumer
group of Redis; the clock of pending entries is not modelled (recovery takes all of them).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

from duepoint import clock as clocks
from duepoint.delayqueue import ledger, messages
from tests.fakes import memoryshard


class MemoryLedger:
    """``ledger.Ledger`` over the shards' dictionaries."""

    def __init__(
        self,
        shards: dict[messages.ShardId, memoryshard.MemoryShard],
        check: Callable[[], None],
        clock: clocks.Clock,
    ) -> None:
        self._shards = shards
        self._check = check
        self._clock = clock
        self._read_up_to: dict[tuple[str, messages.ShardId], int] = {}
        self._told = set(shards)
        self._something = asyncio.Event()

    async def start(self) -> None:
        self._told.update(self._shards)
        self._something.set()

    async def close(self) -> None:
        pass

    def flush(self) -> None:
        """The streams and their groups are gone."""
        self._read_up_to.clear()

    def tell(self, shard: messages.ShardId) -> None:
        self._told.add(shard)
        self._something.set()

    async def wait_for_outcomes(self, timeout_seconds: float) -> tuple[messages.ShardId, ...]:
        await clocks.wait_for(self._something, timeout_seconds, self._clock)
        told, self._told = sorted(self._told), set()
        self._something.clear()
        return tuple(told)

    async def read_outcomes(
        self,
        group: str,
        consumer: str,
        *,
        shards: Collection[messages.ShardId] | None = None,
        count: int = 100,
    ) -> list[ledger.OutcomeEntry]:
        self._check()
        entries = []
        for shard in self._shards if shards is None else shards:
            seen = self._read_up_to.get((group, shard), 0)
            new = [n for n in self._shards[shard].outcomes if n > seen][:count]
            if new:
                self._read_up_to[group, shard] = new[-1]
            entries += [self._entry(shard, number) for number in new]
        return entries

    async def recover_outcomes(
        self,
        group: str,
        consumer: str,
        *,
        idle_seconds: float = 0.0,
    ) -> list[ledger.OutcomeEntry]:
        self._check()
        return [
            self._entry(shard, number)
            for shard, state in self._shards.items()
            for number in state.outcomes
            if number <= self._read_up_to.get((group, shard), 0)
        ]

    async def ack(self, group: str, entries: Sequence[ledger.OutcomeEntry]) -> None:
        self._check()
        for entry in entries:
            self._shards[entry.shard].outcomes.pop(int(entry.id.partition("-")[0]), None)

    async def dropped(self) -> dict[messages.ShardId, int]:
        self._check()
        return {shard: state.dropped for shard, state in self._shards.items() if state.dropped}

    async def forget_dropped(self, dropped: Mapping[messages.ShardId, int]) -> None:
        for shard, count in dropped.items():
            self._shards[shard].dropped -= count

    def _entry(self, shard: messages.ShardId, number: int) -> ledger.OutcomeEntry:
        state = self._shards[shard]
        return ledger.OutcomeEntry(
            shard=shard,
            id=f"{number}-0",
            outcomes=state.outcomes[number],
            is_lost=number in state.lost,
            back_us=state.fallbacks.get(number, 0),
        )
