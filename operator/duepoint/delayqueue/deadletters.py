"""Dead letters: reads, replays and purges the slots that were given up, lane by lane.

Each lane (a namespace, or a set) has in each shard a stream of its own, bounded by bytes, to which
the script that ends a slot adds its letter (``scripts/includes/log.lua``). A replayed letter
becomes an occurrence of its Schedule, due at once, and is removed when that is in the queue: so the
slot runs once more, under its original id. Its attempts and its age count anew from the
replay, by ``OccurrenceRecord.replayed_us``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import heapq
import re
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import index, messages, quotas, sharding
from duepoint.delayqueue.definitions import occurrences, reading, records
from duepoint.delayqueue.wire import scripting
from duepoint.schedules import points

_LETTERS_TOGETHER = 200
#: Most letters that one command removes.
_PURGED_TOGETHER = 500
#: The largest number in either part of a stream entry's id; the server refuses more.
_LARGEST = 2**64 - 1
#: The log of letters that name no namespace, because their point could not be read.
NO_LANE = "-"

LETTER_ID = re.compile(r"(\d{1,6})\.(\d{1,6})\.(\d{1,20}-\d{1,20})", re.ASCII)
_CURSOR = re.compile(r"(\d{1,18}-\d{1,18})-(\d{1,6})", re.ASCII)


class Replayed(enum.StrEnum):
    """The result of a replay."""

    APPLIED = "replayed"
    UNCHANGED = "waiting"
    UNKNOWN = "gone"
    GONE = "absent"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadEntry:
    """One letter of a lane's log in a shard; ``entry_id`` begins with the time of adding (ms)."""

    shard: messages.ShardId
    lane: str
    entry_id: str
    member: bytes
    entry: dict[str, str]

    @property
    def id(self) -> str:
        """The letter's id for people: its layout, shard and entry."""
        layout, number = sharding.layout_of(self.shard), sharding.index_of(self.shard)
        return f"{layout}.{number}.{self.entry_id}"

    @property
    def given_up_us(self) -> int:
        return 1000 * int(self.entry_id.partition("-")[0])

    @property
    def point(self) -> points.DuePoint | None:
        """The occurrence that runs its slot again; None if the letter names none to replay."""
        entry, slot_us = self.entry, whole(self.entry.get("slot_us"))
        if slot_us is None or slot_us >= points.DUE_LIMIT_US:
            return None
        if not entry.get("uid") or not entry.get("namespace"):
            return None
        point = points.parse_member(self.member, 0) if self.member else None
        kind = None if point is None else point.kind
        is_run = kind in points.RUN_KINDS
        # A check delivers nothing, and the id of an event depends on its ScheduleRun.
        if kind is points.PointKind.CHECK or bool(entry.get("run_uid")) != is_run:
            return None
        if is_run:
            return point
        try:
            schedule_id = self.member[:8] or bytes.fromhex(entry.get("schedule_id", ""))
        except ValueError:
            return None
        return points.DuePoint(
            schedule_id=points.ScheduleId(schedule_id),
            timing_version=points.NO_VERSION,
            kind=points.PointKind.RETRY,
            due_us=0,
            slot_us=slot_us,
        )


def _record(entry: Mapping[str, str]) -> messages.OccurrenceRecord:
    """Return the slot's record as before its first attempt, with overrides of its ScheduleRun."""
    kept = messages.OccurrenceRecord()
    with contextlib.suppress(ValueError):  # also of records.UnknownFormat
        kept = records.unpack(bytes.fromhex(entry.get("record", "")))
    return msgspec.structs.replace(
        kept,
        attempt=0,
        trigger=entry.get("trigger") or kept.trigger,
        run_uid=entry.get("run_uid", ""),
        last_error="",
        last_cause="",
    )


