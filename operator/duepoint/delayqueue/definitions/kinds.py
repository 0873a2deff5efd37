"""Kinds: the lane, target and rule that many definitions share, stored once in each shard.

A record names its kind by a keyed digest of the kind's text, and ``texts`` of its shard has the
text under that digest. The digest is the same in every shard, so a record means the same wherever
it is. An attacker without our key cannot make two texts with one digest.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from duepoint import telemetry
from duepoint.delayqueue import index, messages
from duepoint.delayqueue.definitions import lanes
from duepoint.schedules import points
from duepoint.schedules import rule as rules

#: Most cached kinds, of all shards together.
_REMEMBERED = 65_536
#: A rule of one expression is shorter; one of several has up to 7 KB, so few are kept.
_SHORT_RULE_BYTES = 1_024
_parsed_short = functools.lru_cache(maxsize=50_000)(rules.parse)
_parsed_long = functools.lru_cache(maxsize=2_048)(rules.parse)


def parsed_rule(text: bytes) -> rules.Rule:
    """Return the rule of a text; the same object for the same text while it is cached."""
    return (_parsed_short if len(text) <= _SHORT_RULE_BYTES else _parsed_long)(text)


class Kind(msgspec.Struct, frozen=True, eq=False):
    """The parts that definitions share.

    The same kind is the same object while it is cached, so that results computed from it can be
    cached by its identity.

    Attributes:
        rule_text: empty if each record has its own rule.
        target: the digest of the action; empty for members: their set has it.
        owner: the set whose members they are; None for Schedules.
    """

    lane: str
    namespace: str
    owner: points.SetIdentity | None
    target: str
    rule_text: bytes

    @property
    def rule(self) -> rules.Rule:
        """The rule; raises msgspec.DecodeError if its text is invalid."""
        return parsed_rule(self.rule_text)

    @property
    def is_large(self) -> bool:
        """Whether the rule has several expressions; caches keep few of these."""
        return len(self.rule.timing.schedules) > 1


def text_of(lane: str, target: str, rule_text: bytes) -> bytes:
    """Return the text whose digest names the kind."""
    return f"{lane}\n{target}\n".encode() + rule_text


def parse(text: bytes) -> Kind:
    """Return the kind of a text; raises ValueError if the text is not one."""
    lane, target, rule_text = text.split(b"\n", 2)
    namespace, owner = lanes.parse(lane.decode())
    return Kind(lane.decode(), namespace, owner, target.decode(), rule_text)


@dataclass(eq=False)
class Kinds:
    """Reads kinds and caches them."""

    index: index.Index

    def __post_init__(self) -> None:
        self._known: dict[bytes, Kind] = {}

    async def read(self, shard: messages.ShardId, digests: Iterable[bytes]) -> dict[bytes, Kind]:
        """Return the kinds of these digests, without lost or unreadable ones."""
        known = self._known
        found = {digest: known[digest] for digest in digests if digest in known}
        missing = [digest for digest in set(digests) if digest not in found]
        if not missing:
            return found
        (texts,) = await self.index.read(
            "read the kinds of definitions", ("HMGET", self.index.shard(shard).texts, *missing)
        )
        if len(known) + len(missing) > _REMEMBERED:
            known.clear()
        for digest, text in zip(missing, texts, strict=True):
            try:
                if text is not None:
                    found[digest] = known[digest] = parse(text)
            except ValueError:
                telemetry.unreadable_total.labels("text").inc()
        return found
