"""``duepoint forecast``: how many runs the coming hours bring, and who is in the worst minutes.

Reads Schedules of a cluster or of files, counts their slots by minute, and shows a heat map, the
worst minutes with what is in them, and what would even them out. Members of ScheduleSets are in
Redis and are not counted; a Schedule that this version cannot read is named.
"""

from __future__ import annotations

import asyncio
import bisect
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from duepoint import errors
from duepoint.cli import instants, options, output
from duepoint.cli.check import manifests
from duepoint.cli.cronjob import conversion
from duepoint.kube import schedules
from duepoint.schedules import load
from duepoint.schedules.load import Forecast, Hour
from duepoint.schedules.spec import ScheduleSpec

if TYPE_CHECKING:
    from rich.text import Text
import re

from duepoint.schedules.load import AlikeSchedules

_DAY_MINUTES = 24 * 60
_MOST_DAYS = 31
#: Minutes that are shown as the worst, those alike as one.
_WORST = 5
#: A load, and the expressions and zones that bring it.
_Alike = tuple[int, frozenset[tuple[str, str]]]
#: Expressions that are named for each of them.
_INSIDE = 5


@click.command("forecast")
@options.files_if_any
@click.option("--selector", "-l", metavar="LABELS", help="Of a cluster: only such Schedules.")
@click.option("--days", default="7", metavar="N", type=options.whole(_MOST_DAYS),
    show_default=True, help="How many days to look ahead.")  # fmt: skip
@click.option("--from", "from_", default="now", metavar="TIME", show_default=True, help="Begin.")
@click.option("--time-zone", default="Etc/UTC", metavar="ZONE", type=options.ZONE,
    show_default=True, help="Of the hours that are shown.")  # fmt: skip
@options.output_format
@options.of_many
def forecast(
    *,
    files: tuple[str, ...],
    selector: str | None,
    days: int,
    from_: str,
    time_zone: str,
    form: str,
    place: options.Place,
) -> None:
    """Show how many runs the coming hours bring, and who is in the worst minutes.

    Without a FILE it asks the cluster. Proposes what to write instead where a minute stands out.

    Example: duepoint forecast -A --days 7
    """
    if files and (place.everywhere or selector is not None):
        raise errors.InvalidSetting("--filename", "reads files; leave out -A and -l")
    from_us = instants.parse_us(from_, zone=time_zone, name="--from")
    read = Reading(now_us=from_us)
    if files:
        found: Iterable[Found] = _of_files(files, place.namespace or "default")
    else:
        found = asyncio.run(_of_cluster(place, selector))
    coming = load.forecast(read.specs(found), from_us=from_us, minutes=days * _DAY_MINUTES)
    read.report()
    proposals = list(suggestions(coming))
    cells = load.hours(coming, time_zone)
    if output.is_data(form):
        output.write([_row(coming, cells, proposals)], form)
    else:
        _show(coming, cells, time_zone, proposals)


# -- reading -------------------------------------------------------------------------------------


class Found(NamedTuple):
    """An object as it was read, and where it was."""

    where: str
    item: schedules.Schedule


@dataclass(kw_only=True)
class Reading:
    """Specs of objects, and those that could not be read.

    Attributes:
        now_us: objects that have not been created count as created before it.
    """

    now_us: int
    unread: list[str] = field(default_factory=list)

    def specs(self, found: Iterable[Found]) -> Iterator[ScheduleSpec]:
        for each in found:
            try:
                yield schedules.spec_of(each.item, absent_us=self.now_us - 1)
            except errors.InvalidSpec as error:
                self.unread.append(f"{each.where}: {error}")

    def report(self) -> None:
        """Say what was left out."""
        if self.unread:
            more = f" (and {len(self.unread) - 1} more)" if len(self.unread) > 1 else ""
            output.complain(f"left out: {output.one_line(self.unread[0])}{more}")


