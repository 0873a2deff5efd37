"""Dead letters of the members of a set: reading some of them, and running their slots again.

Letters lie in the streams of their shards, newest last, with those of all others; a page looks at
a bounded number of them, shard by shard. A letter is named by its shard and its place there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from duepoint.delayqueue import deadletters, index, layouts, sharding
from duepoint.delayqueue.definitions import reading, signedblobs
from duepoint.delayqueue.members import pages, values
from duepoint.schedules import points
from duepoint.schedules.sets import setrecord

#: Letters of one read, and reads of one page.
_LETTERS_TOGETHER = 200
_READS = 80
_ID = re.compile(r"(\d{1,6})\.(\d{1,6})\.(\d{1,20}-\d{1,20})", re.ASCII)


class _Letters(msgspec.Struct, frozen=True, array_like=True):
    """How far a walk has come: whole shards, and letters of the next one."""

    layout: int
    shard: int
    before: str = "+"


class LetterPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some dead letters of a set, with their ids, and where to go on; empty = the end."""

    letters: list[tuple[str, deadletters.DeadEntry]]
    cursor: str


@dataclass(eq=False)
class MemberLetters:
    """Dead letters of members."""

    index: index.Index
    layouts: layouts.Layouts
    reader: reading.DefinitionReader
    letters: deadletters.DeadLetters
    signed_blobs: signedblobs.SignedBlobs

    async def page(self, set_: setrecord.SetRecord, cursor: str = "", *, limit: int) -> LetterPage:
        """Some letters, newest first within a shard; bounded work. Raises InvalidCursor."""
        owner, layout = set_.identity, self.index.known_layout()
        at = _Letters(layout.number, 0)
        if cursor:
            at = pages.parse_cursor(self.signed_blobs, owner, _Letters, cursor)
            if at.layout != layout.number:
                raise values.InvalidCursor("the index was resharded; begin again without a cursor")
        shards = sharding.all_shards(layout)
        mark = owner.text.decode()
        found: list[tuple[str, deadletters.DeadEntry]] = []
        for _ in range(_READS):
            if at.shard >= len(shards) or len(found) >= limit:
                break
            shard = shards[at.shard]
            some = await self.letters.newest(shard, before=at.before, count=_LETTERS_TOGETHER)
            last = ""
            for letter in some:
                if len(found) >= limit:
                    break
                last = letter.id
                if letter.entry.get("set_id") == mark:
                    found.append((_id_of(letter), letter))
            else:
                if len(some) < _LETTERS_TOGETHER:
                    at = _Letters(layout.number, at.shard + 1)
                    continue
            at = _Letters(layout.number, at.shard, f"({last}" if last else at.before)
        text = "" if at.shard >= len(shards) else pages.cursor_text(self.signed_blobs, owner, at)
        return LetterPage(letters=found, cursor=text)

    async def replay(
        self, set_: setrecord.SetRecord, ids: Sequence[str]
    ) -> dict[str, deadletters.Replayed]:
        """Run the slots of these letters again; what became of each."""
        return {letter_id: await self._replay(set_, letter_id) for letter_id in ids}

    async def _replay(self, set_: setrecord.SetRecord, letter_id: str) -> deadletters.Replayed:
        parts = _ID.fullmatch(letter_id)
        if parts is None:
            return deadletters.Replayed.UNKNOWN
        letter = await self.letters.find(int(parts[1]), int(parts[2]), parts[3])
        if letter is None or letter.entry.get("set_id") != set_.identity.text.decode():
            return deadletters.Replayed.UNKNOWN
        slot = deadletters.slot_of(letter)
        member_id = points.member_id(set_.identity, letter.entry.get("name", ""))
        known = await self.reader.definition(member_id)
        if slot is None or known is None or known.uid != slot.uid:
            return deadletters.Replayed.GONE
        layout = await self.layouts.read()
        answer = deadletters.Replayed.GONE
        for shard in sharding.homes(member_id, layout):
            answer = await self.letters.replay(
                letter, slot, (shard, known), self.index.clock.now_us()
            )
            if answer not in (deadletters.Replayed.BUSY, deadletters.Replayed.GONE):
                break
        return answer


def _id_of(letter: deadletters.DeadEntry) -> str:
    layout, shard = sharding.layout_of(letter.shard), sharding.index_of(letter.shard)
    return f"{layout}.{shard}.{letter.id}"
