"""What a backfill would run: how many slots, the first and the last of them, and what to mind."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from duepoint import errors
from duepoint.cli import instants, output
from duepoint.schedules import manualruns
from duepoint.schedules.manualruns import Backfill, Wanted
from duepoint.schedules.slots import Slots
from duepoint.schedules.spec import ScheduleSpec

#: Slots shown at each end of a range that holds more.
_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """A backfill that nobody has asked for yet."""

    spec: ScheduleSpec
    range: Backfill

    @property
    def slots(self) -> Slots:
        return manualruns.timeline_of(
            self.spec.rule, identity=self.spec.identity, created_us=self.spec.created_us
        )

    @property
    def wanted(self) -> Wanted:
        return Wanted(schedule=self.spec.name, slots=self.range)

    @property
    def count(self) -> int:
        """Slots in the range."""
        return manualruns.count(self.wanted, self.slots)

    def check(self) -> None:
        """Raise errors.InvalidSetting where the operator would refuse it."""
        if self.count > self.range.limit:
            raise errors.InvalidSetting(
                "--limit",
                f"the range holds {self.count} slots and the limit is {self.range.limit}; write a "
                "shorter range, or a limit of up to 10000",
            )

    def ends(self) -> tuple[list[int], list[int]]:
        """The slots that go first and, of many, those that go last, in their order."""
        if self.count <= 2 * _SHOWN:
            return list(self._walk(newest_first=self.range.newest_first)), []
        first = itertools.islice(self._walk(newest_first=self.range.newest_first), _SHOWN)
        last = itertools.islice(self._walk(newest_first=not self.range.newest_first), _SHOWN)
        return list(first), list(last)[::-1]

    def _walk(self, *, newest_first: bool) -> Iterator[int]:
        after_us, through_us = self.range.from_us - 1, self.range.through_us
        if newest_first:
            return self.slots.walk_back(through_us, after_us)
        return self.slots.walk(after_us, through_us)

    def notes(self) -> Iterator[str]:
        """What people may not expect."""
        policy = self.spec.rule.policy
        if self.range.to_us > self.range.asked_us:
            yield "slots after now are left out: the Schedule runs them itself"
        if policy.concurrency != "Allow" and self.range.max_parallel > policy.max_concurrency:
            said = f"concurrencyPolicy {policy.concurrency}: {policy.max_concurrency} at a time"
            yield f"{said}, and beside regular runs as it says"
        if self.spec.rule.timing.suspend:
            yield "the Schedule is suspended; these slots run all the same"

    def row(self) -> dict[str, Any]:
        """The same as JSON; times in UTC."""
        first, last = self.ends()
        return {
            "namespace": self.spec.namespace,
            "schedule": self.spec.name,
            "slots": self.count,
            "first": [instants.utc_text(slot_us) for slot_us in first],
            "last": [instants.utc_text(slot_us) for slot_us in last],
            "notes": list(self.notes()),
        }


def show(preview: Preview) -> None:
    """On standard output, for people."""
    count = preview.count
    slots = "no slot" if count == 0 else "1 slot" if count == 1 else f"{count} slots"
    begin, end = preview.range.from_us, preview.range.to_us
    output.say(
        f"{preview.spec.identity}: {slots} from {instants.utc_text(begin)} until "
        f"{instants.utc_text(end)}, {_order(preview)}"
    )
    zone = instants.LocalTime(preview.spec.rule.timing.time_zone)
    first, last = preview.ends()
    for slot_us in first:
        output.say(f"  {instants.utc_text(slot_us)}  {zone.text(slot_us)}")
    if last:
        output.say(f"  ... {count - len(first) - len(last)} more ...")
    for slot_us in last:
        output.say(f"  {instants.utc_text(slot_us)}  {zone.text(slot_us)}")
    for note in preview.notes():
        output.say(f"  note: {note}")


def _order(preview: Preview) -> str:
    order = "newest first" if preview.range.newest_first else "oldest first"
    return f"{order}, at most {preview.range.max_parallel} at once"
