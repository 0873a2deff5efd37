"""``duepoint backfill``: run the slots of a range again.

Shows first what would run, computed with the same code as the operator's, and asks; then makes a
ScheduleRun and follows it with a bar. Nothing is made for a range without slots, or with more than
``--limit``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from duepoint import errors
from duepoint.cli import cluster, instants, options, output
from duepoint.cli.run import scheduleruns
from duepoint.kube import schedules
from duepoint.schedules import manualruns
from duepoint.schedules.manualruns import Backfill, Wanted
from duepoint.schedules.slots import Slots
from duepoint.schedules.spec import ScheduleSpec

#: Slots shown at each end of a range that holds more.
_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """A backfill before it is asked for."""

    spec: ScheduleSpec
    range: Backfill

    @property
    def slots(self) -> Slots:
        return manualruns.timeline_of(
            self.spec.rule, identity=self.spec.identity, created_us=self.spec.created_us
        )

    @property
    def wanted(self) -> Wanted:
        return Wanted(schedule=self.spec.name, slots=self.range)

    @property
    def count(self) -> int:
        """Slots in the range."""
        return manualruns.left(self.wanted, self.slots)

    def check(self) -> None:
        """Raise errors.InvalidSetting where the operator would refuse it."""
        if self.count > self.range.limit:
            raise errors.InvalidSetting(
                "--limit",
                f"the range holds {self.count} slots and the limit is {self.range.limit}; write a "
                "shorter range, or a limit of up to 10000",
            )

    def ends(self) -> tuple[list[int], list[int]]:
        """The slots that go first and, of many, those that go last, in their order."""
        if self.count <= 2 * _SHOWN:
            return list(self._walk(newest_first=self.range.newest_first)), []
        first = itertools.islice(self._walk(newest_first=self.range.newest_first), _SHOWN)
        last = itertools.islice(self._walk(newest_first=not self.range.newest_first), _SHOWN)
        return list(first), list(last)[::-1]

    def _walk(self, *, newest_first: bool) -> Iterator[int]:
        after_us, through_us = self.range.from_us - 1, self.range.through_us
        if newest_first:
            return self.slots.walk_back(through_us, after_us)
        return self.slots.walk(after_us, through_us)

    def notes(self) -> Iterator[str]:
        """What people may not expect."""
        policy = self.spec.rule.policy
        if self.range.to_us > self.range.asked_us:
            yield "slots after now are left out: the Schedule runs them itself"
        if policy.concurrency != "Allow" and self.range.max_parallel > policy.max_concurrency:
            limit = f"concurrencyPolicy {policy.concurrency}: {policy.max_concurrency} at a time"
            yield f"{limit}, and beside regular runs as it says"
        if self.spec.rule.timing.suspend:
            yield "the Schedule is suspended; these slots run all the same"

    def row(self) -> dict[str, Any]:
        """The preview as JSON; times in UTC."""
        first, last = self.ends()
        return {
            "namespace": self.spec.namespace,
            "schedule": self.spec.name,
            "slots": self.count,
            "first": [instants.utc_text(slot_us) for slot_us in first],
            "last": [instants.utc_text(slot_us) for slot_us in last],
            "notes": list(self.notes()),
        }


def show(preview: Preview) -> None:
    """On standard output, for people."""
    count = preview.count
    slots = "no slot" if count == 0 else "1 slot" if count == 1 else f"{count} slots"
    begin, end = preview.range.from_us, preview.range.to_us
    order = "newest first" if preview.range.newest_first else "oldest first"
    output.say(
        f"{preview.spec.identity}: {slots} from {instants.utc_text(begin)} until "
        f"{instants.utc_text(end)}, {order}, at most {preview.range.max_parallel} at once"
    )
    zone = instants.LocalTime(preview.spec.rule.timing.time_zone)
    first, last = preview.ends()
    lines = [f"  {instants.utc_text(slot_us)}  {zone.text(slot_us)}" for slot_us in first + last]
    if last:
        lines.insert(len(first), f"  ... {count - len(first) - len(last)} more ...")
    for line in lines:
        output.say(line)
    for note in preview.notes():
        output.say(f"  note: {note}")


_ORDERS = ("OldestFirst", "NewestFirst")


@click.command()
@click.argument("name")
@click.option("--from", "from_", metavar="TIME", required=True, help="Begin; belongs to the range.")
@click.option("--to", metavar="TIME", required=True, help="End; does not belong to it.")
@click.option(
    "--max-parallel",
    "parallel",
    default=str(manualruns.MAX_PARALLEL),
    metavar="N",
    type=options.whole(1_000),
    show_default=True,
    help="Runs that may be active at once.",
)
@click.option(
    "--limit",
    default=str(manualruns.LIMIT),
    metavar="N",
    type=options.whole(10_000),
    show_default=True,
    help="A range with more slots is refused.",
)
@click.option(
    "--order",
    default=_ORDERS[0],
    metavar="|".join(_ORDERS),
    type=options.words(*_ORDERS),
    show_default=True,
    help="Which slots go first.",
)
@click.option("--dry-run", is_flag=True, help="Show what would run, and run nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@options.of_run
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait for its end.")
def backfill(
    name: str,
    *,
    from_: str,
    to: str,
    parallel: int,
    limit: int,
    order: str,
    dry_run: bool,
    yes: bool,
    namespace: str | None,
    ttl_seconds: int | None,
    timeout_us: int | None,
    form: str,
    kubeconfig: Path | None,
    context: str | None,
    wait: bool,
) -> None:
    """Run the slots of the Schedule NAME in a range again."""
    where = cluster.Place(kubeconfig=kubeconfig, context=context, namespace=namespace)

    async def create(server: cluster.ClusterSession) -> schedules.ScheduleRun | None:
        known = await scheduleruns.schedule(server, name)
        from_us, to_us = _range(known, from_, to)
        preview = Preview(
            spec=known,
            range=manualruns.Backfill(
                from_us=from_us,
                to_us=to_us,
                asked_us=instants.now_us(),
                max_parallel=parallel,
                limit=limit,
                newest_first=order == "NewestFirst",
            ),
        )
        if not _agreed(preview, form, dry_run=dry_run, yes=yes):
            return None
        what: dict[str, Any] = {
            "from": instants.utc_text(from_us),
            "to": instants.utc_text(to_us),
            "maxParallel": parallel,
            "limit": limit,
            "order": order,
        }
        run = await scheduleruns.create(server, name, {"backfill": what}, ttl_seconds)
        scheduleruns.show_created(run, form, f"{preview.count} slots of {known.identity}")
        return run

    scheduleruns.finish(where, create, form=form, wait=wait, timeout_us=timeout_us)


def _range(known: ScheduleSpec, from_: str, to: str) -> tuple[int, int]:
    """Both ends; times without an offset are the wall clock of the Schedule's zone."""
    zone = known.rule.timing.time_zone
    from_us = instants.parse_us(from_, zone=zone, name="--from")
    to_us = instants.parse_us(to, zone=zone, name="--to")
    if to_us <= from_us:
        message = f"{errors.quoted(to)} is not after --from {errors.quoted(from_)}"
        raise errors.InvalidSetting("--to", f"{message}; write a later time")
    return from_us, to_us


def _agreed(preview: Preview, form: str, *, dry_run: bool, yes: bool) -> bool:
    """Show the preview; whether the runs are to be started."""
    preview.check()
    if form == "text":
        show(preview)
    elif dry_run:
        output.write([preview.row()], "json", widths={})
    if preview.count == 0:
        if form == "json":
            output.complain("there is no slot in the range")
        raise click.exceptions.Exit(output.NOTHING)
    if dry_run:
        return False
    if yes:
        return True
    agreed = options.confirmed(
        f"Start {'1 run' if preview.count == 1 else f'{preview.count} runs'}?",
        option="--yes",
        without_terminal="standard input is no terminal to ask on; write --yes, or --dry-run to"
        " look",
    )
    if not agreed:
        output.say("nothing was started")
    return agreed
