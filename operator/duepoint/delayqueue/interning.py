"""Texts that many definitions share, and their numbers, as far as this process has seen them.

Numbers are given by the shard and stay the same for one incarnation of it; a shard made anew
(emptied server) gives other ones, so all knowledge of an old incarnation is dropped at once.
Pure memory, bounded: when full it forgets everything and asks again.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

from duepoint.delayqueue import messages

_LIMIT = 200_000  # texts of all shards together


class Kind(enum.StrEnum):
    """First letter of a stored text."""

    NAMESPACE = "n"
    RULE = "r"
    TARGET = "d"


def entry(kind: Kind, text: bytes) -> bytes:
    """The text as it is stored."""
    return kind.value.encode() + text


class Interned:
    """What is known of every shard."""

    def __init__(self) -> None:
        self._incarnations: dict[messages.ShardId, str] = {}
        self._numbers: dict[tuple[messages.ShardId, bytes], int] = {}
        self._texts: dict[tuple[messages.ShardId, int], bytes] = {}

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
        self._numbers = {key: value for key, value in self._numbers.items() if key[0] != shard}
        self._texts = {key: value for key, value in self._texts.items() if key[0] != shard}

    def learn(self, shard: messages.ShardId, number: int, text: bytes) -> None:
        if len(self._numbers) >= _LIMIT:
            self._numbers.clear()
            self._texts.clear()
        self._numbers[shard, text] = number
        self._texts[shard, number] = text

    def number(self, shard: messages.ShardId, text: bytes) -> int | None:
        return self._numbers.get((shard, text))

    def text(self, shard: messages.ShardId, number: int) -> bytes | None:
        return self._texts.get((shard, number))

    def unknown(self, shard: messages.ShardId, texts: Iterable[bytes]) -> list[bytes]:
        return [text for text in texts if (shard, text) not in self._numbers]
