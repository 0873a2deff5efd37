"""What became of members of sets, folded: a few numbers for each set, and no event for each member.

A set of a million members that fire each minute would write a million events a minute, of which its
status shows a sum. So a settlement says of each set how many of its slots succeeded, failed, were
missed or skipped, and what a status needs beside that. Pure; stored in the outcome streams: fields
are only ever appended, with a default.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class SetOutcome(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What one settlement says of the members of one set.

    Attributes:
        started: Jobs that were created; what becomes of them is theirs to tell.
        newest_slot_us: of those that started; 0 = none did.
        ended_us: when the latest of them ended.
        worst_late_us: how late the latest first attempt began, after its slot.
        shard, entry: where it was read: a shard's number, and the id in its stream.
    """

    uid: str
    namespace: str
    name: str
    succeeded: int = 0
    failed: int = 0
    missed: int = 0
    skipped: int = 0
    started: int = 0
    newest_slot_us: int = 0
    ended_us: int = 0
    worst_late_us: int = 0
    shard: int = 0
    entry: str = ""

    def plus(self, other: SetOutcome) -> SetOutcome:
        """Both, of the same set."""
        return msgspec.structs.replace(
            self,
            **{name: getattr(self, name) + getattr(other, name) for name in _SUMS},
            **{name: max(getattr(self, name), getattr(other, name)) for name in _GREATEST},
        )


_SUMS = ("succeeded", "failed", "missed", "skipped", "started")
_GREATEST = ("newest_slot_us", "ended_us", "worst_late_us")


def folded(outcomes: Iterable[SetOutcome]) -> list[SetOutcome]:
    """One for each set."""
    found: dict[str, SetOutcome] = {}
    for outcome in outcomes:
        known = found.get(outcome.uid)
        found[outcome.uid] = outcome if known is None else known.plus(outcome)
    return list(found.values())