def _of_files(files: Iterable[str], namespace: str) -> Iterator[Found]:
    for file in files:
        for manifest in manifests.read(file):
            if manifest.trouble:
                raise errors.InvalidSetting(manifest.where, manifest.trouble)
            content = manifest.content
            if not isinstance(content, dict) or manifest.kind not in ("Schedule", "CronJob"):
                continue
            if manifest.kind == "CronJob":  # it has the times of the Schedule that it becomes
                content, _ = conversion.ported(content, namespace=None, time_zone=None)
            yield Found(manifest.where, schedules.item_of(content, namespace=namespace))


async def _of_cluster(place: options.Place, selector: str | None) -> list[Found]:
    from duepoint.cli import cluster  # noqa: PLC0415 - libraries that --help does not need

    async with cluster.session(place) as server:
        listed = await cluster.listed_schedules(server, place, selector)
    return [
        Found("Schedule {namespace}/{name}".format_map(item["metadata"]), schedules.item_of(item))
        for item in listed
    ]


# -- showing -------------------------------------------------------------------------------------


def _worst(coming: Forecast) -> Iterator[tuple[int, int]]:
    """The worst minutes, and how many others are alike: of the same load, and the same in them.

    Minutes of the same load at the same minute of their hours count as alike unseen.
    """
    alike: dict[_Alike, list[int]] = {}
    seen: dict[tuple[int, int], _Alike] = {}
    minutes = coming.minutes
    for minute in sorted(range(len(minutes)), key=lambda one: (-minutes[one], one)):
        if not minutes[minute]:
            break
        slots = round(minutes[minute])
        place = slots, coming.at_us(minute) // load.MINUTE_US % 60
        is_full = len(alike) == _WORST
        if place not in seen:
            if is_full and all(slots != listed for listed, _ in alike):
                break  # those that follow have less
            inside = frozenset((group.text, group.time_zone) for _, group in coming.inside(minute))
            seen[place] = slots, inside
        if seen[place] in alike or not is_full:
            alike.setdefault(seen[place], []).append(minute)
    for found in alike.values():
        yield found[0], len(found) - 1


def _row(coming: Forecast, cells: list[load.Hour], proposals: list[Suggestion]) -> output.Row:
    return {
        "from": output.time(coming.from_us),
        "to": output.time(coming.at_us(len(coming.minutes))),
        "schedules": coming.schedules,
        "suspended": coming.suspended,
        "runs": round(coming.runs),
        "hours": [
            {
                "begin": output.time(coming.at_us(cell.first)),
                "runs": round(cell.runs),
                "peak": round(cell.peak, 2),
                "peakMinute": output.time(coming.at_us(cell.worst)),
            }
            for cell in cells
        ],
        "worst": [
            {
                "minute": output.time(coming.at_us(minute)),
                "slots": round(coming.minutes[minute], 2),
                "alike": alike,
                "inside": [each.row for each in coming.expressions(minute)],
            }
            for minute, alike in _worst(coming)
        ],
        "suggestions": [
            {
                "schedule": one.text,
                "timeZone": one.time_zone,
                "schedules": one.schedules,
                "such": list(one.names),
                "write": one.change.what,
                "peakBefore": round(one.before, 2),
                "peakAfter": round(one.after, 2),
            }
            for one in proposals
        ],
    }


def _show(coming: Forecast, cells: list[load.Hour], zone: str, proposals: list[Suggestion]) -> None:
    suspended = f", {coming.suspended:,} of them suspended" if coming.suspended else ""
    ends = instants.utc_text(coming.from_us), instants.utc_text(coming.at_us(len(coming.minutes)))
    objects, runs = f"{coming.schedules:,} Schedule", f"{coming.runs:,.0f} run"
    objects += "s" * (coming.schedules != 1)
    runs += "s" * (not runs.startswith("1 "))
    output.say(f"{objects}{suspended}: {runs} from {' to '.join(ends)}")
    if not coming.runs:
        return
    _print(terminal(cells, zone))
    local = instants.LocalTime(zone)
    output.say("worst minutes")
    for minute, alike in _worst(coming):
        also = f", as in {alike:,} other{'s' * (alike > 1)}" if alike else ""
        output.say(f"  {local.text(coming.at_us(minute))}  {number(coming.minutes[minute])}{also}")
        inside = coming.expressions(minute)
        for each in inside[:_INSIDE]:
            such = ", ".join(each.such)
            more = ", ..." if each.schedules > len(each.such) else ""
            output.say(
                f"    {number(each.slots):>9}  {output.one_line(each.text)}"
                f" ({each.time_zone}): {such}{more}"
            )
        if len(inside) > _INSIDE:
            rest, others = sum(each.slots for each in inside[_INSIDE:]), len(inside) - _INSIDE
            output.say(f"    {number(rest):>9}  of {others} other expression{'s' * (others > 1)}")
    _show_proposals(proposals)


