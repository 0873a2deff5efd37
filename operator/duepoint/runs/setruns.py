"""How slots of the members of a set ended: sums, and no event for each member.

A set of a million members that fire each minute would write a million events a minute, of which its
status shows a sum. So a settlement says of each set how many of its slots ended in which way, and
the script that settles adds that to what the shard has counted (``scripts/includes/runs.lua``).
Pure.
"""

from __future__ import annotations

import msgspec


class SetTally(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Slots of members by how they ended; scripts know the order of the fields.

    Attributes:
        started: Jobs that were created; what becomes of them is shown by the Jobs.
        newest_slot_us: the newest slot that has started; 0 = none has.
    """

    succeeded: int = 0
    failed: int = 0
    missed: int = 0
    skipped: int = 0
    started: int = 0
    newest_slot_us: int = 0

    def plus(self, other: SetTally) -> SetTally:
        """Both, of different slots."""
        sums = [mine + theirs for mine, theirs in self._with(other)]
        sums[-1] = max(self.newest_slot_us, other.newest_slot_us)
        return msgspec.convert(sums, SetTally)

    def newest(self, other: SetTally) -> SetTally:
        """The newer of two readings of the same counters, which never fall."""
        return msgspec.convert([max(pair) for pair in self._with(other)], SetTally)

    def beyond(self, other: SetTally) -> SetTally | None:
        """What this reading has counted and the other one has not; None = nothing."""
        missing = [max(0, mine - theirs) for mine, theirs in self._with(other)]
        missing[-1] = self.newest_slot_us
        return msgspec.convert(missing, SetTally) if any(missing[:-1]) else None

    @property
    def text(self) -> str:
        """As a shard stores it; ``read`` is the way back."""
        return " ".join(map(str, msgspec.structs.astuple(self)))

    def _with(self, other: SetTally) -> zip[tuple[int, int]]:
        return zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)


#: Nothing has ended.
NONE_ENDED = SetTally()


def read(stored: bytes | None) -> SetTally:
    """What a shard has counted; nothing where it holds no such text."""
    numbers = [int(number) for number in (stored or b"").split() if number.isdigit()]
    return msgspec.convert(numbers[: len(SetTally.__struct_fields__)], SetTally)
