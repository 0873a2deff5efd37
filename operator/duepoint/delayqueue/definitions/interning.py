"""Texts that many definitions share, and the numbers that stand for them.

A shard gives each text (namespace, rule, target, set) a number, which stays the same for one
incarnation of the shard; a shard created anew gives other ones, so all knowledge of an earlier
incarnation is dropped at once. ``Interned`` remembers numbers and texts. It is bounded by two
generations: when the younger is full, the older is forgotten. A text that was asked for stays, so
a batch that learns one text cannot lose another that it has just looked up.

``Numbering`` asks a shard for numbers. A full server gives no new numbers; those that it has given
are read, so that a process without a memory of them can delete by them, which makes room.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import index, messages, sharding
from duepoint.schedules import definition as definitions

#: What is remembered of all shards, in both generations. Each shard's number for a text counts as
#: one, some 125 bytes; a short text itself takes as much as three of them, and a long one by its
#: length: 100 MB at most in all. A rule for each minute of a day in each of 256 shards fits into
#: the younger generation alone.
LIMIT = 800_000
_TEXT_SIZE = 3
_UNIT_BYTES = 128


class TextKind(enum.StrEnum):
    """First letter of a stored text."""

    NAMESPACE = "n"
    RULE = "r"
    TARGET = "d"
    SET = "s"


def entry(kind: TextKind, text: bytes) -> bytes:
    """The text as it is stored."""
    return kind.value.encode() + text


def lane_text(known: definitions.Definition) -> bytes:
    """The text whose number names the lane of a definition: that of its set or namespace."""
    if known.owner is not None:
        return entry(TextKind.SET, known.owner.text)
    return entry(TextKind.NAMESPACE, known.namespace.encode())


class _Generation:
    """Numbers and texts of all shards, both ways.

    Attributes:
        numbers: of each text, by shard. Many shards have the same texts.
        texts: of each shard, by number.
        size: what they take, in the unit of ``LIMIT``.
    """

    def __init__(self) -> None:
        self.numbers: dict[bytes, dict[messages.ShardId, int]] = {}
        self.texts: dict[messages.ShardId, dict[int, bytes]] = {}
        self.size = 0

    def learn(self, shard: messages.ShardId, number: int, text: bytes) -> None:
        by_shard = self.numbers.get(text)
        if by_shard is None:
            by_shard = self.numbers[text] = {}
            self.size += _TEXT_SIZE + len(text) // _UNIT_BYTES
        self.size += shard not in by_shard
        by_shard[shard] = number
        self.texts.setdefault(shard, {})[number] = text

    def number(self, shard: messages.ShardId, text: bytes) -> int | None:
        by_shard = self.numbers.get(text)
        return None if by_shard is None else by_shard.get(shard)

    def text(self, shard: messages.ShardId, number: int) -> bytes | None:
        by_number = self.texts.get(shard)
        return None if by_number is None else by_number.get(number)

    def forget(self, shard: messages.ShardId) -> None:
        for text in self.texts.pop(shard, {}).values():
            by_shard = self.numbers.get(text)
            if by_shard is not None and by_shard.pop(shard, None) is not None:
                self.size -= 1


class Interned:
    """What is known of every shard."""

    def __init__(self) -> None:
        self._incarnations: dict[messages.ShardId, str] = {}
        self._young = _Generation()
        self._old = _Generation()
        self._derived: dict[messages.ShardId, dict[bytes, Any]] = {}

    def __len__(self) -> int:
        return self._young.size + self._old.size

    def incarnation(self, shard: messages.ShardId) -> str | None:
        return self._incarnations.get(shard)

    def see(self, shard: messages.ShardId, incarnation: str) -> None:
        """Drop what was known of another incarnation of this shard."""
        known = self._incarnations.get(shard)
        if known is not None and known != incarnation:
            self.forget(shard)
        self._incarnations[shard] = incarnation

    def forget(self, shard: messages.ShardId) -> None:
        self._incarnations.pop(shard, None)
        self._derived.pop(shard, None)
        self._young.forget(shard)
        self._old.forget(shard)

    def forget_all(self) -> None:
        """Of every shard: what the server says from now on may be of an earlier time."""
        self._incarnations.clear()
        self._derived.clear()
        self._young, self._old = _Generation(), _Generation()

    def derived(self, shard: messages.ShardId) -> dict[bytes, Any]:
        """A place for what was made of this shard's numbers; forgotten with them."""
        return self._derived.setdefault(shard, {})

    def learn(self, shard: messages.ShardId, number: int, text: bytes) -> None:
        if self._young.size >= LIMIT // 2:
            self._old, self._young = self._young, _Generation()
        self._young.learn(shard, number, text)

    def number(self, shard: messages.ShardId, text: bytes) -> int | None:
        young = self._young.number(shard, text)
        if young is not None:
            return young
        old = self._old.number(shard, text)
        if old is not None:
            self.learn(shard, old, text)
        return old

    def text(self, shard: messages.ShardId, number: int) -> bytes | None:
        young = self._young.text(shard, number)
        if young is not None:
            return young
        old = self._old.text(shard, number)
        if old is not None:
            self.learn(shard, number, old)
        return old


