"""The oracle: looks at every minute (or second) of a window and asks the standard library.

Nothing of the engine is used: the zone comes from zoneinfo on top of the tzdata package, matching
from the sample's own sets, and what daylight saving does is decided for each instant by itself.
"""

from __future__ import annotations

import datetime as dt
import functools
import importlib.resources
import zoneinfo

from tests.property.expressions.generators import Sample

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@functools.cache
def zone(name: str) -> zoneinfo.ZoneInfo:
    """The zone from the pinned package, whatever the machine has installed."""
    path = importlib.resources.files("tzdata").joinpath("zoneinfo", *name.split("/"))
    with path.open("rb") as data:
        return zoneinfo.ZoneInfo.from_file(data, key=name)


def local_at(second: int, name: str) -> dt.datetime:
    return (EPOCH + dt.timedelta(seconds=second)).astimezone(zone(name))


def slots(sample: Sample, name: str, start: int, end: int, *, gap: str, overlap: str) -> list[int]:
    """The slots, in unix seconds, in ``[start, end)``."""
    step = 60 if sample.second is None else 1
    return [
        second
        for second, local, missing in _instants(name, start, end, step)
        if _is_slot(sample, local, missing, name, gap=gap, overlap=overlap)
    ]


@functools.cache
def offset_changes(name: str, start: int, end: int) -> list[tuple[int, int, int]]:
    """The minutes at which the zone's offset changes: minute, seconds before and after."""
    found = []
    for begin in range(start, end, 6 * 3_600):
        if _offset(begin, name) == _offset(begin + 6 * 3_600, name):
            continue
        for second in range(begin + 60, begin + 6 * 3_600 + 60, 60):
            before, after = _offset(second - 60, name), _offset(second, name)
            if before != after:
                found.append((second, before, after))
    return found


def _offset(second: int, name: str) -> int:
    return int(local_at(second, name).utcoffset().total_seconds())


def slots_of_decades(
    sample: Sample, name: str, start: int, end: int, *, gap: str, overlap: str
) -> list[int]:
    """The same as ``slots`` for samples that fire at second 0, over any span.

    One byte stands for each minute: first of the local calendar, then, shifted by the offset of the
    time between two changes, of UTC.
    """
    margin = 2 * 86_400
    local = _local_minutes(sample, start - margin, end + margin)
    utc = bytearray()
    edges = [(start, None, _offset(start, name)), *offset_changes(name, start, end)]
    for (begin, before, offset), (until, _, after) in zip(
        edges, [*edges[1:], (end, None, None)], strict=True
    ):
        minutes = bytearray(_cut(local, start - margin, begin + offset, until + offset))
        if not sample.sweeping:
            _choose(minutes, local, start - margin, begin, before, offset, after, gap, overlap)
        utc += minutes
    return [start + 60 * minute for minute in _marked(utc)]


def _choose(minutes, local, origin, begin, before, offset, after, gap, overlap):
    """What the choices do to the minutes of one stretch of time."""
    if before is not None and before < offset and gap == "RunOnce":
        minutes[0] |= 1 in _cut(local, origin, begin + before, begin + offset)
    if before is not None and before > offset and overlap == "First":
        twice = (before - offset) // 60
        minutes[:twice] = bytes(twice)
    if after is not None and after < offset and overlap == "Second":
        twice = (offset - after) // 60
        minutes[len(minutes) - twice :] = bytes(twice)


def _local_minutes(sample: Sample, start: int, end: int) -> bytes:
    row = bytes(
        hour in sample.hour.values and minute in sample.minute.values
        for hour in range(24)
        for minute in range(60)
    )
    first = dt.date(1970, 1, 1).toordinal()
    days = (dt.date.fromordinal(first + day) for day in range(start // 86_400, end // 86_400))
    return b"".join(row if sample.matches_day(day) else bytes(1_440) for day in days)


def _cut(minutes: bytes, origin: int, begin: int, until: int) -> bytes:
    return minutes[(begin - origin) // 60 : (until - origin) // 60]


def _marked(minutes: bytearray) -> list[int]:
    found, at = [], minutes.find(1)
    while at >= 0:
        found.append(at)
        at = minutes.find(1, at + 1)
    return found


def _is_slot(sample, local, missing, name, *, gap, overlap):
    if sample.sweeping:
        return sample.matches(local)
    if gap == "RunOnce" and any(sample.matches(absent) for absent in missing):
        return True
    if not sample.matches(local):
        return False
    naive = local.replace(tzinfo=None)
    twice = [naive.replace(tzinfo=zone(name), fold=fold).utcoffset() for fold in (0, 1)]
    if twice[0] == twice[1] or overlap == "Both":
        return True
    return local.fold == (0 if overlap == "First" else 1)


@functools.lru_cache(maxsize=64)
def _instants(name, start, end, step):
    """Each instant with its local time and the local times that are missing just before it."""
    found = []
    before = local_at(start - step, name).replace(tzinfo=None)
    for second in range(start, end, step):
        local = local_at(second, name)
        naive = local.replace(tzinfo=None)
        jump = (naive - before) // dt.timedelta(seconds=step)
        absent = [before + dt.timedelta(seconds=step * more) for more in range(1, jump)]
        found.append((second, local, absent))
        before = naive
    return found