def _show_proposals(proposals: list[Suggestion]) -> None:
    output.say("proposals" if proposals else "proposals: none, no minute stands out")
    for one in proposals:
        many = "1 Schedule" if one.schedules == 1 else f"{one.schedules:,} Schedules"
        output.say(
            f'  {many} with "{output.one_line(one.text)}" ({one.time_zone}): write'
            f" {output.one_line(one.change.what)}; the worst minute of theirs then has"
            f" {number(one.after)} instead of {number(one.before)}"
        )
        output.say(f"    such as {', '.join(one.names)}")


def _print(lines: Iterable[Any]) -> None:
    from rich import console  # noqa: PLC0415 - only where it is shown

    shown = console.Console(file=sys.stdout, highlight=False, soft_wrap=True)
    for line in lines:
        shown.print(line)


# -- the heat map ----------------------------------------------------------------------------------


_DAY_HOURS = 24
_SHADES = "·░▒▓█"
_STYLES = ("bright_black", "cyan", "green", "yellow", "bold red")
#: Of a line, for the day, such as ``Sat 28``; with three columns an hour it has 78.
_LEFT_COLUMNS = 7


def number(slots: float) -> str:
    """Slots of a minute: whole where there are many."""
    return f"{slots:,.1f}" if 0 < slots < 10 and slots != int(slots) else f"{slots:,.0f}"


def bounds(cells: Sequence[Hour]) -> list[float]:
    """The least load of each shade, from the ordinary hour to the worst, the darkest last.

    They grow by squares: ordinary hours differ beside a great peak. Hours that differ by less than
    half look alike: 82 beside 81 is no peak.
    """
    peaks = [cell.peak for cell in cells if cell.peak > 0]
    if not peaks or min(peaks) == max(peaks):
        return peaks[:1]
    most = max(peaks)
    least = min(*peaks, most / 2)
    steps = len(_SHADES) - 1
    return [least + (most - least) * (step / steps) ** 2 for step in range(steps)]


def terminal(cells: Sequence[Hour], zone: str) -> Iterator[Text]:
    """The heat map in lines."""
    from rich.text import Text  # noqa: PLC0415 - only where it is shown

    least = bounds(cells)
    darkest = len(_SHADES) - len(least)
    most = number(max((cell.peak for cell in cells), default=0))
    yield Text(f"slots in the worst minute of each hour ({zone}); the most are {most}")
    yield Text(" " * _LEFT_COLUMNS + " ".join(f"{hour:02}" for hour in range(_DAY_HOURS)))
    for day, row in _days(cells):
        line = Text(f"{day[:3]} {day[-2:]} ")
        for hour in range(_DAY_HOURS):
            level = bisect.bisect_right(least, row[hour].peak) if hour in row else 0
            level += darkest - 1 if level else 0
            line.append(_SHADES[level] * 2 + " " if hour in row else "   ", style=_STYLES[level])
        line.rstrip()
        yield line
    legend = [
        "· none",
        *(f"{_SHADES[darkest + i]} from {number(each)}" for i, each in enumerate(least)),
    ]
    yield Text(" " * _LEFT_COLUMNS + "  ".join(legend))


def _days(cells: Sequence[Hour]) -> Iterator[tuple[str, dict[int, Hour]]]:
    found: dict[str, dict[int, Hour]] = {}
    for cell in cells:
        found.setdefault(cell.day, {})[cell.hour] = cell
    yield from found.items()


# -- what to move or to spread ---------------------------------------------------------------------


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
