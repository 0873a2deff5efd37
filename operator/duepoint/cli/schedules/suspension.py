"""``duepoint suspend`` and ``duepoint resume``: hold Schedules, say why and until when, and go on.

One Schedule, or all of a namespace or of the cluster. A choice of many leaves alone what another
person suspended: suspending it again would replace its reason and its end, so that it would run by
itself, and resuming it needs its reason or a yes. The fields are written by a patch of this
command's own manager, so a GitOps tool that does not write them does not take them back.
"""

from __future__ import annotations

import asyncio
import collections
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from duepoint import errors
from duepoint.cli import cluster, instants, options, output
from duepoint.cli.schedules import listing
from duepoint.expressions import durations
from duepoint.kube import port, schedules

_MANAGER = "duepoint-cli"
#: A number with a unit, and no date.
_STARTS_AS_DURATION = re.compile(r"\d+(\.\d+)?[A-Za-z]", re.ASCII)
_REASON_LIMIT = 256
_REASONS_SHOWN = 5


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
    """Suspend the Schedules NAME, or all of a namespace: no slot runs until they resume.

    --all and -l leave alone what is suspended already; a NAME gets the new reason and end.

    Example: duepoint suspend --all -n team-a --reason "INC-42: database" --until 2h
    """
    if reason is not None and len(reason) > _REASON_LIMIT:
        raise errors.InvalidSetting("--reason", f"has {len(reason)} characters; write at most 256")
    fields: dict[str, Any] = {"suspend": True}
    if reason is not None:
        fields["suspendReason"] = reason
    if until is not None:
        fields["suspendUntil"] = until
    change = _Change(verb="suspended", fields=fields, dry_run=dry_run, leaves_suspended=not names)
    _apply(change, place, names, everything=everything, selector=selector, form=form)


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
    asks = not (names or yes or dry_run or reason is not None)
    change = _Change(verb="resumed", fields=fields, dry_run=dry_run, reason=reason, asks=asks)
    _apply(change, place, names, everything=everything, selector=selector, form=form)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """What is to be written to which specs.

    Attributes:
        fields: of the spec.
        leaves_suspended: what is suspended already is left as it is.
        reason: only Schedules that are suspended with this reason; None = with any.
        asks: a person has to agree first.
    """

    verb: str
    fields: dict[str, Any]
    dry_run: bool
    leaves_suspended: bool = False
    reason: str | None = None
    asks: bool = False

    def why_left(self, spec: dict[str, Any], *, is_suspended: bool) -> str:
        """Why a Schedule is left as it is; empty where it is not."""
        if all(
            (spec.get(field) or None) == (value or None) for field, value in self.fields.items()
        ):
            return f"already {self.verb}"
        if self.leaves_suspended and is_suspended:
            return f"left as it is: {_suspension_of(spec)}"
        if self.reason is not None and (spec.get("suspendReason") or "") != self.reason:
            return f"left as it is: {_suspension_of(spec)}"
        return ""


def _suspension_of(spec: dict[str, Any]) -> str:
    until, reason = spec.get("suspendUntil"), spec.get("suspendReason")
    text = f"suspended until {until}" if until else "suspended"
    return f'{text}, "{reason}"' if reason else f"{text}, without a reason"


def _apply(
    change: _Change, place: options.Place, names: tuple[str, ...], *, everything: bool,
    selector: str | None, form: str,
) -> None:  # fmt: skip
    if names and (everything or selector or place.everywhere):
        raise errors.InvalidSetting("NAME", "leave out --all, -l and -A, or the names")
    if not (names or everything or selector):
        raise errors.InvalidSetting("NAME", "is missing: write names, -l LABELS or --all")
    rows = asyncio.run(_changed(change, place, names, selector))
    columns: output.Columns = {"schedule": output.name, "result": _result}
    output.show_rows(rows, form, columns)


def _result(row: output.Row) -> str:
    return f"{row['result']} until {row['until']}" if row.get("until") else str(row["result"])


async def _changed(
    change: _Change, place: options.Place, names: tuple[str, ...], selector: str | None
) -> list[output.Row]:

    async with cluster.session(place) as server:
        if names:  # all are looked up before the first is changed
            found = [await cluster.schedule(server, name) for name in names]
        else:
            found = await cluster.listed_schedules(server, place, selector)
            if not found:
                output.complain(listing.none_of(server, place, selector))
        now_us = instants.now_us()
        left = []
        for one in found:
            spec = one.get("spec") or {}
            holds = spec.get("suspend"), spec.get("suspendUntil")
            is_suspended = schedules.is_suspended(*holds, now_us)
            left.append(change.why_left(spec, is_suspended=is_suspended))
        changing = [one for one, why in zip(found, left, strict=True) if not why]
        if change.asks and changing and not _is_agreed(changing):
            return []
        rows = []
        for one, why in zip(found, left, strict=True):
            namespace, name = one["metadata"]["namespace"], one["metadata"]["name"]
            row = {"namespace": namespace, "schedule": name, "result": why}
            if not why:
                row["result"] = f"would be {change.verb}" if change.dry_run else change.verb
                if not change.dry_run:
                    await server.api.request(
                        "PATCH",
                        schedules.path(namespace, name),
                        {"spec": change.fields},
                        query={"fieldManager": _MANAGER},
                        content_type=port.MERGE_PATCH,
                    )
                if until := change.fields.get("suspendUntil"):
                    row["until"] = until
            rows.append(row)
        return rows


def _is_agreed(found: Sequence[dict[str, Any]]) -> bool:
    """Whether these may be resumed, whatever they were suspended for."""
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
