"""``duepoint list``, ``describe``, ``suspend`` and ``resume``: the commands on Schedules.

``list`` and ``describe`` show the state of many Schedules, or of one with its history.

``suspend`` and ``resume`` apply to named Schedules, or to all of a namespace or of the cluster. A
command for all leaves alone what another person suspended. To suspend it again would replace its
reason and its end, and it could then resume by itself. To resume it takes its reason, or a yes. The
command patches the fields with a field manager of its own, so a GitOps tool that does not set them
does not revert it.
"""

from __future__ import annotations

import asyncio
import collections
import re
from collections.abc import Callable, Sequence
from typing import Any

import click

from duepoint import errors
from duepoint.cli import cluster, instants, options, output
from duepoint.cli.cluster import ClusterSession
from duepoint.cli.schedules import facts, why
from duepoint.cli.schedules.facts import ScheduleFacts
from duepoint.expressions import durations
from duepoint.kube import port, schedules
from duepoint.runs.history import PastSlot
from duepoint.schedules import diagnosis

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

    json and yaml have more: suspended, for example, is true while a suspension holds.

    Example: duepoint list -A --failing

    Example: duepoint list -n team-a -o json | jq -r 'select(.suspended).name'
    """

    async def read() -> list[dict[str, Any]]:
        async with cluster.session(place) as server:
            return await _listed(server, place, selector)

    rows = [overview(facts.of_object(found)) for found in asyncio.run(read())]
    if failing:
        count = len(rows)
        rows = [row for row in rows if row["health"] in diagnosis.TROUBLED]
        if count and not rows:
            output.complain(f"none of {count} Schedules is in trouble")
    first: output.Columns = {"namespace": "namespace"} if place.everywhere else {}
    output.show_rows(rows, form, {**first, **_COLUMNS}, wide=_WIDE)


async def _listed(
    server: ClusterSession, place: options.Place, selector: str | None
) -> list[dict[str, Any]]:
    """List the Schedules, and say so if there are none."""
    found = await cluster.listed_schedules(server, place, selector)
    if not found:
        where = "any namespace" if place.everywhere else f"namespace {server.namespace}"
        labelled = f" with the labels {selector}" if selector else ""
        output.complain(f"there is no Schedule{labelled} in {where}")
    return found


def overview(known: ScheduleFacts) -> output.Row:
    """Return how a Schedule stands, as a row of the JSON output."""
    last = next((slot for slot in known.recent if slot.started_us), None)
    newest = known.recent[0] if known.recent else None
    now_us = instants.now_us()
    found = known.diagnosis(now_us)
    about = found.about or known.status.ready
    next_us = known.next_us
    if 0 < next_us <= now_us and (coming := _upcoming(known, now_us)):
        next_us = coming[0]  # the status may be seconds older than the next slot
    return {
        "namespace": known.namespace,
        "name": known.name,
        "schedule": ", ".join(known.timing.schedules),
        "timeZone": known.timing.time_zone,
        "suspended": known.is_suspended(now_us),
        "next": output.time(next_us or None),
        "last": output.time(None if last is None else last.slot_us),
        "lateSeconds": None if last is None else _seconds(last.slot_us, last.started_us),
        "runs": known.status.counts.started,
        "result": "" if newest is None else newest.outcome,
        "ready": known.status.ready.status,
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
    cells = {
        "schedule": known.identity,
        "when": f"{', '.join(known.timing.schedules)} ({known.timing.time_zone})",
        "target": known.status.target,
        "health": known.diagnosis(now_us).health.value,
    }
    output.show_row({}, "table", {key: cell for key, cell in cells.items() if cell})
    for line in why.lines(known, answer):
        output.say(line)
    local = instants.LocalTime(known.timing.time_zone)
    output.say("next five times" if upcoming else "next five times: none")
    for slot_us in upcoming:
        output.say(f"  {local.text(slot_us)}")
    output.say("last slots" if slots else "last slots: none")
    for slot in known.recent:
        output.say(f"  {why.sentence(slot)}")


def _upcoming(known: ScheduleFacts, now_us: int) -> list[int]:
    """Return the next slots; none if it is refused, over, or suspended without an end."""
    timeline = known.timeline
    if timeline is None or known.is_refused or known.is_over:
        return []
    if not known.is_suspended(now_us):
        return timeline.upcoming(now_us, _UPCOMING)
    until_us = known.timing.suspend_until_us
    return [] if until_us is None else timeline.upcoming(until_us - 1, _UPCOMING)


# -- slots -----------------------------------------------------------------------------------------


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
    return max(0, to_us - from_us) / 1e6 if from_us and to_us else None


# -- suspend and resume --------------------------------------------------------------------------


_MANAGER = "duepoint-cli"
#: Matches a number with a unit, but not a date.
_STARTS_AS_DURATION = re.compile(r"\d+(\.\d+)?[A-Za-z]", re.ASCII)
_REASON_LIMIT = 256
_REASONS_SHOWN = 5


def _until(text: str) -> str:
    """Read a future instant, or a duration from now; raises ValueError."""
    try:
        return instants.utc_text(instants.now_us() + durations.parse_duration_us(text))
    except ValueError as no_duration:
        if _STARTS_AS_DURATION.match(text):
            raise no_duration from None
    try:
        until_us = instants.parse_us(text, zone="Etc/UTC", name="--until")
    except errors.InvalidSetting as no_time:
        raise ValueError(f"{no_time.reason}, or a duration from now, such as 2h") from None
    if until_us <= instants.now_us():
        raise ValueError(f"{errors.quoted(text)} is over; write a later time, or a duration")
    return instants.utc_text(until_us)


_names = click.argument("names", metavar="[NAME]...", nargs=-1, type=options.SCHEDULE_NAME)
_all = click.option("--all", "everything", is_flag=True, help="Every Schedule of the namespace.")
_selector = click.option("--selector", "-l", metavar="LABELS", help="Schedules with such labels.")
_dry_run = click.option("--dry-run", is_flag=True, help="Say what would be done; do nothing.")


@click.command()
@_names
@_all
@_selector
@click.option("--reason", metavar="TEXT", help="Why; shown by list, describe and why.")
@click.option(
    "--until",
    metavar="TIME|DURATION",
    type=options.Converted(_until),
    help="Resume by itself then: RFC 3339 (UTC without an offset), or a duration such as 2h."
    " Unset: when a user resumes it.",
)
@_dry_run
@options.output_format
@options.of_many
def suspend(
    *, names: tuple[str, ...], everything: bool, selector: str | None, reason: str | None,
    until: str | None, dry_run: bool, form: str, place: options.Place,
) -> None:  # fmt: skip
    """Suspend the Schedules NAME, or all of a namespace: no slot runs until they resume.

    Runs that are active go on. --all and -l leave alone what is suspended already; a NAME gets the
    new reason and end. A ScheduleSet is suspended by its spec.suspend.

    Example: duepoint suspend --all -n team-a --reason "INC-42: database" --until 2h
    """
    if reason is not None and len(reason) > _REASON_LIMIT:
        raise errors.InvalidSetting("--reason", f"has {len(reason)} characters; write at most 256")
    fields: dict[str, Any] = {"suspend": True}
    if reason is not None:
        fields["suspendReason"] = reason
    if until is not None:
        fields["suspendUntil"] = until
    _apply(
        place, names, everything=everything, selector=selector, dry_run=dry_run, form=form,
        verb="suspended", fields=fields,
        leaves=lambda _, is_suspended: is_suspended and not names,
    )  # fmt: skip


@click.command()
@_names
@_all
@_selector
@click.option(
    "--reason", metavar="TEXT", help='Only what was suspended with this reason; "" = with none.'
)
@_dry_run
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@options.output_format
@options.of_many
def resume(
    *, names: tuple[str, ...], everything: bool, selector: str | None, reason: str | None,
    dry_run: bool, yes: bool, form: str, place: options.Place,
) -> None:  # fmt: skip
    """Resume the Schedules NAME, or all of a namespace; slots of the suspension do not run.

    --all and -l ask first unless --reason says which: others may have been suspended for good.

    Example: duepoint resume --all -n team-a --reason "INC-42: database"
    """
    fields = {"suspend": False, "suspendReason": None, "suspendUntil": None}
    _apply(
        place, names, everything=everything, selector=selector, dry_run=dry_run, form=form,
        verb="resumed", fields=fields,
        leaves=lambda spec, _: reason not in (None, spec.get("suspendReason") or ""),
        asks=not (names or yes or dry_run or reason is not None),
    )  # fmt: skip


def _apply(
    place: options.Place, names: tuple[str, ...], *, everything: bool, selector: str | None,
    dry_run: bool, form: str, verb: str, fields: dict[str, Any],
    leaves: Callable[[dict[str, Any], bool], bool], asks: bool = False,
) -> None:  # fmt: skip
    """Write fields into the specs of the chosen Schedules, and show the result for each.

    Args:
        leaves: whether to leave alone a Schedule with this spec, suspended or not.
        asks: whether the user has to agree first.
    """
    if names and (everything or selector or place.everywhere):
        raise errors.InvalidSetting("NAME", "leave out --all, -l and -A, or the names")
    if not (names or everything or selector):
        raise errors.InvalidSetting("NAME", "is missing: write names, -l LABELS or --all")

    def why_left(spec: dict[str, Any]) -> str:
        is_suspended = schedules.is_suspended(spec.get("suspend"), spec.get("suspendUntil"), now_us)
        if all((spec.get(field) or None) == (value or None) for field, value in fields.items()):
            return f"already {verb}"
        return f"left as it is: {_suspension_of(spec)}" if leaves(spec, is_suspended) else ""

    async def change() -> list[output.Row]:
        async with cluster.session(place) as server:
            if names:  # look up all before changing the first: a name may be misspelt
                found = [await cluster.schedule(server, name) for name in names]
            else:
                found = await _listed(server, place, selector)
            left = [why_left(one.get("spec") or {}) for one in found]
            changing = [one for one, why in zip(found, left, strict=True) if not why]
            if asks and changing and not _is_agreed(changing):
                return []
            rows = []
            for one, why in zip(found, left, strict=True):
                namespace, name = one["metadata"]["namespace"], one["metadata"]["name"]
                row = {"namespace": namespace, "schedule": name}
                row["result"] = why or (f"would be {verb}" if dry_run else verb)
                if not why and fields.get("suspendUntil"):
                    row["until"] = fields["suspendUntil"]
                if not (why or dry_run):
                    await server.api.request(
                        "PATCH",
                        schedules.path(namespace, name),
                        {"spec": fields},
                        query={"fieldManager": _MANAGER},
                        content_type=port.MERGE_PATCH,
                    )
                rows.append(row)
            return rows

    now_us = instants.now_us()
    columns: output.Columns = {"schedule": output.name, "result": _result}
    output.show_rows(asyncio.run(change()), form, columns)


def _result(row: output.Row) -> str:
    return f"{row['result']} until {row['until']}" if row.get("until") else str(row["result"])


def _suspension_of(spec: dict[str, Any]) -> str:
    until, reason = spec.get("suspendUntil"), spec.get("suspendReason")
    text = f"suspended until {until}" if until else "suspended"
    return f'{text}, "{reason}"' if reason else f"{text}, without a reason"


def _is_agreed(found: Sequence[dict[str, Any]]) -> bool:
    """Ask whether to resume these Schedules, and show the reasons of their suspensions."""
    reasons = collections.Counter(one["spec"].get("suspendReason") or "" for one in found)
    shown = [
        f"{errors.quoted(reason) if reason else 'without a reason'} ({count})"
        for reason, count in reasons.most_common(_REASONS_SHOWN)
    ]
    if len(reasons) > _REASONS_SHOWN:
        shown.append(f"{len(reasons) - _REASONS_SHOWN} more")
    schedules = "1 Schedule" if len(found) == 1 else f"{len(found)} Schedules"
    kinds = "1 reason" if len(reasons) == 1 else f"{len(reasons)} reasons"
    what = f"{schedules}, suspended for {kinds}: {', '.join(shown)}"
    agreed = options.confirmed(
        f"Resume {what}?",
        option="--all",
        without_terminal=f"would resume {what}; choose with --reason TEXT, or write --yes where"
        " there is no terminal to ask on",
    )
    if not agreed:
        output.complain("nothing was resumed")
    return agreed
