"""``duepoint queue``: shows what is in the queue and what comes next, and changes its shards.

Each ``redis_*`` setting is a flag and an environment variable, as for a worker, so the settings of
a worker reach the same server from a shell. ``stats`` and ``peek`` only read, only from Redis, and
only a bounded part of it: they are safe on a queue of any size while it works. Any trouble on the
way, also an index that does not exist, is one line and exit code 2; having nothing to show is
success.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import functools
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from duepoint import clock, errors, settings
from duepoint.cli import options, output
from duepoint.delayqueue import sharding
from duepoint.schedules import slots
from duepoint.schedules.points import PointKind

if TYPE_CHECKING:
    from duepoint.delayqueue import inspection, resharding
    from duepoint.delayqueue.delayqueue import DelayQueue

_FIELDS = dataclasses.fields(settings.QueueSettings)
#: These commands do not open blobs, so they do not need the installation's key.
_NO_KEY = bytes(32)

NAMES = tuple(field.name for field in _FIELDS)
#: The flags for the connection to the queue.
reaching = options.of_settings(_FIELDS)


def looking(look: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Turn a coroutine ``look(opened, **options)`` into a command."""

    @reaching
    @functools.wraps(look)
    def command(**given: Any) -> None:  # noqa: ANN401 - click's values
        where = {name: given.pop(name) for name in NAMES}

        async def run() -> None:
            async with opened(where) as queue:
                await look(queue, **given)

        asyncio.run(run())

    return command


@contextlib.asynccontextmanager
async def opened(where: dict[str, str | None]) -> AsyncIterator[DelayQueue]:
    """Open the queue and read its layout; raises errors.InvalidSetting if that fails."""
    chosen = _settings(where)
    from duepoint import telemetry  # noqa: PLC0415 - only these commands pay for it
    from duepoint.delayqueue import delayqueue  # noqa: PLC0415 - only these commands pay for it

    queue = delayqueue.open_queue(chosen, clock.SystemClock(), _NO_KEY)
    try:
        with telemetry.silence():
            try:
                await queue.layouts.read()
            except errors.QueueUnavailable as silent:
                if type(silent) is not errors.QueueUnavailable:
                    raise  # the server answered, and says what is wrong
                message = (
                    f"{silent}; is it the right one, and is it reachable from here? In a cluster"
                    f" it is from a worker: {_in_a_worker()}"
                )
                raise errors.InvalidSetting("--redis-url", message) from silent
            yield queue
    finally:
        await queue.close()


def _settings(where: dict[str, str | None]) -> settings.QueueSettings:
    """Return the settings for the connection.

    Raises:
        errors.InvalidSetting: a setting is wrong; without a URL the message says how to get one.
    """
    try:
        return settings.from_environment(settings.QueueSettings, where)
    except errors.InvalidSetting as wrong:
        if wrong.name != settings.variable("redis_url"):
            raise
        message = f"{wrong.reason}, or run it where Redis is known: {_in_a_worker()}"
        if (command := click.get_current_context().parent) and command.info_name == "dlq":
            message += "; or write --server URL of the HTTP API, which needs no Redis"
        raise errors.InvalidSetting(wrong.name, message) from None


def _in_a_worker() -> str:
    """Return the command to run in a Pod that has the settings, by the chart's default names."""
    command = click.get_current_context().command_path.removeprefix("kubectl ")
    return f"kubectl exec -n duepoint-system deploy/duepoint-worker -- {command} ..."


#: The most points to show: in the worst case each is in a lane of its own.
_MOST_POINTS = 1_000


@click.group("queue", cls=options.CommandGroup)
def queue() -> None:
    """Inspect the queue in Redis; only partition, which changes its shards, writes to it.

    Where it is comes from the same settings as a worker's: DUEPOINT_REDIS_URL or --redis-url.
    """


# -- stats ---------------------------------------------------------------------------------------


@queue.command("stats")
@click.option("--by-namespace", is_flag=True, help="A row for each namespace with points.")
@options.output_format
@looking
async def stats(opened: DelayQueue, *, by_namespace: bool, form: str) -> None:
    """Show how full the queue is, how late, and who works on it.

    Example: duepoint queue stats --by-namespace
    """
    seen = await opened.inspection.index_view()
    if by_namespace:
        rows = _by_namespace(await opened.inspection.waiting(), seen.now_us)
        output.show_rows(rows, form, _OF_NAMESPACE)
        return
    total = _total(seen, await opened.inspection.shard_views())
    output.show_row(total, form, _total_cells(total))


