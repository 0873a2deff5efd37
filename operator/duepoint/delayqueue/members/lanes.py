"""The lanes of sets: in each shard the number that stands for a set.

The operator gives a set its number when it stores the set's entry; all others read it. Numbers are
remembered with the interned texts, and forgotten with the life of their shard.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import index, messages, sharding
from duepoint.delayqueue.definitions import interning, reading
from duepoint.schedules.sets import identity as setidentity


def entry_field(lane: int) -> str:
    """The field of ``meta`` that says what may happen to the members of a set."""
    return f"s{lane}"


def count_field(lane: int) -> str:
    """The field of ``meta`` that counts the members of a set."""
    return f"c{lane}"


def tally_field(owner: setidentity.SetIdentity) -> str:
    """The field of ``meta`` that says how slots of a set's members have ended (runs.lua)."""
    return f"t{owner.uid}"


def text_of(owner: setidentity.SetIdentity) -> bytes:
    """The set's interned text."""
    return interning.entry(interning.TextKind.SET, owner.text)


@dataclass(eq=False)
class SetLanes:
    """Reads the numbers of sets."""

    index: index.Index
    reader: reading.DefinitionReader
    interned: interning.Interned

    async def of(
        self, shards: Iterable[messages.ShardId], owner: setidentity.SetIdentity
    ) -> dict[messages.ShardId, int]:
        """The number in each shard; one that never met the set is absent.

        Raises LayoutChanged or Uninitialised where a shard is not what its number says.
        """
        text = text_of(owner)
        found: dict[messages.ShardId, int] = {}
        unknown: list[messages.ShardId] = []
        for shard in shards:
            number = self.interned.number(shard, text)
            if number is None:
                unknown.append(shard)
            else:
                found[shard] = number
        if unknown:
            found.update(await self._read(unknown, text))
        return found

    async def within(
        self,
        layout: messages.Layout,
        shards: Iterable[messages.ShardId],
        owner: setidentity.SetIdentity,
    ) -> dict[messages.ShardId, int]:
        """As ``of`` shards of this layout; a former one may be closed and has none then."""
        try:
            return await self.of(shards, owner)
        except queue_errors.LayoutChanged:
            if layout.number == self.index.known_layout().number:
                raise
            return {}

    async def everywhere(self, owner: setidentity.SetIdentity) -> dict[messages.ShardId, int]:
        """The number in each shard that may hold members, those of a former layout first."""
        layout = self.index.known_layout()
        numbers: dict[messages.ShardId, int] = {}
        for each in filter(None, (layout.former, layout)):
            numbers.update(await self.within(each, sharding.own_shards(each), owner))
        return numbers

    async def _read(
        self, shards: list[messages.ShardId], text: bytes
    ) -> dict[messages.ShardId, int]:
        commands: list[tuple[str | bytes, ...]] = []
        for shard in shards:
            names = self.index.shard(shard)
            commands.append(("HMGET", names.meta, "layout", "incarnation"))
            commands.append(("HMGET", names.interned, b"t:" + text))
        replies = iter(await self.index.read("read the numbers of a set", *commands))
        found: dict[messages.ShardId, int] = {}
        for shard, meta, (number,) in zip(shards, replies, replies, strict=True):
            self.reader.check_meta(shard, meta)
            if number is not None and number.isdigit():
                found[shard] = int(number)
                self.interned.learn(shard, int(number), text)
        return found
