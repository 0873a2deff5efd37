"""Compiled expressions, kept by what they are compiled from and bounded by their size.

Two generations: when the younger one is full, the older one goes and the younger one takes its
place. So what was used since the last change stays, and a look-up costs one or two dictionaries.
Threads may share it.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from duepoint import expressions

#: Of each of the two generations: some 10,000 expressions such as ``30 2 * * 1-5``. A tenant may
#: write any number of them; the largest have 300 KB.
GENERATION_BYTES = 40 << 20
#: What stands for a key that has no expression of its own.
_OF_NOTHING = 500


class KeptExpression(NamedTuple):
    """An answer: the expression, or None where there is none under this key."""

    expression: expressions.Expression | None
    size_bytes: int


class KeptExpressions:
    """Answers by key.

    Args:
        generation_bytes: what each of the two generations may count for.
    """

    def __init__(self, generation_bytes: int = GENERATION_BYTES) -> None:
        self._most = generation_bytes
        self.clear()

    def clear(self) -> None:
        """Forget all."""
        self._young: dict[Hashable, KeptExpression] = {}
        self._old: dict[Hashable, KeptExpression] = {}
        self._bytes = 0

    @property
    def size_bytes(self) -> int:
        """What both generations count for."""
        return sum(each.size_bytes for each in [*self._young.values(), *self._old.values()])

    def get(self, key: Hashable) -> KeptExpression | None:
        """What is kept under the key; None = nothing is."""
        found = self._young.get(key)
        if found is None and (found := self._old.pop(key, None)) is not None:
            self._add(key, found)
        return found

    def put(self, key: Hashable, compiled: expressions.Expression | None) -> None:
        """Keep it for a while."""
        size = _OF_NOTHING if compiled is None else expressions.size_of(compiled)
        self._add(key, KeptExpression(compiled, size))

    def _add(self, key: Hashable, kept: KeptExpression) -> None:
        self._young[key] = kept
        self._bytes += kept.size_bytes
        if self._bytes > self._most:
            self._old, self._young, self._bytes = self._young, {}, 0
