"""When each one-off of a load is due. Pure."""

from __future__ import annotations

import datetime as dt
import random
from dataclasses import dataclass

from duepoint import client

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """One-offs by their number.

    Attributes:
        run: the beginning of every id, so that two loads never meet.
        due_us: when each is due, in ascending order.
        payload: of all of them; UNSET = its number.
    """

    run: str
    due_us: tuple[int, ...]
    payload: object

    def id_of(self, number: int) -> str:
        return f"{self.run}-{number:06d}"

    def number_of(self, id_: str) -> int | None:
        """Of an id; None where it is none of this load."""
        run, _, number = id_.rpartition("-")
        if run != self.run or not (number.isascii() and number.isdecimal() and len(number) < 12):
            return None
        return int(number) if int(number) < len(self.due_us) else None

    def row(self, number: int) -> client.MemberRow:
        payload = {"n": number} if self.payload is None else self.payload
        at = _EPOCH + dt.timedelta(microseconds=self.due_us[number])
        # What is handed in late has to run: how late it comes is what is measured.
        return client.MemberRow(
            id=self.id_of(number), at=at, payload=payload, starting_deadline_seconds=86_400
        )


def spread(
    *, count: int, first_us: int, within_us: int, pattern: str, seed: int
) -> tuple[int, ...]:
    """Due times, in whole milliseconds, from ``first_us`` on and less than ``within_us`` later.

    Args:
        pattern: ``even``: all the same distance apart; ``random``: each anywhere; ``at-once``:
            all at the beginning.
    """
    if pattern == "at-once":
        offsets = [0] * count
    elif pattern == "even":
        offsets = [number * within_us // count for number in range(count)]
    else:
        drawn = random.Random(seed)  # noqa: S311 - a load that can be repeated
        offsets = sorted(drawn.randrange(max(within_us, 1)) for _ in range(count))
    return tuple((first_us + offset) // 1_000 * 1_000 for offset in offsets)
