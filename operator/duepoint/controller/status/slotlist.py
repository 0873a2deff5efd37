"""``status.openSlots``: open slots as a bounded text, and back; instants as a status writes them.

The oldest slot is written as an instant, each further one as its distance in seconds from the one
before it, with ``*n`` for n equal distances in a row::

    2026-03-01T12:05:00Z +300*2 +0.25

So hundreds of slots take little space and stay readable. An instant is RFC 3339 in UTC; a fraction
is written only where there is one, because schedules of less than a second and exact replays need
it. Pure.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from typing import Any

from duepoint.kube import times
from duepoint.runs.settled import NOTHING, Settled

#: A text with more slots than this was not written by Duepoint.
_MOST_READ = 10_000
_SECOND_US = 1_000_000
_DISTANCE = re.compile(r"\+([0-9]{1,12})(?:\.([0-9]{1,6}))?(?:\*([0-9]{1,6}))?")
#: Stands in the JSON text of every status with open slots.
MARK = b'"openSlots"'


def rendered(settled: Settled) -> dict[str, Any] | None:
    """The status field; None where no slot is open."""
    slots_us = settled.open_us
    if not slots_us:
        return None
    fields: dict[str, Any] = {"count": len(slots_us), "oldest": instant(slots_us[0])}
    if settled.started_us:
        fields["started"] = text(settled.started_us)
    if settled.waiting_us:
        fields["waiting"] = text(settled.waiting_us)
    return fields


def read(status: Mapping[str, Any]) -> Settled:
    """The slots that have ended according to a status."""
    listed = status.get("openSlots")
    listed = listed if isinstance(listed, Mapping) else {}
    settled = Settled(
        through_us=instant_us(status.get("settledThrough")),
        started_us=parse(listed.get("started")),
        waiting_us=parse(listed.get("waiting")),
    )
    return settled if settled.through_us else NOTHING


def text(slots_us: Iterable[int]) -> str:
    """The text of distinct slots, oldest first; empty for none."""
    listed = list(slots_us)
    if not listed:
        return ""
    parts = [instant(listed[0])]
    distances = (after - before for before, after in itertools.pairwise(listed))
    for distance_us, equal in itertools.groupby(distances):
        count = sum(1 for _ in equal)
        parts.append(f"+{_seconds(distance_us)}" + (f"*{count}" if count > 1 else ""))
    return " ".join(parts)


def parse(listed: object) -> tuple[int, ...]:
    """The slots of a text that ``text`` wrote; none for anything else."""
    if not isinstance(listed, str) or not listed:
        return ()
    first, *distances = listed.split(" ")
    at_us = instant_us(first)
    if not at_us:
        return ()
    slots_us = [at_us]
    for part in distances:
        match = _DISTANCE.fullmatch(part)
        count = 0 if match is None else int(match[3] or 1)
        if match is None or len(slots_us) + count > _MOST_READ:
            return ()
        distance_us = int(match[1]) * _SECOND_US + int((match[2] or "").ljust(6, "0"))
        last_us = slots_us[-1]
        slots_us += [last_us + distance_us * number for number in range(1, count + 1)]
    return tuple(slots_us)


def instant(at_us: int) -> str:
    """An instant as a status writes it, with a fraction only where there is one."""
    return times.micro_time_text(at_us) if at_us % _SECOND_US else times.time_text(at_us)


def instant_us(text: object) -> int:
    """The instant of such a text; 0 for anything else."""
    try:
        return times.parse_us(text) if isinstance(text, str) else 0
    except ValueError:
        return 0


def _seconds(distance_us: int) -> str:
    whole, fraction = divmod(distance_us, _SECOND_US)
    return f"{whole}.{fraction:06d}".rstrip("0") if fraction else str(whole)