def _lateness(of: Iterable[inspection.LaneView], now_us: int) -> output.Row:
    dues = [lane.first_due_us for lane in of if lane.first_due_us is not None]
    oldest_us = min((due_us for due_us in dues if due_us <= now_us), default=None)
    late_us = 0 if oldest_us is None else now_us - oldest_us
    return {"oldestDue": output.time(oldest_us), "lagSeconds": late_us / 1_000_000}


def _total(seen: inspection.IndexView, shards: Sequence[inspection.ShardView]) -> output.Row:
    lanes = [lane for shard in shards for lane in shard.lanes]
    return {
        "server": seen.server,
        "layout": seen.layout.number,
        "layoutState": seen.state,
        "shards": seen.layout.shards,
        "shardStates": dict(sorted(collections.Counter(each.state for each in shards).items())),
        "epoch": seen.epoch,
        "armed": sum(shard.armed for shard in shards),
        "due": sum(lane.due for lane in lanes),
        **_lateness(lanes, seen.now_us),
        "claimed": sum(lane.claimed for lane in lanes),
        "claims": sum(shard.claims for shard in shards),
        "occurrences": sum(shard.occurrences for shard in shards),
        "deadLetters": sum(shard.dead for shard in shards),
        "runsBacklog": sum(shard.runs for shard in shards),
        "memoryUsedBytes": seen.memory_used,
        "memoryResidentBytes": seen.memory_resident,
        "memoryLimitBytes": seen.memory_limit,
        "workers": [name for name, _ in seen.workers],
    }


def _total_cells(row: output.Row) -> output.Cells:
    """Return the cells of ``_total`` for people: sizes and times in units, lists in words."""
    oldest = f"{row['oldestDue']} ({output.span(row['lagSeconds'])} late)"
    states = [f"{count} {state}" for state, count in row["shardStates"].items()]
    shown = {name: output.size(row[name]) for name in row if name.endswith("Bytes")}
    shown["oldestDue"] = oldest if row["oldestDue"] else "nothing is due"
    shown["shardStates"] = ", ".join(states)
    shown["workers"] = ", ".join(row["workers"]) or "none"
    return {name: shown.get(name, str(value)) for name, value in row.items()}


def _by_namespace(shards: Iterable[inspection.ShardView], now_us: int) -> list[output.Row]:
    """Return a row for each namespace, those with the most due points first."""
    found: dict[str, list[inspection.LaneView]] = {}
    for shard in shards:
        for lane in shard.lanes:
            found.setdefault(lane.namespace, []).append(lane)
    rows = [
        {
            "namespace": namespace,
            "points": sum(lane.points for lane in its_lanes),
            "due": sum(lane.due for lane in its_lanes),
            "claimed": sum(lane.claimed for lane in its_lanes),
            **_lateness(its_lanes, now_us),
        }
        for namespace, its_lanes in found.items()
    ]
    return sorted(rows, key=lambda row: (-row["due"], -row["points"], row["namespace"]))


_OF_NAMESPACE: output.Columns = {
    "namespace": "namespace",
    "points": "points",
    "due": "due",
    "late": lambda row: output.span(row["lagSeconds"]) if row["due"] else "",
    "claimed": "claimed",
}


# -- peek ----------------------------------------------------------------------------------------


@queue.command("peek")
@options.count(_MOST_POINTS)
@options.only_namespace
@options.only_schedule
@options.output_format
@looking
async def peek(
    opened: DelayQueue, *, count: int, namespace: str | None, schedule: str | None, form: str
) -> None:
    """Show the points that come next and that no worker holds, those due already first.

    With --schedule: those of one Schedule among the next thousand.

    Example: duepoint queue peek -n team-a -s report
    """
    most = count if schedule is None else _MOST_POINTS
    found = await opened.inspection.next_points(most, namespace=namespace)
    now_us = (await opened.inspection.index_view()).now_us
    rows = [_of_point(point, now_us) for point in found]
    if schedule is not None:
        rows = [row for row in rows if schedule in (row["schedule"], row["uid"])][:count]
    if not rows:
        why = "nothing is armed"
        if schedule is not None:
            why = f"{schedule} is not among the next {most:,} points; duepoint why says more"
        output.complain(f"{namespace or 'all namespaces'}: {why}")
    output.show_rows(rows, form, _OF_POINT)


