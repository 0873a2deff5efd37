"""What each shard knows of a set: one short text, read with every claim of its members. Pure.

A letter (o: members fire; p: they do not; d: they are being removed), the digest of what to do, and
behind a colon for how many seconds a member that has come to its end is kept; before that ``m:``
where members are kept equal to rows. Scripts read the letter, the seconds and the mark, too
(``scripts/includes/heads.lua``, ``leaving.lua``, ``managed.lua``).
"""

from __future__ import annotations

from typing import NamedTuple

from duepoint.schedules.sets import setrecord
from duepoint.schedules.sets.setrecord import SetState

_LETTERS = {
    SetState.READY: "o",
    SetState.SUSPENDED: "p",
    SetState.STALLED: "p",
    SetState.DELETING: "d",
}


class SetEntry(NamedTuple):
    """What may happen to the members of a set, and what to do for them."""

    letter: str
    target: str

    @property
    def is_paused(self) -> bool:
        return self.letter == "p"

    @property
    def is_gone(self) -> bool:
        return self.letter == "d"


def text(record: setrecord.SetRecord) -> str:
    """The entry of a set."""
    mark = "m:" if record.is_managed else ""
    return f"{_LETTERS[record.state]}{record.target}:{mark}{record.settings.retention_seconds}"


def parse(entry: bytes) -> SetEntry:
    """The entry behind a text; what cannot be read is paused."""
    letter, rest = entry[:1], entry[1:].partition(b":")[0]
    if letter not in (b"o", b"p", b"d") or not rest.isascii():
        return SetEntry("p", "")
    return SetEntry(letter.decode(), rest.decode())
