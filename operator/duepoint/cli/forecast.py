"""``duepoint forecast``: how many runs the coming hours bring, and who is in the worst minutes.

Reads Schedules of a cluster or of files, counts their slots by minute, and shows a heat map, the
worst minutes with what is in them, and what would even them out. Members of ScheduleSets are in
Redis and are not counted; a Schedule that this version cannot read is named.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from duepoint import errors
from duepoint.cli import instants, options, output, suggestions
from duepoint.cli.check import manifests
from duepoint.cli.cronjob import conversion
from duepoint.cli.suggestions import Suggestion
from duepoint.kube import errors as kube_errors
from duepoint.kube import port, schedules
from duepoint.schedules import load
from duepoint.schedules.load import Forecast, Hour
from duepoint.schedules.spec import ScheduleSpec

if TYPE_CHECKING:
    from rich.text import Text

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
    proposals = list(suggestions.suggestions(coming))
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
        path = schedules.collection(None if place.everywhere else server.namespace)
        query = {"labelSelector": selector} if selector else None
        try:
            listed = await port.listed(server.api, path, schedules.Schedule, query)
        except kube_errors.NotFound:
            raise errors.InvalidSetting(
                "cluster", "it has no Schedules: install Duepoint, or write another --context"
            ) from None
        except kube_errors.Invalid as refused:
            if selector is None:
                raise
            message = f"{errors.quoted(selector)}: {refused.server_message}"
            raise errors.InvalidSetting("--selector", message) from refused
    return [
        Found(f"Schedule {item.metadata.namespace}/{item.metadata.name}", item) for item in listed
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
    _print(terminal(cells, zone, output.terminal_columns()))
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
#: Hours that a cell may stand for.
_CELL_HOURS = (1, 2, 3, 4, 6, 8, 12)
_SHADES = "·░▒▓█"
_STYLES = ("bright_black", "cyan", "green", "yellow", "bold red")
#: Of a line, for the day: ``Sat 2026-11-28``, or ``Sat 28``.
_LEFT_COLUMNS, _LEFT_NARROW = 16, 7


def number(slots: float) -> str:
    """Slots of a minute: whole where there are many."""
    return f"{slots:,.1f}" if 0 < slots < 10 and slots != int(slots) else f"{slots:,.0f}"


@dataclass(frozen=True, slots=True)
class Scale:
    """Shades from the least load to the most; 0 is for none.

    By the square root of what is above the least: ordinary hours differ beside a great peak.
    """

    least: float
    most: float
    levels: int

    def level(self, value: float) -> int:
        if value <= 0:
            return 0
        span = self.most - self.least
        share = math.sqrt(max(0.0, value - self.least) / span) if span else 1.0
        return 1 + min(self.levels - 2, int(share * (self.levels - 1)))

    def used(self) -> Sequence[int]:
        """The shades that a load may have; where all are alike, the darkest is theirs."""
        if self.most > self.least:
            return range(self.levels)
        return (0, self.levels - 1) if self.most else (0,)

    def begins(self, level: int) -> float:
        """The least load of a shade."""
        share = (level - 1) / (self.levels - 1)
        return self.least + (self.most - self.least) * share**2


def scale(cells: Sequence[Hour], levels: int) -> Scale:
    """Of the worst minutes of these hours.

    Hours that differ by less than half look alike: 82 beside 81 is no peak.
    """
    peaks = [cell.peak for cell in cells if cell.peak > 0] or [0.0]
    least, most = min(peaks), max(peaks)
    return Scale(least if least == most else min(least, most / 2), most, levels)


def terminal(cells: Sequence[Hour], zone: str, most_columns: int) -> Iterator[Text]:
    """The heat map in lines.

    On a narrow terminal days are written short, and then a cell stands for several hours.
    """
    from rich.text import Text  # noqa: PLC0415 - only where it is shown

    shades = scale(cells, len(_SHADES))
    left = _LEFT_COLUMNS if most_columns >= _LEFT_COLUMNS + 3 * _DAY_HOURS - 1 else _LEFT_NARROW
    room = (most_columns - left + 1) // 3
    hours = next((hours for hours in _CELL_HOURS if _DAY_HOURS // hours <= room), _DAY_HOURS)
    begins = range(0, _DAY_HOURS, hours)
    yield Text(_note(shades, zone, hours))
    yield Text(" " * left + " ".join(f"{hour:02}" for hour in begins))
    for day, row in _days(cells):
        shown = day if left == _LEFT_COLUMNS else f"{day[:3]} {day[-2:]}"
        line = Text(f"{shown:{left}}")
        for begin in begins:
            peaks = [row[hour].peak for hour in range(begin, begin + hours) if hour in row]
            level = shades.level(max(peaks, default=0))
            line.append(_SHADES[level] * 2 + " " if peaks else "   ", style=_STYLES[level])
        line.rstrip()
        yield line
    legend = [f"{_SHADES[level]} {_from(shades, level)}" for level in shades.used()]
    yield Text(" " * left + "  ".join(legend))


def _note(shades: Scale, zone: str, hours: int = 1) -> str:
    each = "each hour" if hours == 1 else f"each {hours} hours"
    return f"slots in the worst minute of {each} ({zone}); the most are {number(shades.most)}"


def _from(shades: Scale, level: int) -> str:
    """What a shade stands for."""
    return "none" if level == 0 else f"from {number(shades.begins(level))}"


def _days(cells: Sequence[Hour]) -> Iterator[tuple[str, dict[int, Hour]]]:
    found: dict[str, dict[int, Hour]] = {}
    for cell in cells:
        found.setdefault(cell.day, {})[cell.hour] = cell
    yield from found.items()


# -- SVG -----------------------------------------------------------------------------------------