_OF_POINT: output.Columns = {
    "in": lambda row: output.span(abs(row["inSeconds"])) + " late" * (row["inSeconds"] <= 0),
    "due": lambda row: output.short_time(row["due"]),
    "kind": "kind",
    "scheduledTime": "scheduledTime",
    "attempt": "attempt",
    "schedule": output.name,
    # For a retry: the reason, and the cause in words if it was stored.
    "last error": lambda row: ": ".join(filter(None, (row["lastError"], row["lastCause"]))),
}


def _of_point(sight: inspection.PointView, now_us: int) -> output.Row:
    """Return the row of a point."""
    due_us, record = sight.point.due_us, sight.record
    return {
        "namespace": sight.namespace,
        "schedule": "" if sight.known is None else sight.known.name,
        "uid": "" if sight.known is None else sight.known.uid,
        "kind": sight.point.kind.name.lower(),
        "scheduledTime": output.time(_slot_us(sight)),
        "due": output.time(due_us),
        "attempt": None if record is None else record.attempt + 1,
        "inSeconds": (due_us - now_us) / 1_000_000,
        "state": "due" if due_us <= now_us else "waiting",
        "lastError": "" if record is None else record.last_error,
        "lastCause": "" if record is None else record.last_cause,
        "shard": sharding.index_of(sight.shard),
    }


def _slot_us(sight: inspection.PointView) -> int | None:
    if sight.point.kind is not PointKind.CHAIN:
        return sight.point.slot_us
    known = sight.known
    if known is None:
        return None
    try:
        timeline = slots.for_rule(known.rule, identity=known.identity, created_us=known.created_us)
    except errors.InvalidExpression:
        return None
    return timeline.at_or_before(sight.point.due_us)


# -- another number of shards ----------------------------------------------------------------------


_MOST_SHARDS = 65_536
_LOOK_SECONDS = 0.5


def _power_of_two(text: str) -> int:
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
    if number < 1 or number & (number - 1) or number > _MOST_SHARDS:
        message = f"is not a power of two up to {_MOST_SHARDS}; write 64 or 256"
        raise ValueError(f"{errors.quoted(text)} {message}")
    return number


@queue.command("partition")
@click.option(
    "--shards",
    "wanted",
    metavar="N",
    type=options.Converted(_power_of_two),
    help="A power of two; 256 from 10 million schedules on. Unset: show how far it is, once.",
)
@options.output_format
@looking
async def partition(opened: DelayQueue, *, wanted: int | None, form: str) -> None:
    """Change the number of shards of the queue while it works.

    The leading operator moves every schedule to its new shard; schedules go on firing meanwhile.

    Example: duepoint queue partition --shards 256
    """
    from duepoint.delayqueue import resharding  # noqa: PLC0415 - only this command pays

    if wanted and await opened.resharding.ask(wanted) is resharding.ReshardingAnswer.OTHER:
        raise errors.InvalidSetting(
            "--shards",
            f"{wanted}: a change to another number is in progress;"
            " see duepoint queue partition, and repeat this afterwards",
        )
    former = None
    while True:
        seen = await opened.resharding.progress()
        if seen != former:
            output.write([_row(seen)], form) if output.is_data(form) else output.say(_line(seen))
            sys.stdout.flush()
        former = seen
        if wanted is None or not (seen.wanted or seen.former_shards):
            break
        await asyncio.sleep(_LOOK_SECONDS)
    if wanted not in (None, seen.shards):
        output.complain(f"another command has requested {seen.shards} shards since")
        raise click.exceptions.Exit(output.FAILED)


def _row(seen: resharding.ReshardingProgress) -> dict[str, object]:
    return {
        "phase": "asked" if seen.wanted else seen.phase.value,
        "layout": seen.layout,
        "shards": seen.shards,
        "formerShards": seen.former_shards or None,
        "wantedShards": seen.wanted or None,
        "moved": seen.moved,
        "left": seen.left,
        "waitingFor": seen.waiting or None,
    }


def _line(seen: resharding.ReshardingProgress) -> str:
    if seen.wanted:
        return f"{seen.shards} shards; {seen.wanted} are requested, waiting for the operator"
    if not seen.former_shards:
        moved = f"; {seen.moved} definitions were moved" if seen.moved else ""
        return f"{seen.shards} shards{moved}"
    done = seen.moved / (seen.moved + seen.left or 1)
    waiting = f", waiting for {seen.waiting}" if seen.waiting else ""
    return (
        f"{seen.former_shards} -> {seen.shards} shards, {done:.0%}:"
        f" {seen.moved} moved, {seen.left} left{waiting}"
    )
