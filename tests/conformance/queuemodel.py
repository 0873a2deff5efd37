"""A model of the delay queue's core, as plain as possible, for random histories.

It has one shard and one lane. A point waits for its due time or belongs to a claim. A claim lasts
"for ever" or not at all (its lease has already expired when it begins), so that histories need no
waiting. The model has no clock, and no bytes except the members' own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

FOR_EVER = 600.0  # longer than any history, and no longer than a lease may be
NOT_AT_ALL = 0.0


@dataclass
class ModelClaim:
    """A claim in the model; ``key`` is the real claim's id, ``began`` what it held at first."""

    key: bytes
    lasts: bool
    began: list[bytes]
    attempts: int = 0
    number: int = 0
    first_us: int = 0
    is_given: bool = False


@dataclass
class Model:
    """``points``: member -> due time (int), or key of the claim that it belongs to (bytes)."""

    now_us: int
    points: dict[bytes, int | bytes] = field(default_factory=dict)
    claims: dict[bytes, ModelClaim] = field(default_factory=dict)
    dues: dict[bytes, int] = field(default_factory=dict)

    def arm(self, old_chain: bytes | None, chain: bytes, due: int | None) -> None:
        if old_chain is not None:
            self.points.pop(old_chain, None)
        if due is not None:
            self.points[chain] = due

    def remove(self, schedule_id: bytes) -> None:
        for member in [m for m in self.points if m.startswith(schedule_id)]:
            del self.points[member]

    def held(self, key: bytes) -> list[bytes]:
        return sorted(m for m, holder in self.points.items() if holder == key)

    def to_claim(self, batch: int, *, skip_suspects: bool) -> tuple[list[bytes], int, int | None]:
        """Return the next claim's members, how often they lost their owner, and their first claim.

        The first claim's time is None for fresh members. A claim that skips suspects gets no member
        that two owners have lost.
        """
        for claim in list(self.claims.values()):
            if claim.lasts or (skip_suspects and claim.attempts):
                continue
            held = self.held(claim.key)
            taken = held[: math.ceil(batch / 8**claim.attempts)]
            if len(taken) == len(held):
                del self.claims[claim.key]
            if taken:
                return taken, claim.attempts + (not claim.is_given), claim.first_us
        due = sorted(
            (at, member)
            for member, at in self.points.items()
            if isinstance(at, int) and at <= self.now_us
        )
        return [member for _, member in due[:batch]], 0, None

    def claim(
        self, key: bytes, members: list[bytes], attempts: int, first_us: int, *, lasts: bool
    ) -> None:
        for member in members:
            at = self.points[member]
            if isinstance(at, int):
                self.dues[member] = at
            self.points[member] = key
        self.claims[key] = ModelClaim(key, lasts, members, attempts, first_us=first_us)

    def settle(
        self,
        key: bytes,
        *,
        moved: dict[bytes, int],
        finished: list[bytes],
        retries: dict[bytes, tuple[bytes, int]],
        edited: set[bytes],
    ) -> None:
        """``retries``: member of the occurrence -> the member that it follows if held, and due.

        ``edited``: chains of stored schedules that are followed even if an edit took them away.
        """
        held = set(self.held(key))
        followed = held | edited.intersection(self.claims[key].began)
        for member, (source, due) in retries.items():
            if source in followed and (member == source or member not in self.points):
                self.points[member] = due
        for member, due in moved.items():
            if member in held:
                self.points[member] = due
        for member in finished:
            if member in held:
                del self.points[member]
        self.end_if_empty(key)

    def split(
        self, key: bytes, chain: bytes, slots: list[tuple[bytes, int]], due: int | None
    ) -> None:
        """Give slots of the chain to the claim, and move the chain on, if the claim has it."""
        if self.points.get(chain) != key:
            return
        for member, slot in slots:
            if member not in self.points:
                self.points[member] = key
                self.dues[member] = slot
        if due is None:
            del self.points[chain]
        else:
            self.points[chain] = due

    def sweep(self, chains: list[bytes], due: int) -> None:
        """Give armed schedules without a chain a new one; nothing else can be lost."""
        for chain in chains:
            self.points.setdefault(chain, due)

    def release(self, key: bytes, members: list[bytes], given: bytes) -> None:
        """Move the members to the claim ``given``, without counting a lost owner."""
        if members:
            first_us = self.claims[key].first_us
            self.claims[given] = ModelClaim(given, False, members, first_us=first_us, is_given=True)
        for member in members:
            self.points[member] = given
        self.end_if_empty(key)

    def end_if_empty(self, key: bytes) -> None:
        if not self.held(key):
            self.claims.pop(key, None)
