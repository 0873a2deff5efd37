"""``status.openSlots``: open slots as a bounded text, and back.

The oldest slot is written as an instant, each further one as its distance in seconds from the one
before it, with ``*n`` for n equal distances in a row::

    2026-03-01T12:05:00Z +300*2 +0.25

So hundreds of slots fit into little space, and a person can still read them. Pure.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from typing import Any

from duepoint.kube import times
from duepoint.runs.settled import NOTHING, Settled

#: A text that claims to hold more slots is not ours.
_MOST_READ = 10_000
_SECOND_US = 1_000_000
_DISTANCE = re.compile(r"\+([0-9]{1,12})(?:\.([0-9]{1,6}))?(?:\*([0-9]{1,6}))?")
#: In the JSON text of a status with open slots.
MARK = b'"openSlots"'


def shown(settled: Settled) -> dict[str, Any] | None:
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


def loaded(status: Mapping[str, Any]) -> Settled:
    """What a status says has ended."""
    listed = status.get("openSlots")
    listed = listed if isinstance(listed, Mapping) else {}
    settled = Settled(
        through_us=instant_us(status.get("settledThrough")),
        started_us=parse(listed.get("started")),
        waiting_us=parse(listed.get("waiting")),
    )
    return settled if settled.through_us else NOTHING


def text(slots_us: Iterable[int]) -> str:
    """Slots, oldest first and none twice; empty for none."""
    listed = list(slots_us)
    if not listed:
        return ""
    parts = [instant(listed[0])]
    distances = (after - before for before, after in itertools.pairwise(listed))
    for distance_us, equal in itertools.groupby(distances):
        count = sum(1 for _ in equal)
        parts.append(f"+{_seconds(distance_us)}" + (f"*{count}" if count > 1 else ""))
    return " ".join(parts)


def parse(shown: object) -> tuple[int, ...]:
    """The slots behind a text of ours; none behind anything else."""
    if not isinstance(shown, str) or not shown:
        return ()
    first, *distances = shown.split(" ")
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


def instant(instant_us: int) -> str:
    """An instant as a status shows it: with a fraction only where there is one."""
    if instant_us % _SECOND_US:
        return times.micro_time_text(instant_us)
    return times.time_text(instant_us)


def instant_us(text: object) -> int:
    """The instant behind a text of ours; 0 for anything else."""
    try:
        return times.parse_us(text) if isinstance(text, str) else 0
    except ValueError:
        return 0


def _seconds(distance_us: int) -> str:
    whole, fraction = divmod(distance_us, _SECOND_US)
    return f"{whole}.{fraction:06d}".rstrip("0") if fraction else str(whole)
