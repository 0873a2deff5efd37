"""Time zones from the ``tzdata`` package shipped with the program, and from nowhere else.

What a version knows of a zone from 2025 on is written in short as text (``data_of``) and stored
with each rule, so that every replica agrees on every slot, whatever zone files its image or node
holds and of whatever version it is: ``located`` reads such a text. A zone is known when the
package's own list names it, letter for letter; so no text of a user ever becomes a file name
unchecked. A loaded zone is a list of periods of constant offset; dst.py turns them and the user's
choices into what the engine walks over.
"""

from __future__ import annotations

import bisect
import functools
import importlib.resources
from dataclasses import dataclass

from duepoint import errors
from duepoint.expressions import expression, tzif, zonehints

#: Local days of LAST_US reach into this year at most.
_LAST_YEAR = 2112

#: What lies before is history: each version knows that for itself.
_SHARED_FROM = 1_735_689_600  # 2025-01-01

#: Changes that are listed one by one, some twelve years of them; and what stands for the others.
_MOST_LISTED = 24
_OWN = "*"

#: Between a zone's name and its data; no name has one.
_MARK = "|"

#: A placeholder in the database for "somebody forgot to choose".
_NOT_A_PLACE = "Factory"


@dataclass(frozen=True, slots=True, eq=False)
class Zone:
    """Periods of constant offset, in seconds; loaded once, so compared by identity.

    Attributes:
        name: as in the IANA database.
        starts: the UTC second at which each period begins; the first one lies before every slot.
        offsets: what is added to UTC in each period.
        footer: the POSIX TZ rule that the last periods follow.
    """

    name: str
    starts: tuple[int, ...]
    offsets: tuple[int, ...]
    footer: str = ""


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
    return _trimmed(zone, before, changes, tzif.footer(data))


def data_of(zone: str) -> str:
    """What this version knows of the zone from 2025 on; empty where it is UTC then.

    ``OFFSET;WHEN:OFFSET,...;FOOTER``: the offset at the beginning of 2025, the changes that follow
    no rule, and the rule for all later ones. Where very many follow none (Morocco's, by the moon)
    the first ones are listed, and ``*`` stands for what each version knows of the later ones.

    Raises as ``load``.
    """
    return _data(load(zone))


def located(reference: str) -> Zone:
    """The zone of a name alone, or of a name with data as ``with_data`` joins them.

    With data, those count from 2025 on, before that our own. Data of a form that a later version
    writes are passed over. Raises as ``load`` where there are no data.
    """
    name, mark, data = reference.partition(_MARK)
    return _located(name, data) if mark else load(name)


def with_data(zone: str, data: str) -> str:
    """A reference for ``located``."""
    return f"{zone}{_MARK}{data}" if data else zone


@functools.lru_cache(maxsize=1024)
def _data(zone: Zone) -> str:
    offset = _offset_at(zone, _SHARED_FROM)
    changes = _changes_after(zone, _SHARED_FROM)
    if not changes:
        return f"{offset};;" if offset else ""
    # The more of them the rule makes, the shorter the text: mostly it makes all.
    for count in range(min(len(changes), _MOST_LISTED) + 1):
        if _ruled(offset, changes[:count], zone.footer) == changes:
            return f"{offset};{_listed(changes[:count])};{zone.footer}"
    return f"{offset};{_listed(changes[:_MOST_LISTED])};{_OWN}"


def _listed(changes: tzif.Changes) -> str:
    return ",".join(f"{when}:{after}" for when, after in changes)


@functools.lru_cache(maxsize=1024)
def _located(name: str, data: str) -> Zone:
    own = load(name) if is_known(name) else Zone(name, (-(1 << 62),), (0,))
    if data == _data(own):
        return own
    try:
        offset_text, listed_text, footer = data.split(";")
        offset = int(offset_text)
        pairs = [part.split(":") for part in listed_text.split(",") if part]
        listed = [(int(when), int(after)) for when, after in pairs]
        if footer == _OWN:
            changes = listed + _changes_after(own, listed[-1][0] if listed else _SHARED_FROM)
        else:
            changes = _ruled(offset, listed, footer)
    except ValueError:
        return own
    earlier = [
        (when, after)
        for when, after in zip(own.starts, own.offsets, strict=True)
        if when < _SHARED_FROM
    ]
    if earlier[-1][1] != offset:
        earlier.append((_SHARED_FROM, offset))
    starts, offsets = zip(*earlier, *changes, strict=True)
    return Zone(name, starts, offsets, footer)


def _ruled(offset: int, listed: tzif.Changes, footer: str) -> tzif.Changes:
    """The changes from 2025 on: those listed, then those of the rule."""
    latest = listed[-1][0] if listed else _SHARED_FROM
    last_us = expression.LAST_US // 1_000_000
    ruled = tzif.ruled(footer, latest, _LAST_YEAR)
    return [one for one in tzif.only_real(offset, [*listed, *ruled]) if one[0] <= last_us]


def _offset_at(zone: Zone, second: int) -> int:
    return zone.offsets[bisect.bisect_right(zone.starts, second) - 1]


def _changes_after(zone: Zone, second: int) -> tzif.Changes:
    first = bisect.bisect_right(zone.starts, second)
    return list(zip(zone.starts[first:], zone.offsets[first:], strict=True))


def _trimmed(zone: str, before: int, changes: tzif.Changes, footer: str) -> Zone:
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
        footer,
    )
