"""``duepoint suspend`` and ``duepoint resume``: hold Schedules, say why and until when, and go on.

One Schedule, or all of a namespace or of the cluster. A Schedule that is suspended already keeps
its reason unless a new one is given. The fields are written by a patch of this command's own
manager, so a GitOps tool that does not write them does not take them back.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import click

from duepoint import errors
from duepoint.cli import instants, options, output
from duepoint.expressions import durations

_MANAGER = "duepoint-cli"
#: A number with a unit, and no date.
_STARTS_AS_DURATION = re.compile(r"\d+(\.\d+)?[A-Za-z]", re.ASCII)
_REASON_LIMIT = 256


def _until(text: str) -> str:
    """An instant that is still to come, or a length of time from now; raises ValueError."""
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
    help="Resume by itself then: RFC 3339 (UTC without an offset), or a duration such as 2h.",
)
@_dry_run
@options.output_format
@options.of_many
def suspend(
    *, names: tuple[str, ...], everything: bool, selector: str | None, reason: str | None,
    until: str | None, dry_run: bool, form: str, place: options.Place,
) -> None:  # fmt: skip
    """Suspend the Schedules NAME, or all of a namespace: no slot of them runs until they resume."""
    if reason is not None and len(reason) > _REASON_LIMIT:
        raise errors.InvalidSetting("--reason", f"has {len(reason)} characters; write at most 256")
    wanted: dict[str, Any] = {"suspend": True}
    if reason is not None:
        wanted["suspendReason"] = reason
    if until is not None:
        wanted["suspendUntil"] = until
    change = _Change(verb="suspended", wanted=wanted, dry_run=dry_run, form=form)
    _apply(change, place, names, everything=everything, selector=selector)


@click.command()
@_names
@_all
@_selector
@_dry_run
@options.output_format
@options.of_many
def resume(
    *, names: tuple[str, ...], everything: bool, selector: str | None, dry_run: bool, form: str,
    place: options.Place,
) -> None:  # fmt: skip
    """Resume the Schedules NAME, or all of a namespace; slots of the suspension do not run."""
    wanted = {"suspend": False, "suspendReason": None, "suspendUntil": None}
    change = _Change(verb="resumed", wanted=wanted, dry_run=dry_run, form=form)
    _apply(change, place, names, everything=everything, selector=selector)


class _Change:
    """What is written to the spec, and what was done."""

    def __init__(self, *, verb: str, wanted: dict[str, Any], dry_run: bool, form: str) -> None:
        self.verb = verb
        self.wanted = wanted
        self.dry_run = dry_run
        self.form = form

    def is_made(self, spec: dict[str, Any]) -> bool:
        """Whether a spec says so already."""
        return all(
            (spec.get(field) or None) == (value or None) for field, value in self.wanted.items()
        )


def _apply(
    change: _Change, place: options.Place, names: tuple[str, ...], *, everything: bool,
    selector: str | None,
) -> None:  # fmt: skip
    if names and (everything or selector or place.everywhere):
        raise errors.InvalidSetting("NAME", "leave out --all, -l and -A, or the names")
    if not (names or everything or selector):
        raise errors.InvalidSetting("NAME", "is missing: write names, -l LABELS or --all")
    rows = asyncio.run(_changed(change, place, names, selector))
    columns: output.Columns = {"schedule": output.name, "result": "result"}
    output.show_rows(rows, change.form, columns)


async def _changed(
    change: _Change, place: options.Place, names: tuple[str, ...], selector: str | None
) -> list[output.Row]:
    from duepoint.cli import cluster  # noqa: PLC0415 - libraries that --help does not need
    from duepoint.cli.schedules import gathering, listing  # noqa: PLC0415 - the same
    from duepoint.kube import port, schedules  # noqa: PLC0415 - the same

    async with cluster.session(place) as server:
        if names:  # all are looked up before the first is changed
            found = [await gathering.schedule(server, name) for name in names]
        else:
            found = await listing.listed(server, place, selector)
            if not found:
                output.complain(listing.none_of(server, place, selector))
        rows = []
        for one in found:
            namespace, name = one["metadata"]["namespace"], one["metadata"]["name"]
            result = f"already {change.verb}"
            if not change.is_made(one.get("spec") or {}):
                result = f"would be {change.verb}" if change.dry_run else change.verb
                if not change.dry_run:
                    await server.api.request(
                        "PATCH",
                        schedules.path(namespace, name),
                        {"spec": change.wanted},
                        query={"fieldManager": _MANAGER},
                        content_type=port.MERGE_PATCH,
                    )
            rows.append(
                {"namespace": namespace, "schedule": name, "result": result, **_until_of(change)}
            )
        return rows


def _until_of(change: _Change) -> dict[str, Any]:
    until = change.wanted.get("suspendUntil")
    return {"until": until} if until else {}
