"""``duepoint list`` and ``describe``: the state of many Schedules, or of one with its history."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from duepoint.cli import cluster, instants, options, output
from duepoint.cli.cluster import ClusterSession
from duepoint.cli.schedules import facts, why
from duepoint.cli.schedules.facts import ScheduleFacts
from duepoint.runs.history import PastSlot
from duepoint.schedules import diagnosis
from duepoint.schedules.conditions import ConditionType

_UPCOMING = 5


@click.command("list")
@options.output_format
@options.of_many
@click.option("--selector", "-l", metavar="LABELS", help="Only Schedules with such labels.")
@click.option(
    "--failing",
    is_flag=True,
    help="Only Schedules in trouble: refused, not in force, or with runs that fail, are late or"
    " missed.",
)
def list_schedules(*, form: str, place: options.Place, selector: str | None, failing: bool) -> None:
    """List Schedules: when they run next, how they ran last, and how they stand.

    Example: duepoint list -A --failing
    """
    rows = [overview(facts.of_object(found)) for found in asyncio.run(_listed(place, selector))]
    if failing:
        count = len(rows)
        rows = [row for row in rows if row["health"] in diagnosis.TROUBLED]
        if count and not rows:
            output.complain(f"none of {count} Schedules is in trouble")
    first: output.Columns = {"namespace": "namespace"} if place.everywhere else {}
    output.show_rows(rows, form, {**first, **_COLUMNS}, wide=_WIDE)


async def _listed(place: options.Place, selector: str | None) -> list[dict[str, Any]]:

    async with cluster.session(place) as server:
        found = await cluster.listed_schedules(server, place, selector)
        if not found:
            output.complain(none_of(server, place, selector))
        return found


def none_of(server: ClusterSession, place: options.Place, selector: str | None) -> str:
    """Return the message that there is no Schedule to show, and where."""
    where = "any namespace" if place.everywhere else f"namespace {server.namespace}"
    labelled = f" with the labels {selector}" if selector else ""
    return f"there is no Schedule{labelled} in {where}"


def overview(known: ScheduleFacts) -> output.Row:
    """Return how a Schedule stands, as a row of the JSON output."""
    ready = known.conditions.get(ConditionType.READY)
    last = next((slot for slot in known.recent if slot.started_us), None)
    newest = known.recent[0] if known.recent else None
    now_us = instants.now_us()
    found = known.diagnosis(now_us)
    about = found.about or ready or diagnosis.Shown()
    timing = None if known.spec is None else known.spec.rule.timing
    next_us, counts = known.next_us, known.status.runs
    if 0 < next_us <= now_us and (coming := _upcoming(known, now_us)):
        next_us = coming[0]  # the status may be seconds older than the next slot
    return {
        "namespace": known.namespace,
        "name": known.name,
        "schedule": "" if timing is None else ", ".join(timing.schedules),
        "timeZone": known.zone,
        "suspended": known.is_suspended(now_us),
        "next": output.time(next_us or None),
        "last": output.time(None if last is None else last.slot_us),
        "lateSeconds": None if last is None else _seconds(last.slot_us, last.started_us),
        "runs": 0 if counts is None else counts.started,
        "result": "" if newest is None else newest.outcome,
        "ready": "" if ready is None else ready.status,
        "health": found.health.value,
        "reason": about.reason,
        "message": about.message,
        "target": known.status.target,
        "created": output.time(known.created_us or None),
    }


def _age(row: output.Row) -> str:
    if row["created"] is None:
        return ""
    return output.span((instants.now_us() - instants.strict_us(row["created"])) / 1_000_000)


_COLUMNS: output.Columns = {
    "name": "name",
    "schedule": "schedule",
    "next": "next",
    "last": "last",
    "result": "result",
    "health": "health",
    "reason": lambda row: row["reason"] if row["health"] in diagnosis.TROUBLED else "",
    "age": _age,
}
_WIDE: output.Columns = {"time zone": "timeZone", "target": "target", "message": "message"}


# -- describe ------------------------------------------------------------------------------------


@click.command()
@options.schedule_name
@options.output_format
@options.of_one
def describe(name: str, *, form: str, place: options.Place) -> None:
    """Show the Schedule NAME: how it stands, its last slots and its next five times.

    Example: duepoint describe report -n team-a
    """
    known = asyncio.run(facts.gathered(place, name))
    now_us = instants.now_us()
    answer = why.now(known, now_us)
    slots = [row(slot) for slot in known.recent]
    upcoming = _upcoming(known, now_us)
    if output.is_data(form):
        more = {"upcoming": [instants.utc_text(slot_us) for slot_us in upcoming], "recent": slots}
        output.write([{**overview(known), "why": why.row(known, answer), **more}], form)
        return
    timing = () if known.spec is None else known.spec.rule.timing.schedules
    cells = {
        "schedule": known.identity,
        "when": f"{', '.join(timing)} ({known.zone})",
        "target": known.status.target,
        "health": known.diagnosis(now_us).health.value,
    }
    output.show_row({}, "table", {key: cell for key, cell in cells.items() if cell})
    for line in why.lines(known, answer):
        output.say(line)
    local = instants.LocalTime(known.zone)
    output.say("next five times" if upcoming else "next five times: none")
    for slot_us in upcoming:
        output.say(f"  {local.text(slot_us)}")
    output.say("last slots" if slots else "last slots: none")
    for slot in known.recent:
        output.say(f"  {why.sentence(slot)}")


def _upcoming(known: ScheduleFacts, now_us: int) -> list[int]:
    """Return the next slots; none if it is refused, over, or suspended without an end."""
    timeline, is_refused = known.timeline, ConditionType.STALLED in known.conditions
    if known.spec is None or timeline is None or is_refused or known.is_over:
        return []
    if not known.is_suspended(now_us):
        return timeline.upcoming(now_us, _UPCOMING)
    until_us = known.spec.rule.timing.suspend_until_us
    return [] if until_us is None else timeline.upcoming(until_us - 1, _UPCOMING)


# -- slots -----------------------------------------------------------------------------------------


_SECOND_US = 1_000_000


def row(slot: PastSlot) -> output.Row:
    """Return a slot as a row of the JSON output."""
    return {
        "scheduledTime": output.time(slot.slot_us),
        "since": output.time(slot.since_us or None),
        "count": slot.count,
        "trigger": slot.trigger,
        "outcome": slot.outcome,
        "reason": slot.reason,
        "message": slot.message,
        "lateSeconds": _seconds(slot.slot_us, slot.started_us),
        "tookSeconds": _seconds(slot.started_us, slot.finished_us),
        "attempts": slot.attempts,
        "jobName": slot.job_name,
        "httpStatus": slot.http_status,
    }


def _seconds(from_us: int, to_us: int) -> float | None:
    return max(0, to_us - from_us) / _SECOND_US if from_us and to_us else None
