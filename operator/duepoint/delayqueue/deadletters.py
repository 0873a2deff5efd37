"""Dead letters that are wanted back, or gone for good.

A replayed letter becomes an occurrence of its Schedule, due at once, in the script that removes
the letter: so it runs again once, under the id that the slot always had. Its attempts and its age
count anew from the replay, by ``OccurrenceRecord.replayed_us``. A few hundred are purged at a time.
What is counted of a namespace's letters goes with them.
"""

from __future__ import annotations

import asyncio
import enum
import heapq
import struct
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from duepoint.delayqueue import index, messages, quotas, sharding
from duepoint.delayqueue.definitions import codec, reading, records
from duepoint.delayqueue.wire import scripting
from duepoint.schedules import definition as definitions
from duepoint.schedules import points

_LETTERS_TOGETHER = 200
#: Letters that one script removes; their payloads are not in them, so this is quick.
PURGED_TOGETHER = 500
#: Of each part of the id of a stream's entry; the server refuses more.
_LARGEST = 2**64 - 1

Where = tuple[messages.ShardId, definitions.Definition]


class Replayed(enum.StrEnum):
    """What became of a letter."""

    APPLIED = "replayed"
    UNCHANGED = "waiting"
    UNKNOWN = "gone"
    GONE = "absent"
    BUSY = "moving"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """What a letter says of its slot; enough to run it again."""

    namespace: str
    uid: str
    kind: points.PointKind
    slot_us: int
    run_tag: points.RunTag
    record: messages.OccurrenceRecord


def slot_of(letter: DeadEntry) -> Slot | None:
    """None where the letter does not say which slot it is of: it could not be read when buried."""
    entry = letter.entry
    point = points.parse_member(letter.member, 0) if letter.member else None
    slot_us = whole(entry.get("slot_us"))
    if slot_us is None and point is not None and point.kind is not points.PointKind.CHAIN:
        slot_us = point.slot_us
    if slot_us is None or slot_us >= points.DUE_LIMIT_US:
        return None
    if not entry.get("uid") or not entry.get("namespace"):
        return None
    if point is not None and point.kind is points.PointKind.CHECK:
        return None  # nothing was to be delivered
    is_run = point is not None and point.kind in points.RUN_KINDS
    if bool(entry.get("run_uid")) != is_run:
        return None  # the id of its event hangs on the ScheduleRun
    return Slot(
        namespace=entry["namespace"],
        uid=entry["uid"],
        kind=point.kind if is_run and point is not None else points.PointKind.RETRY,
        slot_us=slot_us,
        run_tag=point.run_tag if is_run and point is not None else points.NO_RUN,
        record=_record(entry),
    )


