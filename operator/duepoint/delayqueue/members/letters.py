"""Dead letters of one set: listed newest first, and run again.

Letters are kept by namespace in each shard; a page asks every shard for the newest ids of the
namespace, takes the newest of all, and reads those. Letters of other sets and Schedules of the
namespace are passed over, so a page may be short, even empty, with more to come.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from duepoint.delayqueue import deadletters, index, messages, sharding
from duepoint.delayqueue.definitions import reading, signedblobs
from duepoint.delayqueue.members import cursors, values
from duepoint.schedules import definition as definitions
from duepoint.schedules import points
from duepoint.schedules.sets import setrecord

_ID = re.compile(r"(\d{1,9})\.(\d{1,4})\.(\d{1,19}-\d{1,19})", re.ASCII)
_PLACE = struct.Struct(">QQ")
_SCANNED_AT_LEAST = 100


class _Place(msgspec.Struct, array_like=True, frozen=True):
    """Where a list goes on: behind this letter."""

    layout: int
    entry: bytes
    shard: int


@dataclass(eq=False)
class MemberLetters:
    """Lists and replays the dead letters of sets."""

    index: index.Index
    reader: reading.DefinitionReader
    dead_letters: deadletters.DeadLetters
    signed_blobs: signedblobs.SignedBlobs

    async def page(
        self, set_: setrecord.SetRecord, cursor: str, *, limit: int
    ) -> values.LetterPage:
        """Some letters, newest first; raises InvalidCursor."""
        layout = self.index.known_layout()
        shards = list(sharding.all_shards(layout))
        behind = None
        if cursor:
            behind = cursors.parse(self.signed_blobs, set_.identity, _Place, cursor)
            if behind.layout != layout.number:
                raise values.InvalidCursor("the index was resharded; begin again without a cursor")
        most = max(limit, _SCANNED_AT_LEAST)
        found = await self.index.read(
            "list dead letters",
            *(
                (
                    *("ZRANGE", self.index.shard(shard).letters),
                    *(_below(set_.namespace, behind, number), _first(set_.namespace)),
                    *("BYLEX", "REV", "LIMIT", 0, most),
                )
                for number, shard in enumerate(shards)
            ),
        )
        start = len(set_.namespace.encode()) + 1
        every = [
            (member[start : start + _PLACE.size], -number)
            for number, members in enumerate(found)
            for member in members
        ]
        newest = sorted(every, reverse=True)[:most]
        letters, last = await self._read(set_, newest, shards, limit)
        if last is None or (len(every) <= most and last == len(newest) - 1):
            return values.LetterPage(letters=letters, cursor="")
        entry, number = newest[last]
        place = _Place(layout.number, entry, -number)
        return values.LetterPage(
            letters=letters, cursor=cursors.text(self.signed_blobs, set_.identity, place)
        )

    async def _read(
        self,
        set_: setrecord.SetRecord,
        places: Sequence[tuple[bytes, int]],
        shards: Sequence[messages.ShardId],
        limit: int,
    ) -> tuple[list[values.MemberLetter], int | None]:
        """The set's letters among these places, and the last place that was looked at."""
        if not places:
            return [], None
        wanted = set_.identity.text.decode()
        commands = []
        for entry, number in places:
            entry_id = _entry_id(entry)
            names = self.index.shard(shards[-number])
            commands.append(("XRANGE", names.dead, entry_id, entry_id))
        replies = await self.index.read_many("read dead letters", commands)
        letters: list[values.MemberLetter] = []
        for last, ((_, number), reply) in enumerate(zip(places, replies, strict=True)):
            for entry_id, fields in reply:
                letter = deadletters.letter_of(shards[-number], entry_id, fields)
                if letter.entry.get("set_id") == wanted:
                    letters.append(_shown(letter))
            if len(letters) >= limit:
                return letters, last
        return letters, len(places) - 1

    async def replay(self, set_: setrecord.SetRecord, ids: Sequence[str]) -> tuple[int, list[str]]:
        """How many letters were replayed, and the ids of those that could not be."""
        replayed, missing = 0, []
        for id_ in ids:
            if await self._replay(set_, id_):
                replayed += 1
            else:
                missing.append(id_)
        return replayed, missing

    async def _replay(self, set_: setrecord.SetRecord, id_: str) -> bool:
        match = _ID.fullmatch(id_)
        if match is None:
            return False
        letter = await self.dead_letters.find(int(match[1]), int(match[2]), match[3])
        if letter is None or letter.entry.get("set_id") != set_.identity.text.decode():
            return False
        slot = deadletters.slot_of(letter)
        where = await self._definition(set_, letter.entry.get("name", ""))
        if slot is None or where is None or where[1].uid != slot.uid:
            return False
        now_us = self.index.clock.now_us()
        answer = await self.dead_letters.replay(letter, slot, where, now_us)
        return answer is deadletters.Replayed.APPLIED

    async def _definition(
        self, set_: setrecord.SetRecord, name: str
    ) -> tuple[messages.ShardId, definitions.Definition] | None:
        member_id = points.member_id(set_.identity, name)
        for shard in sharding.homes(member_id, self.index.known_layout()):
            found = await self.reader.read_here(shard, [member_id])
            known = found.get(member_id)
            if known is not None and known.name == name and known.owner == set_.identity:
                return shard, known
        return None


def _first(namespace: str) -> bytes:
    return b"[" + namespace.encode() + b"\0"


def _below(namespace: str, behind: _Place | None, number: int) -> bytes:
    """The newest member of a shard's ``letters`` that is still to be listed."""
    if behind is None:
        return b"(" + namespace.encode() + b"\1"
    start = namespace.encode() + b"\0" + behind.entry
    # Of letters with the same id those of lower shards came first; 4 bytes follow the place.
    return b"(" + start + (b"" if number <= behind.shard else b"\xff" * 5)


def _entry_id(entry: bytes) -> str:
    milliseconds, number = _PLACE.unpack(entry)
    return f"{milliseconds}-{number}"


def _shown(letter: deadletters.DeadEntry) -> values.MemberLetter:
    entry = letter.entry
    layout, shard = sharding.layout_of(letter.shard), sharding.index_of(letter.shard)
    slot_us = entry.get("slot_us", "")
    return values.MemberLetter(
        letter_id=f"{layout}.{shard}.{letter.id}",
        id=entry.get("name", ""),
        slot_us=int(slot_us) if slot_us.isascii() and slot_us.isdigit() else 0,
        dead_us=int(letter.id.partition("-")[0]) * 1_000,
        reason=entry.get("reason", ""),
        message=entry.get("message", ""),
        attempts=int(attempts) if (attempts := entry.get("attempts", "")).isdigit() else 0,
    )
