"""``duepoint queue partition``: ask for another number of shards, and watch until it is there.

The command only asks, through Redis; the leading operator does it, so it goes on when this command
is stopped, and asking again is watching again. One line, or JSON object, is written whenever
something has changed. A server that is away for a moment (it restarts, or another one takes over)
is waited for.

Exit codes: 0 the index has that many shards, or nothing was asked for; 1 no operator begins, or
another command has asked for another number since; 2 what was asked cannot be, Redis cannot be
used, or ``--timeout`` is over.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING

import click

from duepoint import errors
from duepoint.cli import options, output
from duepoint.cli.queue import connection

if TYPE_CHECKING:
    from duepoint.delayqueue.delayqueue import DelayQueue
    from duepoint.delayqueue.resharding import resharding

_LOOK_SECONDS = 0.5
#: No leader has begun for so long: there is none, or its version cannot.
_UNHEARD_SECONDS = 60.0
#: A server that was there at the beginning may be away for so long.
_AWAY_SECONDS = 30.0


def _power_of_two(text: str) -> int:
    most = 65_536
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
    if number < 1 or number & (number - 1) or number > most:
        near = [1 << n for n in range(17) if number / 2 < 1 << n < number * 2 or (1 << n) == most]
        listed = " or ".join(str(n) for n in near[:2]) if 1 <= number <= most else "64 or 256"
        raise ValueError(f"{errors.quoted(text)} is no power of two up to {most}; write {listed}")
    return number


@click.command("partition")
@click.option(
    "--shards",
    "wanted",
    metavar="N",
    type=options.Converted(_power_of_two),
    help="A power of two; 256 from 10 million schedules on. Unset: show how far it is, once.",
)
@options.output_format
@connection.looking
async def partition(opened: DelayQueue, *, wanted: int | None, form: str) -> int:
    """Change the number of shards of the queue while it works.

    The leading operator moves every schedule to its new shard; schedules go on firing meanwhile.

    Example: duepoint queue partition --shards 256
    """
    from duepoint.delayqueue.resharding import resharding  # noqa: PLC0415 - only this command pays

    if wanted is None:
        _show(await opened.resharding.progress(), form)
        return 1
    if await opened.resharding.ask(wanted) is resharding.ReshardingAnswer.OTHER:
        raise errors.InvalidSetting(
            "--shards",
            f"{wanted}: the queue is just being cut into another number;"
            " see duepoint queue partition, and ask again afterwards",
        )
    if end := await _watch(opened, wanted, form):
        output.complain(end)
        raise click.exceptions.Exit(output.FAILED)
    return 1


async def _watch(opened: DelayQueue, wanted: int, form: str) -> str:
    """Show it until it is done; else why no longer: nobody begins, or it is cut otherwise."""
    began, former = time.monotonic(), None
    while True:
        seen = await _seen(opened)
        if seen != former:
            _show(seen, form)
        former = seen
        if wanted != (seen.wanted or seen.shards):
            return f"another command has asked for {seen.wanted or seen.shards} shards since"
        if not seen.wanted and not seen.former_shards:
            return ""
        if seen.wanted and time.monotonic() - began > _UNHEARD_SECONDS:
            return "no operator has begun; it will when one leads. Is duepoint operator running?"
        await asyncio.sleep(_LOOK_SECONDS)


async def _seen(opened: DelayQueue) -> resharding.ReshardingProgress:
    """How far it is, as soon as the server says so again."""
    last = time.monotonic() + _AWAY_SECONDS
    while True:
        try:
            return await opened.resharding.progress()
        except errors.TryLater:
            if time.monotonic() >= last:
                raise
            await asyncio.sleep(_LOOK_SECONDS)


def _show(seen: resharding.ReshardingProgress, form: str) -> None:
    if output.is_data(form):
        output.write([_row(seen)], form)
    else:
        output.say(_line(seen))
    sys.stdout.flush()


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
        return f"{seen.shards} shards; {seen.wanted} are asked for, waiting for the operator"
    if not seen.former_shards:
        moved = f"; {seen.moved} definitions were moved" if seen.moved else ""
        return f"{seen.shards} shards{moved}"
    done = seen.moved / (seen.moved + seen.left or 1)
    waiting = f", waiting for {seen.waiting}" if seen.waiting else ""
    return (
        f"{seen.former_shards} -> {seen.shards} shards, {done:.0%}:"
        f" {seen.moved} moved, {seen.left} left{waiting}"
    )