def _record(entry: Mapping[str, str]) -> messages.OccurrenceRecord:
    """The slot as it was before its first attempt; with what its ScheduleRun wanted otherwise."""
    kept = messages.OccurrenceRecord()
    if packed := entry.get("record"):
        try:
            kept = records.unpack(bytes.fromhex(packed))
        except ValueError:  # also of records.UnknownFormat
            kept = messages.OccurrenceRecord()
    return msgspec.structs.replace(
        kept,
        attempt=0,
        trigger=entry.get("trigger") or kept.trigger,
        run_uid=entry.get("run_uid", ""),
        last_error="",
        last_cause="",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadEntry:
    """One entry of a shard's ``dead`` stream."""

    shard: messages.ShardId
    id: str
    member: bytes
    entry: dict[str, str]


class LetterPlace(NamedTuple):
    """Where a letter stands among those of its namespace: by time, then by its shard's number."""

    milliseconds: int
    number: int
    shard: int

    @property
    def order(self) -> tuple[int, int, int]:
        """Newer letters come first."""
        return -self.milliseconds, -self.number, self.shard


@dataclass(eq=False)
class DeadLetters:
    """Dead letters: reading, replaying and purging them."""

    index: index.Index
    reader: reading.DefinitionReader

    async def all(self) -> AsyncIterator[DeadEntry]:
        """Every dead letter, newest first, read as it is asked for."""
        shards = sharding.all_shards(self.index.known_layout())
        read = await asyncio.gather(*(self.newest(shard) for shard in shards))
        unread = dict(zip(shards, read, strict=True))
        newest = [(_age(found[0]), shard) for shard, found in unread.items() if found]
        heapq.heapify(newest)
        while newest:
            _, shard = heapq.heappop(newest)
            letter = unread[shard].pop(0)
            yield letter
            if not unread[shard]:
                unread[shard] = await self.newest(shard, before=f"({letter.id}")
            if unread[shard]:
                heapq.heappush(newest, (_age(unread[shard][0]), shard))

    async def of_namespace(
        self, namespace: str, *, limit: int, before: LetterPlace | None = None
    ) -> tuple[list[DeadEntry], LetterPlace | None]:
        """Letters of a namespace's Schedules, newest first, and where to go on; None = all.

        One read of each shard's order of letters (``scripts/includes/deadletters.lua``), however
        many letters other namespaces have.
        """
        shards = sharding.all_shards(self.index.known_layout())
        lowest = b"[" + _place_bytes(namespace)
        orders = await self.index.read_many(
            "list dead letters",
            [
                (
                    "ZRANGE", self.index.shard(shard).letters, _bound(namespace, number, before),
                    lowest, "BYLEX", "REV", "LIMIT", 0, limit + 1,
                )
                for number, shard in enumerate(shards)
            ],
        )  # fmt: skip
        start = len(_place_bytes(namespace))
        places = [
            LetterPlace(milliseconds, sequence, number)
            for number, members in enumerate(orders)
            for member in members
            for milliseconds, sequence in (_PLACE.unpack_from(member, start),)
        ]
        places.sort(key=lambda place: place.order)
        chosen = places[:limit]
        entries = await self.index.read_many(
            "read dead letters",
            [
                ("XRANGE", self.index.shard(shards[place.shard]).dead, entry_id, entry_id)
                for place in chosen
                for entry_id in (f"{place.milliseconds}-{place.number}",)
            ],
        )
        letters = [
            _letter(shards[place.shard], *found[0])
            for place, found in zip(chosen, entries, strict=True)
            if found
        ]
        return letters, chosen[-1] if len(places) > limit else None

    async def dropped(self) -> dict[str, int]:
        """How many letters of each namespace went because it had more than it may keep."""
        shards = sharding.all_shards(self.index.known_layout())
        found = await self.index.read(
            "read how many dead letters went",
            *(("HGETALL", self.index.shard(shard).letter_sums) for shard in shards),
        )
        dropped: Counter[str] = Counter()
        for raw in found:
            for name, count in scripting.fields(raw).items():
                if name.startswith(b"d:"):
                    dropped[quotas.namespace_of(name[2:])] += int(count)
        return dict(sorted(dropped.items()))

    async def find(self, layout: int, shard_number: int, entry_id: str) -> DeadEntry | None:
        """The letter with this id; None where it is not there (any more)."""
        if any(int(part) > _LARGEST for part in entry_id.split("-")):
            return None
        wanted = (layout, shard_number)
        for shard in sharding.all_shards(self.index.known_layout()):
            if (sharding.layout_of(shard), sharding.index_of(shard)) == wanted:
                return await self._letter(shard, entry_id)
        return None

    async def _letter(self, shard: messages.ShardId, entry_id: str) -> DeadEntry | None:
        (found,) = await self.index.read(
            "read a dead letter", ("XRANGE", self.index.shard(shard).dead, entry_id, entry_id)
        )
        return _letter(shard, *found[0]) if found else None

    async def newest(
        self, shard: messages.ShardId, *, before: str = "+", count: int = _LETTERS_TOGETHER
    ) -> list[DeadEntry]:
        """Some letters of a shard, newest first, from ``before`` (an id after a bracket) on."""
        (found,) = await self.index.read(
            "read dead letters",
            ("XREVRANGE", self.index.shard(shard).dead, before, "-", "COUNT", count),
        )
        return [_letter(shard, entry_id, fields) for entry_id, fields in found]

    async def replay(self, letter: DeadEntry, slot: Slot, where: Where, now_us: int) -> Replayed:
        """The letter's slot is due again, and the letter gone; or why not.

        Args:
            slot: of the letter, by ``slot_of``.
            where: the shard and the definition of the letter's Schedule.
            now_us: from here on its age counts anew.
        """
        shard, known = where
        if self.index.servers.is_cluster and shard != letter.shard:
            return Replayed.BUSY  # the letter follows its schedule when the move is over
        lane = await self.reader.lane_of_definition(shard, known)
        if lane is None:
            return Replayed.GONE
        point = points.DuePoint(
            schedule_id=known.id,
            timing_version=known.timing_version,
            kind=slot.kind,
            due_us=now_us,
            slot_us=slot.slot_us,
            run_tag=slot.run_tag,
        )
        record = msgspec.structs.replace(slot.record, first_try_us=now_us, replayed_us=now_us)
        names, buried = self.index.shard(shard), self.index.shard(letter.shard)
        call = self.index.call(
            "replay",
            shard,
            *(names.lane(lane), names.bucket_of(known.id, self.index.buckets)),
            *(buried.dead, buried.letters, buried.letter_sums),
            lane=str(lane),
            letter=letter.id,
            id=known.id,
            uid=codec.packed_uid(known.uid),
            member=point.member,
            record=records.pack(record),
        )
        reply: bytes = await self.index.scripts.run(call)
        return Replayed.BUSY if reply == b"ABSENT" else Replayed[reply.decode()]

    async def purge(self, letters: Sequence[DeadEntry]) -> int:
        """These letters are gone; how many were there."""
        by_shard: dict[messages.ShardId, list[str]] = {}
        for letter in letters:
            by_shard.setdefault(letter.shard, []).append(letter.id)
        removed = 0
        for shard, ids in by_shard.items():
            for first in range(0, len(ids), PURGED_TOGETHER):
                call = self.index.call("purge", shard)
                call.put(letters=call.run(ids[first : first + PURGED_TOGETHER]))
                removed += await self.index.scripts.run(call)
        return removed

    async def count(self) -> int:
        """How many dead letters there are."""
        shards = sharding.all_shards(self.index.known_layout())
        counts = await self.index.read(
            "count dead letters", *(("XLEN", self.index.shard(shard).dead) for shard in shards)
        )
        return sum(counts)


#: Milliseconds and number of a letter's id, in its place in the order of letters.
_PLACE = struct.Struct(">QQ")


def _place_bytes(namespace: str, place: bytes = b"") -> bytes:
    return namespace.encode() + b"\0" + place


def _bound(namespace: str, shard: int, before: LetterPlace | None) -> bytes:
    """The upper bound of what comes behind a place, in a shard."""
    if before is None:
        return b"(" + namespace.encode() + b"\x01"
    # In a later shard the letter of the very same id comes behind; its bytes follow the place.
    rest = b"\xff" * 5 if shard > before.shard else b""
    return b"(" + _place_bytes(namespace, _PLACE.pack(*before[:2]) + rest)


def whole(text: str | None) -> int | None:
    """The number that a field of a letter is; None where it is none."""
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 20 else None


def _age(letter: DeadEntry) -> tuple[int, int]:
    milliseconds, _, number = letter.id.partition("-")
    return -int(milliseconds), -int(number or 0)


def _letter(shard: messages.ShardId, entry_id: bytes, raw: Any) -> DeadEntry:  # noqa: ANN401 - the library parses some commands
    fields = scripting.fields(raw)
    member = fields.pop(b"member", b"")
    return DeadEntry(
        shard=shard,
        id=entry_id.decode(),
        member=member,
        entry={
            name.decode(errors="replace"): value.decode(errors="replace")
            for name, value in fields.items()
        },
    )