class _Log(NamedTuple):
    """The log of a lane in a shard; ``place`` is the position of the shard among all."""

    place: int
    shard: messages.ShardId
    lane: str

    def order(self, letter: DeadEntry) -> tuple[int, int, int]:
        """Return the sort key of one of its letters: newest first, then by shard."""
        milliseconds, _, number = letter.entry_id.partition("-")
        return -int(milliseconds), -int(number), self.place


class LetterPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some dead letters, and the cursor of the next page; empty = the end."""

    letters: list[DeadEntry]
    cursor: str


def lane_of(entry: Mapping[str, str]) -> str:
    """Return the lane to whose log the letter with this entry belongs."""
    return entry.get("set_id") or entry.get("namespace") or NO_LANE


def namespace_of(lane: str) -> str:
    """Return the namespace of a lane: the lane itself, or the namespace of its set."""
    try:
        return points.parse_set(lane.encode()).namespace
    except ValueError:
        return lane


def is_of_set(lane: str) -> bool:
    return "/" in lane


@dataclass(eq=False)
class DeadLetters:
    """Reads, replays and purges dead letters; the layout must have been read."""

    index: index.Index
    reader: reading.DefinitionReader
    occurrences: occurrences.Occurrences
    quotas: quotas.Quotas

    def put_log(
        self, call: scripting.ScriptCall, shard: messages.ShardId, lane: str
    ) -> dict[str, object]:
        """Add the key of a lane's log to a call; return the script's arguments about the log."""
        shards = self.index.known_layout().shards
        return {
            "key": call.key(self.index.shard(shard).log(lane)),
            "lane": lane,
            "bytes": self.quotas.of_log(shards, is_of_set=is_of_set(lane)),
        }

    async def lanes_of(self, shards: Sequence[messages.ShardId]) -> list[list[str]]:
        """Return, for each of these shards, the lanes that have a log."""
        found = await self.index.read_many(
            "look for dead letters",
            [("ZRANGE", self.index.shard(shard).logs, 0, -1) for shard in shards],
        )
        return [[lane.decode(errors="replace") for lane in lanes] for lanes in found]

    async def newest(
        self, lanes: Collection[str] | None = None, *, cursor: str = ""
    ) -> AsyncIterator[DeadEntry]:
        """Yield the letters of these lanes, or of all, newest first; reads them on demand.

        Args:
            cursor: that of a page; the letters after it are returned. Raises InvalidCursor.
        """
        parts = _CURSOR.fullmatch(cursor)
        if cursor and parts is None:
            raise queue_errors.InvalidCursor(
                "the cursor was not given for this list; begin again without one"
            )
        shards = sharding.all_shards(self.index.known_layout())
        known = [lanes] * len(shards) if lanes is not None else await self.lanes_of(shards)
        logs = [
            _Log(place, shard, lane) for place, shard in enumerate(shards) for lane in known[place]
        ]
        bounds = {
            # In a later shard, a letter with the very same id comes after.
            log: f"{'' if log.place > int(parts[2]) else '('}{parts[1]}" if parts else "+"
            for log in logs
        }
        count = _LETTERS_TOGETHER // max(1, len(logs)) + 1
        unread = await self._next(bounds, count)
        heads = [(log.order(letters[0]), log) for log, letters in unread.items()]
        heapq.heapify(heads)
        while heads:
            _, log = heapq.heappop(heads)
            letter = unread[log].pop(0)
            yield letter
            if not unread[log]:
                unread |= await self._next({log: f"({letter.entry_id}"}, _LETTERS_TOGETHER)
            if unread[log]:
                heapq.heappush(heads, (log.order(unread[log][0]), log))

    async def _next(self, bounds: Mapping[_Log, str], count: int) -> dict[_Log, list[DeadEntry]]:
        """Return the next letters of logs that have any, from these bounds on."""
        replies = await self.index.read_many(
            "read dead letters",
            [
                ("XREVRANGE", self._key(log), bound, "-", "COUNT", count)
                for log, bound in bounds.items()
            ],
        )
        return {
            log: list(_letters(log, found))
            for log, found in zip(bounds, replies, strict=True)
            if found
        }

    async def page(self, lane: str, *, limit: int, cursor: str = "") -> LetterPage:
        """Return a page of a lane's letters, newest first. Raises InvalidCursor."""
        found: list[DeadEntry] = []
        async for letter in self.newest([lane], cursor=cursor):
            if len(found) == limit:
                return LetterPage(letters=found, cursor=self._cursor(found[-1]))
            found.append(letter)
        return LetterPage(letters=found, cursor="")

    def _cursor(self, letter: DeadEntry) -> str:
        place = sharding.all_shards(self.index.known_layout()).index(letter.shard)
        return f"{letter.entry_id}-{place}"

    def _key(self, log: _Log) -> str:
        return self.index.shard(log.shard).log(log.lane)

    async def find(self, letter_id: str, lane: str) -> DeadEntry | None:
        """Return the letter with this id from a lane's log; None = it does not exist."""
        parts = LETTER_ID.fullmatch(letter_id)
        if parts is None or any(int(part) > _LARGEST for part in parts[3].split("-")):
            return None
        place = int(parts[1]), int(parts[2])
        for shard in sharding.all_shards(self.index.known_layout()):
            if (sharding.layout_of(shard), sharding.index_of(shard)) == place:
                log = _Log(0, shard, lane)
                wanted = ("XRANGE", self._key(log), parts[3], parts[3])
                (found,) = await self.index.read("read a dead letter", wanted)
                return next(iter(_letters(log, found)), None)
        return None

    async def replay(self, letter: DeadEntry, *, dry: bool = False) -> Replayed:
        """Make the letter's slot due again and remove the letter; return the result.

        ``dry`` changes nothing. Raises WorldChanged if its Schedule is being removed.
        """
        point = letter.point
        if point is None:
            return Replayed.UNREADABLE
        known = await self.reader.definition(point.schedule_id)
        if known is None or known.uid != letter.entry["uid"]:
            return Replayed.GONE
        if dry:
            return Replayed.APPLIED
        if await self.find(letter.id, letter.lane) is None:
            return Replayed.UNKNOWN  # it was replayed or purged meanwhile
        now_us = self.index.clock.now_us()
        point = dataclasses.replace(point, timing_version=known.timing_version, due_us=now_us)
        record = msgspec.structs.replace(
            _record(letter.entry), first_try_us=now_us, replayed_us=now_us
        )
        armed = await self.occurrences.enqueue(known, point, record, None)
        if armed is messages.Armed.UNCHANGED:
            return Replayed.UNCHANGED
        await self.purge([letter])
        return Replayed.APPLIED

    async def purge(self, letters: Iterable[DeadEntry]) -> int:
        """Remove these letters; return how many of them existed."""
        by_log: dict[str, list[str]] = {}
        for letter in letters:
            key = self.index.shard(letter.shard).log(letter.lane)
            by_log.setdefault(key, []).append(letter.entry_id)
        return sum(
            await self.index.read_many(
                "purge dead letters",
                [
                    ("XDEL", key, *ids[first : first + _PURGED_TOGETHER])
                    for key, ids in by_log.items()
                    for first in range(0, len(ids), _PURGED_TOGETHER)
                ],
            )
        )


def _letters(log: _Log, found: Sequence[tuple[bytes, Any]]) -> Iterable[DeadEntry]:
    for entry_id, raw in found:
        fields = scripting.fields(raw)
        fields.pop(b"taken", None)
        member = fields.pop(b"member", b"")
        yield DeadEntry(
            shard=log.shard,
            lane=log.lane,
            entry_id=entry_id.decode(),
            member=member,
            entry={
                name.decode(errors="replace"): value.decode(errors="replace")
                for name, value in fields.items()
            },
        )


def whole(text: str | None) -> int | None:
    """Return the number in a field of a letter; None if it is not one."""
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 20 else None
