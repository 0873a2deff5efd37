"""``duepoint backfill``: run the slots of a range again.

Shows first what would run, computed with the same code as the operator's, and asks; then makes a
ScheduleRun and follows it with a bar. Nothing is made for a range without slots, or with more than
``--limit``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from duepoint import errors
from duepoint.cli import instants, output
from duepoint.cli.queue import connection
from duepoint.cli.run import backfillpreview, triggercluster, triggeroptions, triggerwait
from duepoint.kube import schedules
from duepoint.schedules import manualruns
from duepoint.schedules.spec import ScheduleSpec

_ORDERS = ("OldestFirst", "NewestFirst")
_MOST_PARALLEL = 1_000
_MOST_SLOTS = 10_000


@click.command()
@click.argument("name")
@click.option("--from", "from_", metavar="TIME", required=True, help="Begin; belongs to the range.")
@click.option("--to", metavar="TIME", required=True, help="End; does not belong to it.")
@click.option(
    "--max-parallel",
    default=str(manualruns.MAX_PARALLEL),
    metavar="N",
    show_default=True,
    help="Runs that may be active at once.",
)
@click.option(
    "--limit",
    default=str(manualruns.LIMIT),
    metavar="N",
    show_default=True,
    help="A range with more slots is refused.",
)
@click.option(
    "--order",
    default=_ORDERS[0],
    metavar="|".join(_ORDERS),
    show_default=True,
    help="Which slots go first.",
)
@click.option("--dry-run", is_flag=True, help="Show what would run, and run nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@triggeroptions.shared
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait for its end.")
def backfill(
    name: str,
    *,
    from_: str,
    to: str,
    max_parallel: str,
    limit: str,
    order: str,
    dry_run: bool,
    yes: bool,
    namespace: str | None,
    ttl: str,
    timeout: str | None,
    form: str,
    kubeconfig: Path | None,
    context: str | None,
    wait: bool,
) -> None:
    """Run the slots of the Schedule NAME in a range again."""
    shape = triggeroptions.form(form)
    where = triggeroptions.place(namespace, kubeconfig, context)
    ttl_seconds = triggeroptions.ttl_seconds(ttl)
    most_seconds = triggeroptions.timeout_seconds(timeout, wait=wait)
    parallel = connection.whole("--max-parallel", max_parallel, most=_MOST_PARALLEL)
    most = connection.whole("--limit", limit, most=_MOST_SLOTS)
    chosen_order = output.choice("--order", order, _ORDERS)

    async def made(cluster: triggercluster.Cluster) -> schedules.ScheduleRun | None:
        known = await triggercluster.schedule(cluster, name)
        from_us, to_us = _range(known, from_, to)
        preview = backfillpreview.Preview(
            spec=known,
            range=manualruns.Backfill(
                from_us=from_us,
                to_us=to_us,
                asked_us=instants.now_us(),
                max_parallel=parallel,
                limit=most,
                newest_first=chosen_order == "NewestFirst",
            ),
        )
        if not _agreed(preview, shape, dry_run=dry_run, yes=yes):
            return None
        what: dict[str, Any] = {
            "from": instants.utc_text(from_us),
            "to": instants.utc_text(to_us),
            "maxParallel": parallel,
            "limit": most,
            "order": chosen_order,
        }
        run = await triggercluster.create(cluster, name, {"backfill": what}, ttl_seconds)
        triggerwait.tell_made(run, shape, f"{preview.count} slots of {known.identity}")
        return run

    triggeroptions.finish(where, made, shape=shape, wait=wait, most_seconds=most_seconds)


def _range(known: ScheduleSpec, from_: str, to: str) -> tuple[int, int]:
    """Both ends; times without an offset are the wall clock of the Schedule's zone."""
    zone = known.rule.timing.time_zone
    from_us = instants.parse_us(from_, zone=zone, name="--from")
    to_us = instants.parse_us(to, zone=zone, name="--to")
    if to_us <= from_us:
        said = f"{errors.quoted(to)} is not after --from {errors.quoted(from_)}"
        raise errors.InvalidSetting("--to", f"{said}; write a later time")
    return from_us, to_us


def _agreed(preview: backfillpreview.Preview, shape: str, *, dry_run: bool, yes: bool) -> bool:
    """Whether it is to be made, once it was shown and asked for."""
    preview.check()
    if shape == "text":
        backfillpreview.show(preview)
    elif dry_run:
        output.write([preview.row()], "json", widths={})
    if preview.count == 0:
        if shape == "json":
            output.complain("there is no slot in the range")
        raise click.exceptions.Exit(output.NOTHING)
    if dry_run:
        return False
    return yes or _asked(preview)


def _asked(preview: backfillpreview.Preview) -> bool:
    if not sys.stdin.isatty():
        raise errors.InvalidSetting(
            "--yes", "standard input is no terminal to ask on; write --yes, or --dry-run to look"
        )
    runs = "1 run" if preview.count == 1 else f"{preview.count} runs"
    if click.confirm(f"Start {runs}?", err=True):
        return True
    output.say("nothing was started")
    return False
