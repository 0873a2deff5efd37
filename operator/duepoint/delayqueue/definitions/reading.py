"""Reading definitions and blobs.

A definition comes with its claim or is read in one round trip for a batch, and is never cached by
id: only what its numbers stand for is (texts are immutable within an incarnation), parsed rules by
their text, and blobs by their digest. Reads carry the shard's incarnation, so that numbers of a
former life are never resolved.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import (
    AsyncIterator,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass

import msgspec
import structlog

from duepoint import shares, telemetry
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import index, keys, layouts, messages, sharding
from duepoint.delayqueue.definitions import codec, interning, signedblobs
from duepoint.schedules import definition as definitions
from duepoint.schedules import points
from duepoint.schedules import rule as rules
from duepoint.schedules.sets import setrecord

log = structlog.get_logger(__name__)

_BLOBS_CACHED_BYTES = 8 * 1024 * 1024
_BUCKETS_PER_ROUND_TRIP = 64
_SCAN_COUNT = 1_000
#: A text that is lost is looked for again with its definition: a server that went back in time may
#: have answered the second question only. What lacks it still cannot be read.
_READINGS = 2

#: A rule of one expression is shorter; one of several has up to 7 KB, so few are kept.
_SHORT_RULE_BYTES = 1_024
_parsed_short = functools.lru_cache(maxsize=50_000)(rules.parse)
_parsed_long = functools.lru_cache(maxsize=2_048)(rules.parse)
_unpack = functools.lru_cache(maxsize=10_000)(codec.unpack)

_Buckets = dict[str, list[points.ScheduleId]]


def parsed_rule(text: bytes) -> rules.Rule:
    """The rule behind a text, the same object for the same text while that is kept."""
    return (_parsed_short if len(text) <= _SHORT_RULE_BYTES else _parsed_long)(text)


class TextLost(Exception):
    """A definition names a number that stands for no text."""


#: What a text that is gone, or is none, does to who needs it.
TEXT_TROUBLES = (TextLost, UnicodeDecodeError)


@dataclass(eq=False)
class DefinitionReader:
    """Reads definitions, occurrences and blobs."""

    index: index.Index
    layouts: layouts.Layouts
    interned: interning.Interned
    signed_blobs: signedblobs.SignedBlobs

    def __post_init__(self) -> None:
        self._blobs: shares.BytesCache[str, bytes] = shares.BytesCache(_BLOBS_CACHED_BYTES)

    async def definition(self, schedule_id: points.ScheduleId) -> definitions.Definition | None:
        first, *_ = sharding.homes(schedule_id, self.index.known_layout())
        return (await self.read_definitions(first, [schedule_id])).get(schedule_id)

    async def read_definitions(
        self, shard: messages.ShardId, ids: Collection[points.ScheduleId]
    ) -> messages.FoundDefinitions:
        found = await self.read_here(shard, ids)
        absent = [i for i in ids if i not in found and i not in found.unreadable]
        by_home: dict[messages.ShardId, list[points.ScheduleId]] = {}
        for schedule_id in absent:  # they may have moved on
            for home in sharding.homes(schedule_id, self.index.known_layout()):
                if sharding.layout_of(home) > sharding.layout_of(shard):
                    by_home.setdefault(home, []).append(schedule_id)
                    break
        for home, moved in by_home.items():
            there = await self.read_definitions(home, moved)
            found.update(there)
            found.unreadable |= there.unreadable
        return found

    async def of_claim(self, claim: messages.Claim) -> messages.FoundDefinitions:
        """The definitions of its points as they were when these were claimed.

        The newest ones where the claim has no records.
        """
        self.interned.see(claim.shard, claim.incarnation)
        ids = {point.schedule_id for point in claim.points}
        if not ids <= claim.stored.keys():
            return await self.read_definitions(claim.shard, ids)
        records = {one: claim.stored[one] for one in ids}
        packed = unpacked(records.items())
        if not await self.learn_numbers(claim.shard, _numbers(packed)):
            return await self.read_definitions(claim.shard, ids)
        return self._found(claim.shard, records, packed, self.parsed_entries(claim))

    async def read_here(
        self, shard: messages.ShardId, ids: Collection[points.ScheduleId]
    ) -> messages.FoundDefinitions:
        by_bucket = self.by_bucket(shard, ids)
        for _ in range(_READINGS):
            # ``meta`` first: what the others say is worth nothing in another life of the shard.
            meta, *replies = await self.index.pipelined_reads.run(
                [
                    ("HMGET", self.index.shard(shard).meta, "layout", "incarnation"),
                    *(("HMGET", bucket, *members) for bucket, members in by_bucket.items()),
                ]
            )
            self.check_meta(shard, meta)
            records = dict(_pairs(by_bucket, replies))
            packed = unpacked(records.items())
            numbers = _numbers(packed)
            if await self.learn_numbers(shard, numbers):
                break
        learnt = self._in_memory(shard, numbers)
        entries = await self._set_entries(shard, {record.namespace for record in packed.values()})
        self._refuse_forgotten(shard, learnt)
        return self._found(shard, records, packed, entries)

    def _found(
        self,
        shard: messages.ShardId,
        records: Mapping[points.ScheduleId, bytes | None],
        packed: Mapping[points.ScheduleId, codec.Packed],
        entries: Mapping[int, setrecord.SetEntry | None],
    ) -> messages.FoundDefinitions:
        known, gone = self._resolve_all(shard, packed, entries)
        found = messages.FoundDefinitions(known)
        found.unreadable = frozenset(
            i
            for i, record in records.items()
            if record is not None and i not in found and i not in gone
        )
        return found

    async def lane_of(self, shard: messages.ShardId, namespace: str) -> int | None:
        """The number of a namespace's lane, for a look; None where the shard never met it."""
        return await self._number(
            shard, interning.entry(interning.TextKind.NAMESPACE, namespace.encode())
        )

    async def lane_of_definition(
        self, shard: messages.ShardId, known: definitions.Definition
    ) -> int | None:
        """The number of the lane of its points; None where the shard never met it."""
        return await self._number(shard, interning.lane_text(known))

    async def _number(self, shard: messages.ShardId, text: bytes) -> int | None:
        (number,) = await self.index.read(
            "read the namespaces", ("HGET", self.index.shard(shard).interned, b"t:" + text)
        )
        return int(number) if number is not None and number.isdigit() else None

    def by_bucket(self, shard: messages.ShardId, ids: Collection[points.ScheduleId]) -> _Buckets:
        names = self.index.shard(shard)
        by_bucket: _Buckets = {}
        for schedule_id in dict.fromkeys(ids):
            bucket = names.bucket_of(schedule_id, self.index.buckets)
            by_bucket.setdefault(bucket, []).append(schedule_id)
        return by_bucket

    # -- members of sets -------------------------------------------------------------------------

    def set_lanes_among(self, shard: messages.ShardId, lanes: Iterable[int]) -> set[int]:
        """Those that are sets', as far as their texts are in memory."""
        kind = interning.TextKind.SET.encode()
        texts = ((lane, self.interned.text(shard, lane)) for lane in lanes)
        return {lane for lane, text in texts if text is not None and text.startswith(kind)}

    def parsed_entries(self, claim: messages.Claim) -> dict[int, setrecord.SetEntry | None]:
        """What the shard said of the sets among the claim's lanes; None = it does not know one."""
        return {
            lane: _parsed_entry(claim.entries[lane])
            for lane in self.set_lanes_among(claim.shard, claim.entries)
        }

    async def _set_entries(
        self, shard: messages.ShardId, lanes: set[int]
    ) -> dict[int, setrecord.SetEntry | None]:
        """What the shard knows of the sets among these lanes."""
        of_sets = sorted(self.set_lanes_among(shard, lanes))
        if not of_sets:
            return {}
        (values,) = await self.index.read(
            "read what a shard knows of sets",
            ("HMGET", self.index.shard(shard).meta, *(f"s{lane}" for lane in of_sets)),
        )
        return dict(zip(of_sets, map(_parsed_entry, values), strict=True))

    def _resolve_all(
        self,
        shard: messages.ShardId,
        packed: Mapping[points.ScheduleId, codec.Packed],
        entries: Mapping[int, setrecord.SetEntry | None],
    ) -> tuple[dict[points.ScheduleId, definitions.Definition], list[points.ScheduleId]]:
        """The definitions, and those members whose set is gone."""
        found: dict[points.ScheduleId, definitions.Definition] = {}
        gone: list[points.ScheduleId] = []
        for schedule_id, record in packed.items():
            try:
                resolved = self._resolved(shard, record, entries)
            except msgspec.DecodeError:  # its neighbours in the batch are to fire all the same
                telemetry.unreadable_total.labels("rule").inc()
                log.exception("rule cannot be read", schedule_id=schedule_id.hex())
            except TEXT_TROUBLES:
                telemetry.unreadable_total.labels("text").inc()
                log.exception("a text of a definition is lost", schedule_id=schedule_id.hex())
            else:
                if resolved is None:
                    gone.append(schedule_id)
                else:
                    found[schedule_id] = resolved
        return found, gone

    async def known(self, shard: messages.ShardId) -> AsyncIterator[list[codec.StoredIdentity]]:
        namespaces = await self.namespaces(shard)
        async for found in self.records(shard, namespaces.values()):
            usual = codec.identities([record for _, record in found], namespaces)
            rest = [each for each, known in zip(found, usual, strict=True) if known is None]
            yield [
                *filter(None, usual),
                *(
                    packed.identity(namespaces[packed.namespace])
                    for packed in unpacked(rest).values()
                    if packed.namespace in namespaces
                ),
            ]

    async def chains(self, shard: messages.ShardId) -> AsyncIterator[dict[bytes, float | None]]:
        """The chain of every Schedule of a shard with its score; None = it does not stand."""
        namespaces = await self.namespaces(shard)
        names = self.index.shard(shard)
        async for found in self.records(shard, namespaces.values()):
            by_lane: dict[int, list[bytes]] = {}
            for schedule_id, record in unpacked(found).items():
                if record.namespace in namespaces:
                    chain = schedule_id + record.timing_version
                    by_lane.setdefault(record.namespace, []).append(chain)
            replies = await self.index.read_many(
                "read chain points",
                [("ZMSCORE", names.lane(lane), *chains) for lane, chains in by_lane.items()],
            )
            yield {
                chain: score
                for chains, scores in zip(by_lane.values(), replies, strict=True)
                for chain, score in zip(chains, scores, strict=True)
            }

    async def records(
        self, shard: messages.ShardId, namespaces: Iterable[str]
    ) -> AsyncIterator[list[tuple[points.ScheduleId, bytes]]]:
        """Every record in the buckets of these namespaces, in chunks of some thousands."""
        buckets = self.index.buckets_of(shard, namespaces)
        for first in range(0, len(buckets), _BUCKETS_PER_ROUND_TRIP):
            chunk = buckets[first : first + _BUCKETS_PER_ROUND_TRIP]
            replies = await self.index.read(
                "read all definitions", *(("HGETALL", bucket) for bucket in chunk)
            )
            yield [(points.ScheduleId(k), v) for reply in replies for k, v in reply.items()]

    async def namespaces(self, shard: messages.ShardId) -> dict[int, str]:
        """Lane numbers of a shard and their namespaces."""
        namespaces, _ = await self.lanes_by_kind(shard)
        return namespaces

    async def lanes_by_kind(self, shard: messages.ShardId) -> tuple[dict[int, str], dict[int, str]]:
        """Lane numbers of a shard with their namespaces: the namespaces' own, and those of sets."""
        namespaces: dict[int, str] = {}
        of_sets: dict[int, str] = {}
        async for lane, text in self._numbered_texts(shard):
            if text.startswith(interning.TextKind.NAMESPACE.encode()):
                with contextlib.suppress(ValueError):  # it names no lane of ours
                    namespaces[lane] = text[1:].decode()
            elif text.startswith(interning.TextKind.SET.encode()):
                with contextlib.suppress(ValueError):
                    of_sets[lane] = points.parse_set(text[1:]).namespace
        return namespaces, of_sets

    async def lanes(self, shard: messages.ShardId) -> dict[int, tuple[str, ...]]:
        """Lane numbers of a shard, and the populations in which their definitions lie."""
        layout = self.index.known_layout()
        if layout.former is not None and sharding.layout_of(shard) == layout.former.number:
            layout = layout.former
        found: dict[int, tuple[str, ...]] = {}
        async for lane, text in self._numbered_texts(shard):
            with contextlib.suppress(ValueError):  # it names no lane of ours
                if populations := _populations(text, sharding.index_of(shard), layout.shards):
                    found[lane] = populations
        return found

    async def _numbered_texts(self, shard: messages.ShardId) -> AsyncIterator[tuple[int, bytes]]:
        """All texts of a shard with their numbers; those of lanes are among them."""
        interned = self.index.shard(shard).interned
        cursor = 0
        while True:
            ((cursor, texts),) = await self.index.read(
                "read the lanes", ("HSCAN", interned, cursor, "MATCH", "n:*", "COUNT", _SCAN_COUNT)
            )
            for number, text in texts.items():
                with contextlib.suppress(ValueError):  # it is no number of ours
                    yield int(number[2:]), text
            if int(cursor) == 0:
                return

    async def blob(self, namespace: str, digest: str, shard: messages.ShardId) -> bytes:
        cached = self._blobs.get(namespace, digest)
        if cached is not None:
            return cached
        (value,) = await self.index.read(
            "read a blob", ("HGET", self.index.shard(shard).blobs, digest)
        )
        if value is None:
            raise queue_errors.BlobMissing(f"the index holds no blob {digest} of {namespace}")
        content = self.signed_blobs.unpack(namespace, digest, value)
        self._blobs.put(namespace, digest, content, len(content))
        return content

    def check_meta(self, shard: messages.ShardId, meta: Sequence[bytes | None]) -> None:
        layout, incarnation, *_ = meta
        if layout is None or incarnation is None:
            raise queue_errors.Uninitialised(f"shard {shard} holds no index")
        if not layout.isdigit():
            raise queue_errors.Uninitialised(f"what shard {shard} holds does not say what it is")
        if int(layout) != sharding.layout_of(shard):
            raise queue_errors.LayoutChanged(f"shard {shard} is of layout {int(layout)} now")
        self.interned.see(shard, incarnation.decode())

    async def learn_numbers(self, shard: messages.ShardId, numbers: set[int]) -> bool:
        """Whether each stands for a text; which one is in memory then.

        Raises QueueUnavailable, or LayoutChanged where the server may have changed meanwhile.
        """
        missing = [n for n in numbers if self.interned.text(shard, n) is None]
        if not missing:
            return True
        names = self.index.shard(shard)
        meta, texts = await self.index.read(
            "read interned texts",
            ("HMGET", names.meta, "layout", "incarnation"),
            ("HMGET", names.interned, *(f"n:{number}" for number in missing)),
        )
        before = self.interned.incarnation(shard)
        self.check_meta(shard, meta)
        if self.interned.incarnation(shard) != before:
            raise queue_errors.LayoutChanged(f"shard {shard} was created anew while it was read")
        self._refuse_forgotten(shard, numbers.difference(missing))
        for number, text in zip(missing, texts, strict=True):
            if text is not None:
                self.interned.learn(shard, number, text)
        return None not in texts

    def _in_memory(self, shard: messages.ShardId, numbers: Iterable[int]) -> frozenset[int]:
        return frozenset(n for n in numbers if self.interned.text(shard, n) is not None)

    def _refuse_forgotten(self, shard: messages.ShardId, numbers: Iterable[int]) -> None:
        """Raises LayoutChanged where what was in memory is not any more.

        Any connection that finds another server empties it for all, also in the middle of a
        reading. These texts are not lost: who took them for lost would bury sound points.
        """
        if any(self.interned.text(shard, number) is None for number in numbers):
            raise queue_errors.LayoutChanged(f"shard {shard} may be another's since it was read")

    def text(self, shard: messages.ShardId, number: int) -> bytes:
        text = self.interned.text(shard, number)
        if text is None:
            raise TextLost(f"number {number} of shard {shard} stands for nothing")
        return text[1:]

    def _resolved(
        self,
        shard: messages.ShardId,
        packed: codec.Packed,
        entries: Mapping[int, setrecord.SetEntry | None],
    ) -> definitions.Definition | None:
        """None: it is a member of a set that is gone."""
        text = packed.rule if isinstance(packed.rule, bytes) else self.text(shard, packed.rule)
        if packed.namespace in entries:
            entry = entries[packed.namespace]
            if entry is None or entry.is_gone:
                return None
            owner = points.parse_set(self.text(shard, packed.namespace))
            return packed.resolved(
                namespace=owner.namespace,
                rule=parsed_rule(text),
                target=entry.target,
                owner=owner,
                is_paused=entry.is_paused,
            )
        return packed.resolved(
            namespace=self.text(shard, packed.namespace).decode(),
            rule=parsed_rule(text),
            target=self.text(shard, packed.target).decode(),
        )


