"""Time zones from the ``tzdata`` package shipped with the program, and from nowhere else.

Every replica therefore agrees on every slot, whatever zone files its image or node holds. A zone
is known when the package's own list names it, letter for letter; so no text of a user ever becomes
a file name unchecked. A loaded zone is a list of periods of constant offset; dst.py turns them and
the user's choices into what the engine walks over.
"""

from __future__ import annotations

import functools
import importlib.resources
from dataclasses import dataclass

from duepoint import errors
from duepoint.expressions import expression, tzif, zonehints

#: Local days of LAST_US reach into this year at most.
_LAST_YEAR = 2112

#: A placeholder in the database for "somebody forgot to choose".
_NOT_A_PLACE = "Factory"


@dataclass(frozen=True, slots=True, eq=False)
class Zone:
    """Periods of constant offset, in seconds; loaded once, so compared by identity.

    Attributes:
        name: as in the IANA database.
        starts: the UTC second at which each period begins; the first one lies before every slot.
        offsets: what is added to UTC in each period.
    """

    name: str
    starts: tuple[int, ...]
    offsets: tuple[int, ...]


def is_known(zone: str) -> bool:
    """Whether the shipped database has a zone of exactly this name."""
    return zone in known_names()


@functools.cache
def known_names() -> frozenset[str]:
    """Every zone name of the shipped database, links included."""
    listed = importlib.resources.files("tzdata").joinpath("zones").read_text("ascii")
    return frozenset(listed.split()) - {_NOT_A_PLACE}


@functools.cache
def load(zone: str) -> Zone:
    """The zone.

    Raises:
        InvalidExpression: reason UnknownTimeZone.
    """
    if not zone.strip():
        raise errors.InvalidExpression(
            "the time zone is empty",
            reason="UnknownTimeZone",
            field="timeZone",
            hint="leave timeZone out for Etc/UTC",
        )
    if not is_known(zone):
        raise errors.InvalidExpression(
            f"the time zone {errors.quoted(zone)} is not in the IANA database of this version",
            reason="UnknownTimeZone",
            field="timeZone",
            hint=zonehints.for_zone(zone, known_names()),
        )
    data = importlib.resources.files("tzdata").joinpath("zoneinfo", *zone.split("/")).read_bytes()
    before, changes = tzif.parse(data, through_year=_LAST_YEAR)
    return _trimmed(zone, before, changes)


def _trimmed(zone: str, before: int, changes: tzif.Changes) -> Zone:
    """Only the periods in which slots can lie; the oldest of them reaches back for ever."""
    first, last = expression.FIRST_US // 1_000_000, expression.LAST_US // 1_000_000
    for when, offset in changes:
        if when <= first:
            before = offset
    later = [change for change in changes if first < change[0] <= last]
    return Zone(
        zone,
        (-(1 << 62), *(when for when, _ in later)),
        (before, *(offset for _, offset in later)),
    )