@dataclass(eq=False)
class Numbering:
    """Gives texts their numbers, for those who write definitions."""

    index: index.Index
    interned: Interned

    async def intern(
        self,
        shard: messages.ShardId,
        texts: list[bytes],
        epoch: messages.Epoch | None,
        *,
        script: str = "intern",
    ) -> dict[bytes, int]:
        """The number of each text; raises Refused where a full server has none for one of them.

        With the script ``adopt`` it gives new ones all the same.
        """
        upheavals = self.index.servers.changes.upheavals
        of_cached = self.interned.incarnation(shard)
        cached = {text: self.interned.number(shard, text) for text in texts}
        missing = [text for text, number in cached.items() if number is None]
        known = {text: number for text, number in cached.items() if number is not None}
        if not missing:
            return known
        call = self.index.call(script, shard, epoch=epoch)
        call.put(texts=call.run(missing))
        try:
            reply = await self.index.pipelined.run(call)
        except queue_errors.WriteRefused:
            found = await self._given(shard, missing)
            if found is None:
                raise
            reply = found
        if upheavals != self.index.servers.changes.upheavals:
            # The server that gave these numbers may have gone back, and give them to other texts.
            return await self.intern(shard, texts, epoch, script=script)
        incarnation = reply[0].decode()
        self.interned.see(shard, incarnation)
        if known and of_cached != incarnation:  # what was cached is of a former life
            return await self.intern(shard, texts, epoch, script=script)
        for text, number in zip(missing, reply[1:], strict=True):
            self.interned.learn(shard, number, text)
            known[text] = number
        return known

    async def lane_of(
        self, shard: messages.ShardId, known: definitions.Definition, epoch: messages.Epoch | None
    ) -> int:
        """The number of the lane in which a definition's points stand."""
        text = lane_text(known)
        return (await self.intern(shard, [text], epoch))[text]

    async def _given(self, shard: messages.ShardId, texts: list[bytes]) -> list[Any] | None:
        """As the script replies, without writing; None where a text has no number."""
        names = self.index.shard(shard)
        (layout, incarnation), numbers = await self.index.read(
            "read the numbers of texts",
            ("HMGET", names.meta, "layout", "incarnation"),
            ("HMGET", names.interned, *(b"t:" + text for text in texts)),
        )
        is_ours = incarnation and layout == str(sharding.layout_of(shard)).encode()
        if not is_ours or None in numbers:
            return None
        (stand_for,) = await self.index.read(
            "read the numbers of texts",
            ("HMGET", names.interned, *(b"n:" + number for number in numbers)),
        )
        return [incarnation, *map(int, numbers)] if stand_for == texts else None
