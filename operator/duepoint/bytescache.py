"""What is kept to be used again, bounded by bytes, with a share for each namespace.

Entries are as large as their authors make them, so a bound of their number bounds nothing. While
there is room every namespace keeps what it likes. When there is none, the longest unused entry of
the namespace that holds the most goes: a flood of one namespace pushes out its own, and never those
of a namespace that holds less. An entry that would fill more than half is not kept at all.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")


class BytesCache(Generic[KeyT, ValueT]):
    """Values by namespace and key.

    Attributes:
        size: bytes of all that is kept, as those who put it said.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._kept: dict[str, OrderedDict[KeyT, tuple[ValueT, int]]] = {}
        self._sizes: dict[str, int] = {}
        self.size = 0

    def get(self, namespace: str, key: KeyT) -> ValueT | None:
        """What is kept; it counts as used just now."""
        entries = self._kept.get(namespace)
        found = None if entries is None else entries.get(key)
        if entries is None or found is None:
            return None
        entries.move_to_end(key)
        return found[0]

    def peek(self, namespace: str, key: KeyT) -> ValueT | None:
        """The same, without counting as a use."""
        entries = self._kept.get(namespace)
        found = None if entries is None else entries.get(key)
        return None if found is None else found[0]

    def put(self, namespace: str, key: KeyT, value: ValueT, size: int) -> None:
        """Keep it, so many bytes, in place of what the key had."""
        self.drop(namespace, key)
        if size > self._most // 2:
            return
        self._kept.setdefault(namespace, OrderedDict())[key] = value, size
        self._grow(namespace, size)
        while self.size > self._most:
            largest = max(self._sizes, key=self._sizes.__getitem__)
            self.drop(largest, next(iter(self._kept[largest])))

    def drop(self, namespace: str, key: KeyT) -> None:
        """Keep it no longer, if it is."""
        entries = self._kept.get(namespace)
        gone = None if entries is None else entries.pop(key, None)
        if gone is None:
            return
        self._grow(namespace, -gone[1])
        if not entries:
            del self._kept[namespace], self._sizes[namespace]

    def bytes_of(self, namespace: str) -> int:
        """What a namespace holds."""
        return self._sizes.get(namespace, 0)

    def __len__(self) -> int:
        return sum(map(len, self._kept.values()))

    def _grow(self, namespace: str, size: int) -> None:
        self._sizes[namespace] = self._sizes.get(namespace, 0) + size
        self.size += size
