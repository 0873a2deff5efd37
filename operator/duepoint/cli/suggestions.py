"""Which Schedules to move or to spread, so that the worst minutes become ordinary ones.

The worst minute is looked at, and of the expressions in it the one that brings most is written so
that its Schedules differ: ``H`` in place of the minute, a hash of each Schedule's name; else a
jitter. Then the next worst minute, until a change would no longer help. Whether a Schedule may run
at another minute only its author knows, so this proposes and changes nothing. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from duepoint.schedules import load
from duepoint.schedules.load import AlikeSchedules, Forecast

#: Proposals for one forecast.
MOST = 10
#: What brings less of a minute's load, or takes less away from it, is not worth a change.
_LEAST_SHARE = 0.05
#: A minute that has no more than so many times the mean is ordinary.
_ORDINARY = 1.5
_JITTER_MINUTES = 10
_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_EVERY_MINUTE = frozenset({"*", "?", "*/1", "?/1", "0-59", "0-59/1"})
_STEPS = re.compile(r"(?:[*?]|0|0-59)/([1-9]\d?)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewriting:
    """What to write instead.

    Attributes:
        to: the new expression; empty where a jitter is proposed.
        over: minutes over which each slot is spread then.
        back: so many of them lie before the slot.
    """

    to: str
    over: int
    back: int = 0

    @property
    def what(self) -> str:
        return f'schedule: "{self.to}"' if self.to else f"jitter: {self.over}m"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """A change for all Schedules of one expression.

    Attributes:
        before, after: slots of the worst of the minutes in which these Schedules run, all others
            in it included, so that a second minute that is as bad elsewhere hides no gain.
    """

    text: str
    time_zone: str
    schedules: int
    names: tuple[str, ...]
    change: Rewriting
    before: float
    after: float


def change(texts: tuple[str, ...]) -> Rewriting | None:
    """What spreads Schedules with these expressions; None where nothing does."""
    text = texts[0].strip()
    if len(texts) > 1 or text.lower().startswith("@at"):
        return None
    fields = _MACROS.get(text.lower(), text).split()
    if text.lower().startswith("@every"):
        return Rewriting(to="", over=_JITTER_MINUTES)
    if len(fields) != 5 or "H" in fields[0].upper() or fields[0] in _EVERY_MINUTE:
        return None
    return _other_minute(fields[0], " ".join(fields[1:]))


def _other_minute(minute: str, rest: str) -> Rewriting:
    """What spreads a minute of an expression of five fields, the others being ``rest``."""
    if minute.isascii() and minute.isdecimal():
        return Rewriting(to=f"H {rest}", over=60, back=int(minute))
    if (steps := _STEPS.fullmatch(minute)) and 60 % int(steps[1]) == 0:
        return Rewriting(to=f"H/{steps[1]} {rest}", over=int(steps[1]))
    if listed := _evenly(minute):
        first, distance = listed
        return Rewriting(to=f"H/{distance} {rest}", over=distance, back=first)
    return Rewriting(to="", over=_JITTER_MINUTES)


def _evenly(minute: str) -> tuple[int, int] | None:
    """First and distance of a list such as 0,15,30,45."""
    parts = minute.split(",")
    if not all(part.isascii() and part.isdecimal() for part in parts) or 60 % len(parts):
        return None
    numbers, distance = sorted(map(int, parts)), 60 // len(parts)
    if numbers != list(range(numbers[0], 60, distance)):
        return None
    return (numbers[0], distance) if len(numbers) == len(parts) else None


def suggestions(known: Forecast) -> Iterator[Suggestion]:
    """Return the proposals, each after those before it."""
    minutes = list(known.minutes)
    moved: set[tuple[tuple[str, ...], str]] = set()
    for _ in range(MOST):
        before = max(minutes)
        worst = minutes.index(before)
        if before <= max(1.0, _ORDINARY * sum(minutes) / len(minutes)):
            return
        candidates: dict[tuple[tuple[str, ...], str], float] = {}
        for slots, group in known.inside(worst):
            key = group.texts, group.time_zone
            if key not in moved and not group.jitter and change(group.texts) is not None:
                candidates[key] = candidates.get(key, 0.0) + slots
        if not candidates:
            return
        best = max(candidates, key=lambda key: (candidates[key], key))
        wanted = change(best[0])
        if wanted is None or candidates[best] < _LEAST_SHARE * before:
            return
        moved.add(best)
        groups = [g for g in known.groups if (g.texts, g.time_zone) == best and not g.jitter]
        changed, after = _applied(groups, wanted, minutes)
        if after > (1 - _LEAST_SHARE) * before:
            continue  # what they leave or where they go is as bad: the next one may do better
        minutes[:] = changed
        yield Suggestion(
            text=groups[0].text,
            time_zone=groups[0].time_zone,
            schedules=sum(group.count for group in groups),
            names=tuple(name for group in groups for name in group.names)[:3],
            change=wanted,
            before=before,
            after=after,
        )


def _applied(
    groups: list[AlikeSchedules], wanted: Rewriting, minutes: list[float]
) -> tuple[list[float], float]:
    """The minutes with a change, and the worst of those that the groups leave or go to."""
    changed, touched = list(minutes), set[int]()
    for group in groups:
        spread = load.spread(group.shape, wanted.over, len(minutes), back=wanted.back)
        load.add(changed, group.shape, -group.count)
        load.add(changed, spread, group.count)
        touched.update(minute for shape in (group.shape, spread) for minute, _ in shape)
    return changed, max(changed[minute] for minute in touched)
