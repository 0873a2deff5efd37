"""``duepoint forecast``: shows the load of the coming hours, and what runs in the worst minutes.

Reads Schedules of a cluster or of files, counts their slots by minute, and shows a heat map, the
worst minutes with their Schedules, and how to spread these. Members of ScheduleSets are in
Redis and are not counted; Schedules that this version cannot read are named.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Iterator, Sequence

import click
import msgspec

from duepoint import errors
from duepoint.cli import instants, options, output
from duepoint.cli.check import manifests
from duepoint.cli.cronjob import conversion
from duepoint.kube import schedules
from duepoint.schedules import load
from duepoint.schedules.load import HourLoad

_DAY_MINUTES = 24 * 60
_MOST_DAYS = 31
#: How many of the worst minutes to show; minutes that are alike count as one.
_WORST = 5
#: How many expressions to name for each of them.
_INSIDE = 5
_ADVICE = (
    "to spread them: write H for the minute, such as H * * * *, H/5 * * * * or H 2 * * *, which a"
    " hash of the name shifts; or jitter: 10m, which delays the start and keeps the slot"
)
#: The place of an object, for messages, and the object.
_Found = tuple[str, schedules.Schedule]


@click.command("forecast")
@options.files_if_any
@click.option("--selector", "-l", metavar="LABELS", help="Of a cluster: only such Schedules.")
@click.option("--days", default="7", metavar="N", type=click.IntRange(1, _MOST_DAYS),
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

    Without a FILE it asks the cluster. Says how to spread the worst minutes.

    Example: duepoint forecast -A --days 7
    """
    if files and (place.everywhere or selector is not None):
        raise errors.InvalidSetting("--filename", "reads files; leave out -A and -l")
    from_us = instants.parse_us(from_, zone=time_zone, name="--from")
    if files:
        found: Iterable[_Found] = _of_files(files, place.namespace or "default")
    else:
        found = asyncio.run(_of_cluster(place, selector))
    unread: list[str] = []
    coming = load.Forecast(from_us, days * _DAY_MINUTES)
    for where, item in found:
        try:  # an object that does not exist yet counts as created now
            coming.add(schedules.spec_of(item, absent_us=from_us - 1))
        except errors.InvalidSpec as error:
            unread.append(f"{where}: {error}")
    if unread:
        more = f" (and {len(unread) - 1} more)" if len(unread) > 1 else ""
        output.complain(f"left out: {output.one_line(unread[0])}{more}")
    cells = coming.hours(time_zone)
    row = {
        "from": output.time(coming.from_us),
        "to": output.time(coming.at_us(len(coming.minutes))),
        "schedules": coming.schedules,
        "suspended": coming.suspended,
        "runs": round(coming.runs),
        "hours": msgspec.to_builtins(cells),
        "worst": msgspec.to_builtins(coming.worst(_WORST)),
    }
    if output.is_data(form):
        output.write([row], form)
    else:
        _show(row, cells, time_zone)


# -- reading -------------------------------------------------------------------------------------


def _of_files(files: Iterable[str], namespace: str) -> Iterator[_Found]:
    for file in files:
        for manifest in manifests.read(file):
            if manifest.trouble:
                raise errors.InvalidSetting(manifest.where, manifest.trouble)
            content = manifest.content
            if not isinstance(content, dict) or manifest.kind not in ("Schedule", "CronJob"):
                continue
            if manifest.kind == "CronJob":  # count it as the Schedule that it would become
                content, _ = conversion.ported(content, namespace=None, time_zone=None)
            yield manifest.where, schedules.item_of(content, namespace=namespace)


async def _of_cluster(place: options.Place, selector: str | None) -> list[_Found]:
    from duepoint.cli import cluster  # noqa: PLC0415 - libraries that --help does not need

    async with cluster.session(place) as server:
        listed = await cluster.listed_schedules(server, place, selector)
    return [
        ("Schedule {namespace}/{name}".format_map(item["metadata"]), schedules.item_of(item))
        for item in listed
    ]


# -- showing -------------------------------------------------------------------------------------


def _many(count: int, word: str) -> str:
    return f"{count:,} {word}{'s' * (count != 1)}"


def _show(row: output.Row, cells: list[HourLoad], zone: str) -> None:
    suspended = f", {row['suspended']:,} of them suspended" if row["suspended"] else ""
    runs = _many(row["runs"], "run")
    objects = _many(row["schedules"], "Schedule")
    output.say(f"{objects}{suspended}: {runs} from {row['from']} to {row['to']}")
    if not row["runs"]:
        return
    for line in heat_map(cells, zone):
        output.say(line)
    local = instants.LocalTime(zone)
    output.say("worst minutes")
    for minute in row["worst"]:
        also = f", as in {_many(minute['alike'], 'other')}" if minute["alike"] else ""
        at = local.text(instants.strict_us(minute["time"]))
        output.say(f"  {at}  {number(minute['slots'])}{also}")
        inside = minute["inside"]
        for each in inside[:_INSIDE]:
            such = ", ".join(each["such"]) + ", ..." * (each["schedules"] > len(each["such"]))
            what = f"{each['schedule']} ({each['timeZone']})"
            output.say(f"    {number(each['slots']):>9}  {what}: {such}")
        if others := inside[_INSIDE:]:
            rest = number(sum(each["slots"] for each in others))
            output.say(f"    {rest:>9}  of {_many(len(others), 'other expression')}")
    output.say(_ADVICE)


# -- the heat map ----------------------------------------------------------------------------------


_SHADES = "░▒▓█"


def number(slots: float) -> str:
    """Return a number of slots as text, with a fraction only if it is small."""
    return f"{slots:,.1f}" if 0 < slots < 10 and slots != int(slots) else f"{slots:,.0f}"


def heat_map(cells: Sequence[HourLoad], zone: str) -> Iterator[str]:
    """Yield the lines of the heat map: a day in each, a shade for the worst minute of each hour.

    The shades grow by squares from an ordinary hour to the worst, so that ordinary hours still
    differ beside a great peak. Hours that differ by less than half get the same shade.
    """
    peaks = [cell.peak for cell in cells if cell.peak]
    most = max(peaks)
    least = min(*peaks, most / 2)
    legend = f"· none, ░ from {number(least)}, █ up to {number(most)}"
    yield f"slots in the worst minute of each hour ({zone}): {legend}"
    yield "       " + " ".join(f"{hour:02}" for hour in range(24))
    for day, row in itertools.groupby(cells, key=lambda cell: cell.day):
        shades = dict.fromkeys(range(24), "  ")
        for cell in row:
            share = max(0.0, cell.peak - least) / (most - least)
            shade = _SHADES[min(3, int(4 * share**0.5))] if cell.peak else "·"
            shades[cell.hour] = shade * 2
        yield f"{day[:3]} {day[-2:]} {' '.join(shades.values())}".rstrip()
