"""The dead letters of all shards as one list, newest first, read as far as somebody asks.

Looking takes nothing away; replaying and purging is ``replaying``.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

from duepoint.delayqueue import messages, sharding
from duepoint.delayqueue.inspection import replaying

_LETTERS_TOGETHER = 200


class Letters(replaying.Replaying):
    """letters, letter_of, dropped_letters."""

    async def letters(self) -> AsyncIterator[messages.DeadEntry]:
        """Every dead letter, newest first, read as it is asked for."""
        shards = sharding.all_shards(self._known_layout())
        read = await asyncio.gather(*(self._some_letters(shard, "+") for shard in shards))
        unread = dict(zip(shards, read, strict=True))
        newest = [(_age(found[0]), shard) for shard, found in unread.items() if found]
        heapq.heapify(newest)
        while newest:
            _, shard = heapq.heappop(newest)
            letter = unread[shard].pop(0)
            yield letter
            if not unread[shard]:
                unread[shard] = await self._some_letters(shard, f"({letter.id}")
            if unread[shard]:
                heapq.heappush(newest, (_age(unread[shard][0]), shard))

    async def dropped_letters(self) -> dict[str, int]:
        """How many letters of each namespace went because it had more than it may keep."""
        shards = sharding.all_shards(self._known_layout())
        found = await self._read(
            "read how many dead letters went",
            *(("HGETALL", self._shard(shard).letter_sums) for shard in shards),
        )
        dropped: Counter[str] = Counter()
        for raw in found:
            for name, count in _fields(raw).items():
                if name.startswith(b"d:"):
                    dropped[name[2:].decode(errors="replace")] += int(count)
        return dict(sorted(dropped.items()))

    async def letter_of(
        self, layout: int, shard_number: int, entry_id: str
    ) -> messages.DeadEntry | None:
        """The letter with this id; None where it is not there (any more)."""
        wanted = (layout, shard_number)
        for shard in sharding.all_shards(self._known_layout()):
            if (sharding.layout_of(shard), sharding.index_of(shard)) == wanted:
                return await self._letter(shard, entry_id)
        return None

    async def _letter(self, shard: messages.ShardId, entry_id: str) -> messages.DeadEntry | None:
        (found,) = await self._read(
            "read a dead letter", ("XRANGE", self._shard(shard).dead, entry_id, entry_id)
        )
        return _letter(shard, *found[0]) if found else None

    async def _some_letters(self, shard: messages.ShardId, before: str) -> list[messages.DeadEntry]:
        """Newest first, from ``before`` (an id after a bracket, or ``+``) on."""
        (found,) = await self._read(
            "read dead letters",
            ("XREVRANGE", self._shard(shard).dead, before, "-", "COUNT", _LETTERS_TOGETHER),
        )
        return [_letter(shard, entry_id, fields) for entry_id, fields in found]


def _age(letter: messages.DeadEntry) -> tuple[int, int]:
    milliseconds, _, number = letter.id.partition("-")
    return -int(milliseconds), -int(number or 0)


def _fields(raw: Any) -> dict[bytes, bytes]:  # noqa: ANN401 - the library parses some commands
    return dict(raw) if isinstance(raw, dict) else dict(zip(raw[::2], raw[1::2], strict=True))


def _letter(shard: messages.ShardId, entry_id: bytes, raw: Any) -> messages.DeadEntry:  # noqa: ANN401 - the library parses some commands
    fields = _fields(raw)
    member = fields.pop(b"member", b"")
    return messages.DeadEntry(
        shard=shard,
        id=entry_id.decode(),
        member=member,
        entry={
            name.decode(errors="replace"): value.decode(errors="replace")
            for name, value in fields.items()
        },
    )
