"""Texts that many definitions share, and their numbers, as far as this process has seen them.

Numbers are given by the shard and stay the same for one incarnation of it; a shard made anew
(emptied server) gives other ones, so all knowledge of an old incarnation is dropped at once.
Pure memory, bounded by two generations: when the younger is full, the older is forgotten. What was
asked for stays, so that a batch which learns a text cannot lose another that it has just looked up.
"""

from __future__ import annotations

import enum
from typing import Any

from duepoint.delayqueue import messages

#: Texts of all shards together, in both generations.
LIMIT = 200_000


class Kind(enum.StrEnum):
    """First letter of a stored text."""

    NAMESPACE = "n"
    RULE = "r"
    TARGET = "d"


def entry(kind: Kind, text: bytes) -> bytes:
    """The text as it is stored."""
    return kind.value.encode() + text


class _Generation:
    """Numbers and texts of all shards, both ways."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[messages.ShardId, bytes], int] = {}
        self.texts: dict[tuple[messages.ShardId, int], bytes] = {}

    def learn(self, shard: messages.ShardId, number: int, text: bytes) -> None:
        self.numbers[shard, text] = number
        self.texts[shard, number] = text

    def forget(self, shard: messages.ShardId) -> None:
        self.numbers = {key: value for key, value in self.numbers.items() if key[0] != shard}
        self.texts = {key: value for key, value in self.texts.items() if key[0] != shard}


class Interned:
    """What is known of every shard."""

    def __init__(self) -> None:
        self._incarnations: dict[messages.ShardId, str] = {}
        self._young = _Generation()
        self._old = _Generation()
        self._derived: dict[messages.ShardId, dict[bytes, Any]] = {}

    def __len__(self) -> int:
        return len(self._young.texts) + len(self._old.texts)

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
        if len(self._young.texts) >= LIMIT // 2:
            self._old, self._young = self._young, _Generation()
        self._young.learn(shard, number, text)

    def number(self, shard: messages.ShardId, text: bytes) -> int | None:
        young = self._young.numbers.get((shard, text))
        if young is not None:
            return young
        old = self._old.numbers.get((shard, text))
        if old is not None:
            self.learn(shard, old, text)
        return old

    def text(self, shard: messages.ShardId, number: int) -> bytes | None:
        young = self._young.texts.get((shard, number))
        if young is not None:
            return young
        old = self._old.texts.get((shard, number))
        if old is not None:
            self.learn(shard, number, old)
        return old
