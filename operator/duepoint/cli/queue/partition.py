"""``duepoint queue partition``: ask for another number of shards, and watch until it is there.

The command only asks, through Redis; the leading operator does it, so it goes on when this command
is stopped, and asking again is watching again. On a terminal one line shows how far it is;
elsewhere, or with ``-o json``, one JSON object a line whenever something has changed.

A server that is away for a moment (it restarts, or another one takes over) is waited for.

Exit codes: 0 the index has that many shards (or, with ``--status`` and ``--no-wait``: answered),
1 there is no index yet, nothing came of it within ``--timeout``, or another command has asked for
another number since, 2 what was asked cannot be, or Redis cannot be used.
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
_BAR = 30
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


def _check(*, shards: int | None, status: bool, **_: object) -> None:
    if shards is None and not status:
        raise errors.InvalidSetting("--shards", "is missing; write --shards 256, or --status")


@click.command("partition")
@click.option(
    "--shards",
    metavar="N",
    type=options.Converted(_power_of_two),
    help="A power of two; 256 from 10 million schedules on.",
)
@click.option("--status", is_flag=True, help="Ask for nothing; show how far it is, once.")
@click.option("--no-wait", is_flag=True, help="Ask, and do not wait for it.")
@click.option(
    "--timeout",
    "patience",
    metavar="DURATION",
    type=options.Converted(options.timeout_seconds),
    help="Wait so long at most, such as 10m; it goes on all the same.",
)
@options.output_format
@connection.looking(_check, has_own_timeout=True)
async def partition(
    opened: DelayQueue,
    *,
    shards: int | None,
    status: bool,
    no_wait: bool,
    patience: float | None,
    form: str,
) -> int:
    """Change the number of shards of the queue while it works.

    The leading operator moves every schedule to its new shard; schedules go on firing meanwhile.
    """
    from duepoint.delayqueue.resharding import resharding  # noqa: PLC0415 - only this command pays

    wanted = None if status else shards
    if wanted is not None:
        answer = await opened.resharding.ask(wanted)
        if answer is resharding.ReshardingAnswer.OTHER:
            raise errors.InvalidSetting(
                "--shards",
                f"{wanted}: the queue is just being cut into another number;"
                " see duepoint queue partition --status, and ask again afterwards",
            )
    shown = _Shown(form)
    if status or no_wait:
        shown.show(await opened.resharding.progress())
        end = ""
    else:
        end = await _watch(opened, shown, wanted, patience)
    shown.end()
    if end:
        output.complain(end)
    if end:
        raise click.exceptions.Exit(output.FAILED)
    return 1


async def _watch(
    opened: DelayQueue, shown: _Shown, wanted: int | None, patience: float | None
) -> str:
    """Show it until it is done; else why no longer: patience ended, or it is cut otherwise."""
    began = time.monotonic()
    while True:
        seen = await _seen(opened)
        shown.show(seen)
        if wanted not in (None, seen.wanted or seen.shards):
            return f"another command has asked for {seen.wanted or seen.shards} shards since"
        if not seen.wanted and not seen.former_shards:
            return ""
        waited = time.monotonic() - began
        if patience is not None and waited > patience:
            return "still under way; the operator goes on, and --status shows how far"
        if seen.wanted and waited > _UNHEARD_SECONDS:
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


class _Shown:
    """What has been shown so far, so that the same is not shown twice."""

    def __init__(self, form: str) -> None:
        self._form = form
        self._last: resharding.ReshardingProgress | None = None
        self._moves_cursor = not output.is_data(form) and output.can_redraw(sys.stdout)

    def show(self, seen: resharding.ReshardingProgress) -> None:
        if seen == self._last:
            return
        self._last = seen
        if output.is_data(self._form):
            output.write([_row(seen)], self._form)
        elif self._moves_cursor:
            sys.stdout.write(f"\r\x1b[K{_line(seen)}")
        else:
            sys.stdout.write(_line(seen) + "\n")
        sys.stdout.flush()

    def end(self) -> None:
        if self._moves_cursor:
            sys.stdout.write("\n")


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
    whole = seen.moved + seen.left
    done = seen.moved / whole if whole else 0.0
    bar = "#" * int(done * _BAR)
    waiting = f", waiting for {seen.waiting}" if seen.waiting else ""
    return (
        f"{seen.former_shards} -> {seen.shards} shards [{bar:<{_BAR}}] {done:4.0%}"
        f" {seen.moved} moved, {seen.left} left{waiting}"
    )
