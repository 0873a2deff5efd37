"""Which set a member belongs to, as the queue names it.

The identity of a set stands once in each shard, as an interned text; its number names the lane of
the set's members and stands in their records. Its *spread* is part of it, because the ids of the
members depend on it: a set that kept its uid and had another spread would not find them. Pure.
"""

from __future__ import annotations

import functools

import msgspec


class SetIdentity(msgspec.Struct, frozen=True, order=True):
    """A ScheduleSet: its object, and how many bits of its members' ids spread them in a shard."""

    uid: str
    namespace: str
    name: str
    spread: int = 0

    @property
    def text(self) -> bytes:
        """The text that is interned; ``parse`` reads it."""
        return f"{self.uid}/{self.namespace}/{self.name}/{self.spread}".encode()


@functools.lru_cache(maxsize=16_384)
def parse(text: bytes) -> SetIdentity:
    """The identity behind a text of ``SetIdentity.text``; raises ValueError otherwise."""
    uid, namespace, name, spread = text.decode().split("/")
    return SetIdentity(uid, namespace, name, int(spread))
