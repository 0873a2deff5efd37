"""How members of a set ended, counted once each.

Workers write into each shard's stream of outcomes what became of members, one line for each set.
A leader that stops between counting a line and acknowledging it reads it again; so the status says
through which entry of each shard it has counted, and an entry up to there is not counted again.
Entries of one shard have rising ids, milliseconds, then a number, until its server goes back. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from duepoint.runs.setruns import SetOutcome

#: (milliseconds, number) of an entry of a stream.
EntryId = tuple[int, int]

#: Marks in a status; those of the newest shards, where an index was resharded.
_MOST_MARKS = 600
_MARK = re.compile(r"(\d{1,9}):(\d{1,15})-(\d{1,10})")


class SetTally(msgspec.Struct, frozen=True, kw_only=True):
    """Slots of members by how they ended.

    Attributes:
        started: Jobs that were created; what becomes of them is shown by the Jobs.
        newest_slot_us: the newest slot that has started; 0 = none has.
        since_us: when counting began.
        through: by shard, the newest entry that is counted.
    """

    succeeded: int = 0
    failed: int = 0
    missed: int = 0
    skipped: int = 0
    started: int = 0
    newest_slot_us: int = 0
    since_us: int = 0
    through: Mapping[int, EntryId] = msgspec.field(default_factory=dict)

    def counted(self, ended: SetOutcome) -> SetTally:
        """With these slots, unless their entry is counted already."""
        entry = entry_id(ended.entry)
        if entry <= self.through.get(ended.shard, (-1, 0)):
            return self
        return SetTally(
            succeeded=self.succeeded + ended.succeeded,
            failed=self.failed + ended.failed,
            missed=self.missed + ended.missed,
            skipped=self.skipped + ended.skipped,
            started=self.started + ended.started,
            newest_slot_us=max(self.newest_slot_us, ended.newest_slot_us),
            since_us=self.since_us,
            through={**self.through, ended.shard: entry},
        )

    def after_going_back(self, shard: int, note: EntryId) -> SetTally:
        """With the mark of a shard no higher than the note that its server went back.

        Ids are times: those of a promoted server whose clock is behind are lower than those that
        the former one gave.
        """
        if self.through.get(shard, note) <= note:
            return self
        return msgspec.structs.replace(self, through={**self.through, shard: note})


#: Nothing was counted.
NONE_ENDED = SetTally()


def through_text(through: Mapping[int, EntryId]) -> str:
    """The marks as a status shows them: ``shard:milliseconds-number``, by shard."""
    newest = sorted(through.items())[-_MOST_MARKS:]
    return " ".join(f"{shard}:{at}-{number}" for shard, (at, number) in newest)


def through_of(text: str) -> dict[int, EntryId]:
    """The marks behind a text of ``through_text``; what is none is left out."""
    found = (_MARK.fullmatch(mark) for mark in text.split(" ")[:_MOST_MARKS])
    return {int(mark[1]): (int(mark[2]), int(mark[3])) for mark in found if mark}


def entry_id(text: str) -> EntryId:
    """The id of an entry of a stream; raises ValueError."""
    at, _, number = text.partition("-")
    return int(at), int(number or 0)
