"""``duepoint dlq replay`` and ``purge``: dead letters run again, or are removed.

A replayed letter goes back through the queue once, with the id that its event always had; its
attempts and ages count anew, and what fails again is a dead letter again. Where its Schedule is
gone, or the letter does not say which slot it is of, it stays and the row says why.

Exit codes: 0 every chosen letter was replayed or purged (or would be), 1 there was none, or some
could not be.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from duepoint import clock as clocks
from duepoint import errors
from duepoint.cli import options, output
from duepoint.cli.queue import connection, letterchoice, letterrows, listing

if TYPE_CHECKING:
    from duepoint.delayqueue import messages
    from duepoint.delayqueue.delayqueue import DelayQueue
    from duepoint.delayqueue.inspection import views

_PURGED_TOGETHER = 500

dry_run = click.option("--dry-run", is_flag=True, help="Say what would be done; do nothing.")
yes = click.option("--yes", "-y", is_flag=True, help="Do not ask before all of them.")

#: Why a letter was left, by what the queue said.
_WHY = {
    "waiting": "this slot waits in the queue already",
    "gone": "somebody else replayed or purged it just now",
    "absent": "the queue holds no definition of this uid: the Schedule was deleted or is not armed",
    "moving": "its Schedule is moving to another shard: ask again in a moment",
}


@dataclass(slots=True)
class _Told:
    """What has been written: a row for each letter, in its order."""

    shape: str
    done: int = 0
    left: int = 0
    _rows: list[listing.Row] = field(default_factory=list)

    def tell(self, row: listing.Row, result: str, why: str = "") -> None:
        self.done, self.left = self.done + (not why), self.left + bool(why)
        self._rows.append({**row, "result": result, "why": why})
        if self.shape == "json":
            self.flush()

    def flush(self) -> None:
        if self._rows:
            listing.write(self._rows, self.shape, _cells, spare=("scheduledTime", "id"), cut="why")
        self._rows.clear()

    def end(self, verb: str, *, dry: bool) -> int:
        """How many were done, 0 where any was left, for the exit code."""
        self.flush()
        if not self.done and not self.left:
            output.complain("there is no such dead letter")
        elif self.left:
            would = "would be " if dry else ""
            output.complain(f"{self.done} {would}{verb}, {self.left} not; the rows say why")
        return 0 if self.left else self.done


@click.command("replay")
@letterchoice.choosing
@dry_run
@yes
@options.output_format
@connection.reaching
def replay(
    dry_run: bool,  # noqa: FBT001 - click's
    yes: bool,  # noqa: FBT001 - click's
    form: str | None,
    **given: str | None,
) -> None:
    """Run the slots of dead letters again, each once and under the id that it had.

    Name them by ID, as list shows them, or choose them; filters together mean all of them at once.
    """
    asked = letterchoice.choice(given)
    _change(given, asked, form, _replay, "replayed", dry=dry_run, sure=yes)


@click.command("purge")
@letterchoice.choosing
@dry_run
@yes
@options.output_format
@connection.reaching
def purge(
    dry_run: bool,  # noqa: FBT001 - click's
    yes: bool,  # noqa: FBT001 - click's
    form: str | None,
    **given: str | None,
) -> None:
    """Remove dead letters for good: their slots can not be replayed any more.

    Name them by ID, as list shows them, or choose them; filters together mean all of them at once.
    """
    asked = letterchoice.choice(given)
    _change(given, asked, form, _purge, "purged", dry=dry_run, sure=yes)


def why_not(letter: messages.DeadEntry, known: views.ScheduleSight | None) -> str:
    """Why a letter cannot be replayed; empty where it can."""
    from duepoint.delayqueue import deadletters  # noqa: PLC0415 - only these commands pay for it

    if deadletters.slot_of(letter) is None:
        return "the letter names no Schedule and slot: its point could not be read"
    return _WHY["absent"] if known is None else ""


def _change(
    given: dict[str, str | None],
    asked: letterchoice.Choice,
    form: str | None,
    change: Callable[..., Coroutine[None, None, None]],
    verb: str,
    *,
    dry: bool,
    sure: bool,
) -> None:
    told = _Told(output.format_of(form))

    async def go(opened: DelayQueue) -> int:
        if asked.everything and not dry and not sure:
            _confirm(await opened.dead_letters.count(), verb)
        await change(opened, asked, told, dry=dry)
        return told.end(verb, dry=dry)

    connection.run(given, go)


def _confirm(count: int, verb: str) -> None:
    if not sys.stdin.isatty():
        raise errors.InvalidSetting(
            "--all", f"{count} letters would be {verb}: write --yes where nobody can be asked"
        )
    click.confirm(f"All {count} dead letters will be {verb}. Go on?", abort=True, err=True)


async def _replay(
    opened: DelayQueue, asked: letterchoice.Choice, told: _Told, *, dry: bool
) -> None:
    now_us = clocks.SystemClock().now_us()
    async for id_, letter in letterchoice.chosen(opened, asked, letterrows.row_of, now_us):
        if letter is None:
            told.tell(_nothing(id_), "not replayed", "there is no such dead letter")
            continue
        result, why = await _replay_one(opened, letter, now_us, dry=dry)
        told.tell(letterrows.row_of(letter), result, why)


async def _replay_one(
    opened: DelayQueue, letter: messages.DeadEntry, now_us: int, *, dry: bool
) -> tuple[str, str]:
    from duepoint.delayqueue import deadletters  # noqa: PLC0415 - only these commands pay for it

    slot = deadletters.slot_of(letter)
    known = (
        None if slot is None else await opened.upcoming.schedule_view(slot.namespace, uid=slot.uid)
    )
    if why := why_not(letter, known):
        return "not replayed", why
    assert slot is not None  # noqa: S101 - ``why_not`` said so
    assert known is not None  # noqa: S101 - and of this
    if dry:
        return "would be replayed", ""
    answer = await opened.dead_letters.replay(letter, slot, (known.shard, known.known), now_us)
    if answer is deadletters.Replayed.APPLIED:
        return "replayed", ""
    return "not replayed", _WHY[answer.value]


async def _purge(opened: DelayQueue, asked: letterchoice.Choice, told: _Told, *, dry: bool) -> None:
    now_us = clocks.SystemClock().now_us()
    batch: list[messages.DeadEntry] = []
    async for id_, letter in letterchoice.chosen(opened, asked, letterrows.row_of, now_us):
        if letter is None:
            told.tell(_nothing(id_), "not purged", "there is no such dead letter")
            continue
        batch.append(letter)
        if len(batch) == _PURGED_TOGETHER:
            await _purge_batch(opened, batch, told, dry=dry)
            batch = []
    await _purge_batch(opened, batch, told, dry=dry)


async def _purge_batch(
    opened: DelayQueue, batch: list[messages.DeadEntry], told: _Told, *, dry: bool
) -> None:
    if batch and not dry:
        await opened.dead_letters.purge(batch)
    for letter in batch:
        told.tell(letterrows.row_of(letter), "would be purged" if dry else "purged")


def _nothing(id_: str) -> listing.Row:
    names = ("givenUp", "namespace", "schedule", "uid", "scheduledTime", "reason")
    return {"id": id_, **dict.fromkeys(names, "")}


def _cells(row: listing.Row) -> listing.Cells:
    return {
        "id": row["id"],
        "schedule": listing.name(row),
        "scheduledTime": listing.text(row["scheduledTime"]),
        "reason": row["reason"],
        "result": row["result"],
        "why": row["why"],
    }
