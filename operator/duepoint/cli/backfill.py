"""``duepoint backfill``: run the slots of a range again.

Shows first what would run, computed with the same code as the operator's, and asks; then makes a
ScheduleRun and follows it with a bar. Nothing is made for a range without slots, or with too many.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import click

from duepoint import errors
from duepoint.cli import cluster, instants, options, output, scheduleruns
from duepoint.kube import schedules
from duepoint.schedules import manualruns
from duepoint.schedules.manualruns import Backfill
from duepoint.schedules.spec import ScheduleSpec

#: Slots shown at each end of a range that holds more.
_SHOWN = 5
#: A range with more slots is refused, as the API does.
_LIMIT = 10_000


@click.command()
@options.schedule_name
@click.option(
    "--from",
    "from_",
    metavar="TIME",
    type=options.TIME,
    required=True,
    help="Begin; belongs to the range.",
)
@click.option(
    "--to", metavar="TIME", type=options.TIME, required=True, help="End; does not belong to it."
)
@click.option(
    "--max-parallel",
    "parallel",
    default=str(manualruns.MAX_PARALLEL),
    metavar="N",
    type=options.whole(1_000),
    show_default=True,
    help="Runs that may be active at once.",
)
@click.option("--dry-run", is_flag=True, help="Show what would run, and run nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@scheduleruns.options_of_run(wait=True)
def backfill(
    name: str,
    *,
    from_: str,
    to: str,
    parallel: int,
    dry_run: bool,
    yes: bool,
    run_options: scheduleruns.RunOptions,
) -> None:
    """Run the slots of the Schedule NAME in a range again.

    Example: duepoint backfill report -n team-a --from 2026-11-01 --to 2026-11-02
    """

    async def create(server: cluster.ClusterSession) -> schedules.ScheduleRun | None:
        known = await scheduleruns.schedule(server, name)
        from_us, to_us = _range(known, from_, to)
        asked = Backfill(
            from_us=from_us,
            to_us=to_us,
            asked_us=instants.now_us(),
            max_parallel=parallel,
            limit=_LIMIT,
        )
        count = _previewed(known, asked, run_options.form, dry_run=dry_run)
        if dry_run or not count or not (yes or _agreed(count)):
            return None
        what = {
            "from": instants.utc_text(from_us),
            "to": instants.utc_text(to_us),
            "maxParallel": parallel,
            "limit": _LIMIT,
        }
        shown = f"{count} slots of {known.identity}"
        return await scheduleruns.create(server, name, {"backfill": what}, run_options, shown)

    scheduleruns.finish(run_options, create)


def _range(known: ScheduleSpec, from_: str, to: str) -> tuple[int, int]:
    """Both ends; times without an offset are the wall clock of the Schedule's zone."""
    zone = known.rule.timing.time_zone
    from_us = instants.parse_us(from_, zone=zone, name="--from")
    to_us = instants.parse_us(to, zone=zone, name="--to")
    if to_us <= from_us:
        message = f"{errors.quoted(to)} is not after --from {errors.quoted(from_)}"
        raise errors.InvalidSetting("--to", f"{message}; write a later time")
    return from_us, to_us


def _previewed(known: ScheduleSpec, asked: Backfill, form: str, *, dry_run: bool) -> int:
    """Show what would run; how many slots.

    Raises:
        errors.InvalidSetting: the operator would refuse it.
    """
    line = manualruns.timeline_of(known.rule, identity=known.identity, created_us=known.created_us)
    after_us, through_us = asked.from_us - 1, asked.through_us
    count = line.count(after_us, through_us)
    if count > asked.limit:
        raise errors.InvalidSetting(
            "--to",
            f"the range holds {count} slots, and {_LIMIT} may be run at once; write shorter ones",
        )
    first_, last_ = line.walk(after_us, through_us), line.walk_back(through_us, after_us)
    if count <= 2 * _SHOWN:
        first, last = list(first_), list[int]()
    else:
        first, last = (list(itertools.islice(end, _SHOWN)) for end in (first_, last_))
        last.reverse()
    if not output.is_data(form):
        _show(known, asked, count, (first, last))
    elif dry_run:
        row = {
            "namespace": known.namespace,
            "schedule": known.name,
            "slots": count,
            "first": [instants.utc_text(slot_us) for slot_us in first],
            "last": [instants.utc_text(slot_us) for slot_us in last],
            "notes": list(_notes(known, asked)),
        }
        output.write([row], form)
    if count == 0 and output.is_data(form):
        output.complain("there is no slot in the range")
    return count


def _show(
    known: ScheduleSpec, asked: Backfill, count: int, ends: tuple[list[int], list[int]]
) -> None:
    """The preview for people."""
    slots = "no slot" if count == 0 else "1 slot" if count == 1 else f"{count} slots"
    output.say(
        f"{known.identity}: {slots} from {instants.utc_text(asked.from_us)} until "
        f"{instants.utc_text(asked.to_us)}, at most {asked.max_parallel} at once"
    )
    zone = instants.LocalTime(known.rule.timing.time_zone)
    first, last = ends
    lines = [f"  {instants.utc_text(slot_us)}  {zone.text(slot_us)}" for slot_us in first + last]
    if last:
        lines.insert(len(first), f"  ... {count - len(first) - len(last)} more ...")
    for line in lines:
        output.say(line)
    for note in _notes(known, asked):
        output.say(f"  note: {note}")


def _notes(known: ScheduleSpec, asked: Backfill) -> Iterator[str]:
    """What people may not expect."""
    policy = known.rule.policy
    if asked.to_us > asked.asked_us:
        yield "slots after now are left out: the Schedule runs them itself"
    if policy.concurrency != "Allow" and asked.max_parallel > policy.max_concurrency:
        limit = f"concurrencyPolicy {policy.concurrency}: {policy.max_concurrency} at a time"
        yield f"{limit}, and beside regular runs as it says"
    if known.rule.timing.suspend:
        yield "the Schedule is suspended; these slots run all the same"


def _agreed(count: int) -> bool:
    agreed = options.confirmed(
        f"Start {'1 run' if count == 1 else f'{count} runs'}?",
        option="--yes",
        without_terminal="standard input is no terminal to ask on; write --yes, or --dry-run to"
        " look",
    )
    if not agreed:
        output.say("nothing was started")
    return agreed
