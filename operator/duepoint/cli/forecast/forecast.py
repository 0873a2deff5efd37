"""``duepoint forecast``: how many runs the coming hours bring, and who is in the worst minutes.

Reads Schedules of a cluster or of files, counts their slots by minute, and shows a heat map, the
worst minutes with what is in them, and what would even them out. Members of ScheduleSets are in
Redis and are not counted; a Schedule that this version cannot read is named.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import click

from duepoint import errors
from duepoint.cli import instants, options, output
from duepoint.cli.check import manifests
from duepoint.cli.cronjob import conversion
from duepoint.cli.forecast import drawing, suggestions
from duepoint.cli.forecast.suggestions import Suggestion
from duepoint.kube import errors as kube_errors
from duepoint.kube import port, schedules
from duepoint.schedules import load
from duepoint.schedules.load import Forecast
from duepoint.schedules.spec import ScheduleSpec

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
    _print(drawing.terminal(cells, zone, output.terminal_columns()))
    local = instants.LocalTime(zone)
    output.say("worst minutes")
    for minute, alike in _worst(coming):
        also = f", as in {alike:,} other{'s' * (alike > 1)}" if alike else ""
        output.say(
            f"  {local.text(coming.at_us(minute))}  {drawing.number(coming.minutes[minute])}{also}"
        )
        inside = coming.expressions(minute)
        for each in inside[:_INSIDE]:
            such = ", ".join(each.such)
            more = ", ..." if each.schedules > len(each.such) else ""
            output.say(
                f"    {drawing.number(each.slots):>9}  {output.one_line(each.text)}"
                f" ({each.time_zone}): {such}{more}"
            )
        if len(inside) > _INSIDE:
            rest, others = sum(each.slots for each in inside[_INSIDE:]), len(inside) - _INSIDE
            output.say(
                f"    {drawing.number(rest):>9}  of {others} other expression{'s' * (others > 1)}"
            )
    _show_proposals(proposals)


def _show_proposals(proposals: list[Suggestion]) -> None:
    output.say("proposals" if proposals else "proposals: none, no minute stands out")
    for one in proposals:
        many = "1 Schedule" if one.schedules == 1 else f"{one.schedules:,} Schedules"
        output.say(
            f'  {many} with "{output.one_line(one.text)}" ({one.time_zone}): write'
            f" {output.one_line(one.change.what)}; the worst minute of theirs then has"
            f" {drawing.number(one.after)} instead of {drawing.number(one.before)}"
        )
        output.say(f"    such as {', '.join(one.names)}")


def _print(lines: Iterable[Any]) -> None:
    from rich import console  # noqa: PLC0415 - only where it is shown

    shown = console.Console(file=sys.stdout, highlight=False, soft_wrap=True)
    for line in lines:
        shown.print(line)
