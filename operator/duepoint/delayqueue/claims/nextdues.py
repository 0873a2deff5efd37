"""Chains and their next dues, by column.

A settlement of hundreds of chains is built, joined and written column by column; as a sequence it
is one of (member, due) pairs like any other. Pure.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

Pair = tuple[bytes, int]


class Rearmed(Sequence[Pair]):
    """Pairs of a chain member and its next due, in microseconds.

    Attributes:
        members: stored members.
        dues_us: their next dues, in the same order.
    """

    __slots__ = ("dues_us", "members")

    def __init__(self, members: Sequence[bytes] = (), dues_us: Sequence[int] = ()) -> None:
        self.members = members
        self.dues_us = dues_us

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Pair]:
        return zip(self.members, self.dues_us, strict=True)

    @overload
    def __getitem__(self, index: int) -> Pair: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Pair, ...]: ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(zip(self.members[index], self.dues_us[index], strict=True))
        return self.members[index], self.dues_us[index]


def columns(pairs: Sequence[Pair]) -> Rearmed:
    """These pairs by column."""
    if isinstance(pairs, Rearmed):
        return pairs
    return Rearmed([member for member, _ in pairs], [due_us for _, due_us in pairs])


def joined(parts: Iterable[Sequence[Pair]]) -> Rearmed:
    """All of them, one after the other."""
    listed = [columns(part) for part in parts if part]
    if len(listed) == 1:
        return listed[0]
    return Rearmed(
        list(itertools.chain.from_iterable(part.members for part in listed)),
        list(itertools.chain.from_iterable(part.dues_us for part in listed)),
    )
