"""``duepoint queue partition``: ask for another number of shards, and watch until it is there.

The command only asks, through Redis; the leading operator does it, so it goes on when this command
is stopped, and asking again is watching again. On a terminal one line shows how far it is;
elsewhere, or with ``-o json``, one JSON object a line whenever something has changed.

A server that is away for a moment (it restarts, or another one takes over) is waited for.

Exit codes: 0 the index has that many shards (or, with ``--status`` and ``--no-wait``: answered),
1 there is no index yet, nothing came of it within ``--timeout``, or somebody has asked for another
number since, 2 what was asked cannot be, or Redis cannot be used.
"""

from __future__ import annotations

import asyncio
import json
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


@click.command("partition")
@click.option("--shards", metavar="N", help="A power of two; 256 from 10 million schedules on.")
@click.option("--status", is_flag=True, help="Ask for nothing; tell how far it is, once.")
@click.option("--no-wait", is_flag=True, help="Ask, and do not wait for it.")
@click.option("--timeout", metavar="SECONDS", help="Wait so long at most; it goes on all the same.")
@click.option(
    "--output",
    "-o",
    "form",
    metavar="json|table",
    help="Unset: a line that changes on a terminal, elsewhere JSON, one object a line.",
)
@connection.reaching
def partition(
    shards: str | None,
    status: bool,  # noqa: FBT001 - click's
    no_wait: bool,  # noqa: FBT001 - click's
    timeout: str | None,
    form: str | None,
    **given: str | None,
) -> None:
    """Change the number of shards of the queue while it works.

    The leading operator moves every schedule to its new shard; schedules go on firing meanwhile.
    """
    shape = output.format_of(form)
    if shards is None and not status:
        raise errors.InvalidSetting("--shards", "is missing; write --shards 256, or --status")
    wanted = None if shards is None or status else _power_of_two(shards)
    patience = None if timeout is None else options.whole("--timeout", timeout, most=10**7)
    shown = _Shown(shape, wanted)

    async def ask(opened: DelayQueue) -> int:
        if wanted is not None:
            _check_answer(await opened.resharding.ask(wanted), wanted)
        if status or no_wait:
            shown.tell(await opened.resharding.progress())
            shown.end()
            return 1
        return await _watch(opened, shown, wanted, patience)

    connection.run(given, ask)


def _check_answer(answer: resharding.ReshardingAnswer, wanted: int) -> None:
    from duepoint.delayqueue.resharding import resharding  # noqa: PLC0415 - only this command pays

    if answer is resharding.ReshardingAnswer.OTHER:
        raise errors.InvalidSetting(
            "--shards",
            f"{wanted}: the queue is just being cut into another number;"
            " see duepoint queue partition --status, and ask again afterwards",
        )


async def _watch(
    opened: DelayQueue, shown: _Shown, wanted: int | None, patience: int | None
) -> int:
    """Until it is done; 0 where the patience ended, or it is cut otherwise."""
    began = time.monotonic()
    while True:
        seen = await _seen(opened)
        shown.tell(seen)
        if wanted not in (None, seen.wanted or seen.shards):
            shown.end()
            output.complain(f"somebody has asked for {seen.wanted or seen.shards} shards since")
            return 0
        if not seen.wanted and not seen.former_shards:
            shown.end()
            return 1
        waited = time.monotonic() - began
        if patience is not None and waited > patience:
            shown.end()
            output.complain("still under way; the operator goes on, and --status tells how far")
            return 0
        if seen.wanted and waited > _UNHEARD_SECONDS:
            shown.end()
            output.complain(
                "no operator has begun; it will when one leads. Is duepoint operator running?"
            )
            return 0
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

    def __init__(self, shape: str, wanted: int | None) -> None:
        self._shape = shape
        self._wanted = wanted
        self._last: resharding.ReshardingProgress | None = None
        self._moves_cursor = shape == "table" and sys.stdout.isatty()

    def tell(self, seen: resharding.ReshardingProgress) -> None:
        if seen == self._last:
            return
        self._last = seen
        if self._shape == "json":
            sys.stdout.write(json.dumps(_row(seen)) + "\n")
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


def _power_of_two(text: str) -> int:
    most = 65_536
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
    if number < 1 or number & (number - 1) or number > most:
        near = [1 << n for n in range(17) if number / 2 < 1 << n < number * 2 or (1 << n) == most]
        listed = " or ".join(str(n) for n in near[:2]) if 1 <= number <= most else "64 or 256"
        raise errors.InvalidSetting(
            "--shards", f"{errors.quoted(text)} is no power of two up to {most}; write {listed}"
        )
    return number
