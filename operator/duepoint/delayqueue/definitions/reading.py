"""Reads definitions and blobs.

A definition comes with its claim or is read in one round trip for a batch. Definitions are never
cached by id; only kinds and blobs are, by their digests, and parsed rules, by their text.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import (
    AsyncIterator,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass

import msgspec
import structlog

from duepoint import shares, telemetry
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import index, keys, layouts, messages, sharding
from duepoint.delayqueue.definitions import codec, kinds, lanes, signedblobs
from duepoint.schedules import definition as definitions
from duepoint.schedules import points
from duepoint.schedules.sets import setrecord

log = structlog.get_logger(__name__)

_BLOBS_CACHED_BYTES = 8 * 1024 * 1024
_BUCKETS_PER_ROUND_TRIP = 64
_SCAN_COUNT = 1_000

_unpack = functools.lru_cache(maxsize=10_000)(codec.unpack)


@dataclass(eq=False)
class DefinitionReader:
    """Reads definitions, occurrences and blobs."""

    index: index.Index
    layouts: layouts.Layouts
    kinds: kinds.Kinds
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
        for schedule_id in absent:  # they may have moved to another shard
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
        """Return the definitions of a claim's points, as of the time of the claim.

        If the claim has no records, reads the newest ones.
        """
        ids = {point.schedule_id for point in claim.points}
        if not ids <= claim.stored.keys():
            return await self.read_definitions(claim.shard, ids)
        packed = unpacked((one, claim.stored[one]) for one in ids)
        known = await self.kinds.read(claim.shard, {each.kind for each in packed.values()})
        if any(each.kind not in known for each in packed.values()):
            return await self.read_definitions(claim.shard, ids)
        records = {one: claim.stored[one] for one in ids}
        return _found(records, packed, known, entries_of(claim))

    async def read_here(
        self, shard: messages.ShardId, ids: Collection[points.ScheduleId]
    ) -> messages.FoundDefinitions:
        names = self.index.shard(shard)
        by_bucket: dict[str, list[points.ScheduleId]] = {}
        for schedule_id in dict.fromkeys(ids):
            bucket = names.bucket_of(schedule_id, self.index.buckets)
            by_bucket.setdefault(bucket, []).append(schedule_id)
        # ``meta`` first: if the shard was made anew, the other replies are worthless.
        meta, *replies = await self.index.read(
            "read definitions",
            ("HMGET", names.meta, "layout", "incarnation"),
            *(("HMGET", bucket, *members) for bucket, members in by_bucket.items()),
        )
        self.check_meta(shard, meta)
        records: dict[points.ScheduleId, bytes | None] = {}
        for members, found in zip(by_bucket.values(), replies, strict=True):
            records.update(zip(members, found, strict=True))
        packed = unpacked(records.items())
        known = await self.kinds.read(shard, {each.kind for each in packed.values()})
        entries = await self._set_entries(shard, {kind.lane for kind in known.values()})
        return _found(records, packed, known, entries)

    async def _set_entries(
        self, shard: messages.ShardId, among: Collection[str]
    ) -> dict[str, setrecord.SetEntry | None]:
        """Return the shard's entries of the sets among these lanes; None = it has none."""
        of_sets = list(filter(lanes.is_of_set, among))
        if not of_sets:
            return {}
        (values,) = await self.index.read(
            "read the entries of sets",
            ("HMGET", self.index.shard(shard).meta, *of_sets),
        )
        return dict(zip(of_sets, map(_parsed_entry, values), strict=True))

    async def schedules(self, shard: messages.ShardId) -> AsyncIterator[list[codec.StoredIdentity]]:
        """Yield the identities of a shard's Schedules, in chunks of some thousands."""
        async for found in self.records(shard, await self.namespaces(shard)):
            packed = unpacked(found).values()
            known = await self.kinds.read(shard, {each.kind for each in packed})
            yield [
                each.identity(kind.namespace)
                for each in packed
                if (kind := known.get(each.kind)) is not None and kind.owner is None
            ]

    async def chain_due(self, shard: messages.ShardId, known: definitions.Definition) -> int | None:
        """Return the score of a definition's chain in a shard; None = it is not there."""
        lane = self.index.shard(shard).lane(lanes.of_schedule(known.namespace, known.owner))
        chain = known.id + known.timing_version
        (score,) = await self.index.read("read a chain", ("ZSCORE", lane, chain))
        return None if score is None else int(score)

    async def records(
        self, shard: messages.ShardId, namespaces: Iterable[str]
    ) -> AsyncIterator[list[tuple[points.ScheduleId, bytes]]]:
        """Yield every record in the buckets of these namespaces, in chunks of some thousands."""
        buckets = self.index.buckets_of(shard, namespaces)
        for first in range(0, len(buckets), _BUCKETS_PER_ROUND_TRIP):
            chunk = buckets[first : first + _BUCKETS_PER_ROUND_TRIP]
            replies = await self.index.read(
                "read all definitions", *(("HGETALL", bucket) for bucket in chunk)
            )
            yield [(points.ScheduleId(k), v) for reply in replies for k, v in reply.items()]

    async def namespaces(self, shard: messages.ShardId) -> list[str]:
        """Return the namespaces that have a lane in a shard."""
        return [
            lanes.parse(lane)[0] for lane in await self.lanes(shard) if not lanes.is_of_set(lane)
        ]

    async def lanes(self, shard: messages.ShardId) -> list[str]:
        """Return the lanes of a shard."""
        meta, found, cursor = self.index.shard(shard).meta, dict[str, None](), 0
        while True:
            scan = ("HSCAN", meta, cursor, "COUNT", _SCAN_COUNT)
            ((cursor, fields),) = await self.index.read("read the lanes", scan)
            for field in filter(lanes.is_lane, fields):
                with contextlib.suppress(ValueError):  # not the name of a lane
                    lane = field.decode()
                    lanes.parse(lane)
                    found[lane] = None
            if int(cursor) == 0:
                return list(found)

    async def populations(self, shard: messages.ShardId) -> set[str]:
        """Return the populations that have definitions in a shard."""
        number, shards = sharding.index_of(shard), self.index.shards_beside(shard)
        found: set[str] = set()
        for namespace, owner in map(lanes.parse, await self.lanes(shard)):
            if owner is None:
                found.add(keys.population_of(namespace))
            else:
                numbers = keys.set_populations(owner.uid, owner.spread, number, shards)
                found.update(map(keys.population_name, numbers))
        return found

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
            raise queue_errors.Uninitialised(f"shard {shard} has no readable layout number")
        if int(layout) != sharding.layout_of(shard):
            raise queue_errors.LayoutChanged(f"shard {shard} is of layout {int(layout)} now")


