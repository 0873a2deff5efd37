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