def _populations(text: bytes, shard_index: int, shards: int) -> tuple[str, ...]:
    """Where definitions lie of the lane with this text; raises ValueError where that is none."""
    if text.startswith(interning.TextKind.NAMESPACE.encode()):
        return (keys.population_of(text[1:].decode()),)
    if not text.startswith(interning.TextKind.SET.encode()):
        return ()
    owner = points.parse_set(text[1:])
    found = keys.set_populations(owner.uid, owner.spread, shard_index, shards)
    return tuple(map(keys.population_name, found))


def _parsed_entry(value: bytes | None) -> setrecord.SetEntry | None:
    return None if value is None else setrecord.parse_entry(value)


def _numbers(packed: Mapping[points.ScheduleId, codec.Packed]) -> set[int]:
    return {number for each in packed.values() for number in each.numbers()}


def _pairs(
    by_bucket: _Buckets, replies: Iterable[Sequence[bytes | None]]
) -> Iterator[tuple[points.ScheduleId, bytes | None]]:
    for members, values in zip(by_bucket.values(), replies, strict=True):
        yield from zip(members, values, strict=True)


def unpacked(
    records: Iterable[tuple[points.ScheduleId, bytes | None]],
) -> dict[points.ScheduleId, codec.Packed]:
    """The records that can be read; the others are logged and counted."""
    unpacked = {}
    for schedule_id, record in records:
        try:
            if record is not None:
                unpacked[schedule_id] = _unpack(record)
        except codec.UnknownRecord:
            telemetry.unreadable_total.labels("definition").inc()
            log.exception("definition cannot be read", schedule_id=schedule_id.hex())
    return unpacked