def entries_of(claim: messages.Claim) -> dict[str, setrecord.SetEntry | None]:
    """Return the shard's entries of the sets among the claim's lanes; None = it has none."""
    return {
        lane: _parsed_entry(entry) for lane, entry in claim.entries.items() if lanes.is_of_set(lane)
    }


def _found(
    records: Mapping[points.ScheduleId, bytes | None],
    packed: Mapping[points.ScheduleId, codec.Packed],
    known: Mapping[bytes, kinds.Kind],
    entries: Mapping[str, setrecord.SetEntry | None],
) -> messages.FoundDefinitions:
    """Return the definitions, without those of members whose set is gone."""
    found = messages.FoundDefinitions()
    gone: set[points.ScheduleId] = set()
    for schedule_id, record in packed.items():
        try:
            resolved = _resolved(record, known[record.kind], entries)
        except msgspec.DecodeError:  # its neighbours in the batch must fire all the same
            telemetry.unreadable_total.labels("rule").inc()
            log.exception("rule cannot be read", schedule_id=schedule_id.hex())
        except KeyError:
            telemetry.unreadable_total.labels("text").inc()
            log.exception("a text of a definition is lost", schedule_id=schedule_id.hex())
        else:
            if resolved is None:
                gone.add(schedule_id)
            else:
                found[schedule_id] = resolved
    found.unreadable = frozenset(
        one
        for one, record in records.items()
        if record is not None and one not in found and one not in gone
    )
    return found


def _resolved(
    packed: codec.Packed, kind: kinds.Kind, entries: Mapping[str, setrecord.SetEntry | None]
) -> definitions.Definition | None:
    """Return the definition; None for a member of a set that is gone."""
    rule = kinds.parsed_rule(packed.inline) if packed.inline else kind.rule
    if kind.owner is None:
        return packed.resolved(namespace=kind.namespace, rule=rule, target=kind.target)
    entry = entries.get(kind.lane)
    if entry is None or entry.is_gone:
        return None
    return packed.resolved(
        namespace=kind.namespace,
        rule=rule,
        target=entry.target,
        owner=kind.owner,
        is_paused=entry.is_paused,
    )


def _parsed_entry(value: bytes | None) -> setrecord.SetEntry | None:
    return None if value is None else setrecord.parse_entry(value)


def unpacked(
    records: Iterable[tuple[points.ScheduleId, bytes | None]],
) -> dict[points.ScheduleId, codec.Packed]:
    """Return the readable records; log and count the others."""
    unpacked = {}
    for schedule_id, record in records:
        try:
            if record is not None:
                unpacked[schedule_id] = _unpack(record)
        except codec.UnknownRecord:
            telemetry.unreadable_total.labels("definition").inc()
            log.exception("definition cannot be read", schedule_id=schedule_id.hex())
    return unpacked
