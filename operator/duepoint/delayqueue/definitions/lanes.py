"""The lanes of namespaces and sets: in each shard the number that stands for one.

A namespace is the lane of its Schedules as a set is the lane of its members. The operator gives a
lane its number when it stores the first Schedule of the namespace, or the set's entry; all others
read it. Numbers are remembered with the interned texts, and forgotten with the life of their shard.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import index, messages, sharding
from duepoint.delayqueue.definitions import interning, reading
from duepoint.schedules import points


class Lane(NamedTuple):
    """A lane whose rows are written, and by whom.

    Attributes:
        text: its interned text.
        epoch: of a namespace: the term of the leader that writes.
        by_rows: of a set: it is written for the rows of the set.
        drops: the rows are removed.
    """

    text: bytes
    epoch: messages.Epoch | None = None
    by_rows: bool = False
    drops: bool = False

    @property
    def writer(self) -> dict[str, object]:
        """What a script learns of who writes."""
        who: dict[str, object] = {"drops": True} if self.drops else {}
        if self.epoch is None:
            return {**who, "by_rows": self.by_rows}
        return {**who, "epoch": self.epoch}


def entry_field(lane: int) -> str:
    """The field of ``meta`` that says what may happen to the members of a set."""
    return f"s{lane}"


def count_field(lane: int) -> str:
    """The field of ``meta`` that counts the members of a set."""
    return f"c{lane}"


def tally_field(owner: points.SetIdentity) -> str:
    """The field of ``meta`` that says how slots of a set's members have ended (runs.lua)."""
    return f"t{owner.uid}"


def text_of(owner: points.SetIdentity) -> bytes:
    """The set's interned text."""
    return interning.entry(interning.TextKind.SET, owner.text)


def text_of_namespace(namespace: str) -> bytes:
    """The namespace's interned text."""
    return interning.entry(interning.TextKind.NAMESPACE, namespace.encode())


@dataclass(eq=False)
class Lanes:
    """Reads the numbers of lanes."""

    index: index.Index
    reader: reading.DefinitionReader
    interned: interning.Interned

    async def of(
        self, shards: Iterable[messages.ShardId], text: bytes
    ) -> dict[messages.ShardId, int]:
        """The number in each shard; one that never met the lane is absent.

        Raises LayoutChanged or Uninitialised where a shard is not what its number says.
        """
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
        text: bytes,
    ) -> dict[messages.ShardId, int]:
        """As ``of`` shards of this layout; a former one may be closed and has none then."""
        try:
            return await self.of(shards, text)
        except queue_errors.LayoutChanged:
            if layout.number == self.index.known_layout().number:
                raise
            return {}

    async def everywhere(self, text: bytes) -> dict[messages.ShardId, int]:
        """The number in each shard that may hold rows, those of a former layout first."""
        layout = self.index.known_layout()
        numbers: dict[messages.ShardId, int] = {}
        for each in filter(None, (layout.former, layout)):
            numbers.update(await self.within(each, sharding.own_shards(each), text))
        return numbers

    async def _read(
        self, shards: list[messages.ShardId], text: bytes
    ) -> dict[messages.ShardId, int]:
        commands: list[tuple[str | bytes, ...]] = []
        for shard in shards:
            names = self.index.shard(shard)
            commands.append(("HMGET", names.meta, "layout", "incarnation"))
            commands.append(("HMGET", names.interned, b"t:" + text))
        replies = iter(await self.index.read("read the numbers of a lane", *commands))
        found: dict[messages.ShardId, int] = {}
        for shard, meta, (number,) in zip(shards, replies, replies, strict=True):
            self.reader.check_meta(shard, meta)
            if number is not None and number.isdigit():
                found[shard] = int(number)
                self.interned.learn(shard, int(number), text)
        return found
