"""``duepoint dlq replay`` and ``purge``: dead letters run again, or are removed.

Letters are named by id, or chosen by what they say. At least one choice has to be made, ``--all``
being one, so that no letter is replayed or purged because an option was forgotten. Filters look
from the newest letter to the oldest; what is buried meanwhile is not among them.

A replayed letter goes back through the queue once, with the id that its event always had; its
attempts and ages count anew, and what fails again is a dead letter again. Where its Schedule is
gone, or the letter does not say which slot it is of, it stays and the row says why.

Exit codes: 0 every chosen letter was replayed or purged (or would be), 1 there was none, or some
could not be.
"""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from duepoint import clock as clocks
from duepoint import errors
from duepoint.cli import options, output
from duepoint.cli.queue import connection, views
from duepoint.expressions import durations

if TYPE_CHECKING:
    from duepoint.delayqueue import deadletters
    from duepoint.delayqueue.delayqueue import DelayQueue
    from duepoint.delayqueue.inspection import upcoming


_ID = re.compile(r"(\d{1,5})\.(\d{1,5})/(\d{1,20}-\d{1,20})", re.ASCII)

Row = Callable[["deadletters.DeadEntry"], output.Row]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What was asked for.

    Attributes:
        ids: layout, shard and entry of letters that were named.
        older_than_us: only letters of slots given up on longer ago.
    """

    ids: tuple[tuple[int, int, str], ...]
    namespace: str | None
    schedule: str | None
    reason: str | None
    older_than_us: int
    everything: bool

    def has(self, letter: deadletters.DeadEntry, row: output.Row, now_us: int) -> bool:
        """Whether a letter is among them."""
        given_up_us = 1000 * int(letter.id.partition("-")[0])
        return (
            views.is_of(row, self.namespace, self.schedule)
            and self.reason in (None, row["reason"])
            and (not self.older_than_us or given_up_us <= now_us - self.older_than_us)
        )


def choosing(command: Callable[..., Any]) -> Callable[..., Any]:
    """The arguments and options that say which letters, for ``choice``."""
    for option in reversed(
        (
            click.argument("letter_ids", metavar="[ID]...", nargs=-1),
            options.only_namespace,
            click.option("--schedule", "-s", metavar="NAME|UID", help="Only of this Schedule."),
            click.option("--reason", metavar="REASON", help="Only with this reason."),
            click.option(
                "--older-than",
                metavar="DURATION",
                help="Only given up on longer ago than this, such as 36h or 7d.",
            ),
            click.option("--all", "everything", is_flag=True, help="All that there are."),
        )
    ):
        command = option(command)
    return command


def choice(given: dict[str, Any]) -> Choice:
    """What the options ask for; they are taken out of ``given``.

    Raises:
        errors.InvalidSetting: nothing was chosen, too much was, or a value is none.
    """
    letter_ids, everything = given.pop("letter_ids"), given.pop("everything")
    namespace, schedule = given.pop("namespace"), given.pop("schedule")
    reason, older_than = given.pop("reason"), given.pop("older_than")
    options.check_name("--namespace", namespace)
    options.check_name("--schedule", schedule)
    filters = (namespace, schedule, reason, older_than)
    if letter_ids and (everything or any(one is not None for one in filters)):
        raise errors.InvalidSetting("ID", "names letters by itself: leave the other choices out")
    if everything and any(one is not None for one in filters):
        raise errors.InvalidSetting("--all", "means every letter: leave the other choices out")
    if not letter_ids and not everything and all(one is None for one in filters):
        raise errors.InvalidSetting(
            "ID", "is missing: write IDs as list shows them, or choose by --schedule,"
            " --namespace, --reason or --older-than, or write --all",
        )  # fmt: skip
    return Choice(
        ids=tuple(parsed_id(text) for text in dict.fromkeys(letter_ids)),
        namespace=namespace,
        schedule=schedule,
        reason=reason,
        older_than_us=_age_us(older_than),
        everything=everything,
    )


def parsed_id(text: str) -> tuple[int, int, str]:
    """Layout, shard and entry of a letter's id.

    Raises:
        errors.InvalidSetting: it is none.
    """
    parts = _ID.fullmatch(text)
    if parts is None:
        raise errors.InvalidSetting(
            "ID", f"{errors.quoted(text)}: write SHARD/ENTRY as list shows it, such as"
            " 1.17/1763771234567-0",
        )  # fmt: skip
    return int(parts[1]), int(parts[2]), parts[3]


async def chosen(
    opened: DelayQueue, asked: Choice, row_of: Row, now_us: int
) -> AsyncIterator[tuple[str, deadletters.DeadEntry | None]]:
    """The chosen letters with their ids; None for an id that is no letter's (any more)."""
    if asked.ids:
        for layout, shard, entry in asked.ids:
            letter = await opened.dead_letters.find(layout, shard, entry)
            yield f"{layout}.{shard}/{entry}", letter
        return
    async for letter in opened.dead_letters.all():
        row = row_of(letter)
        if asked.has(letter, row, now_us):
            yield row["id"], letter


def _age_us(text: str | None) -> int:
    """A duration as it is written everywhere, and whole days besides."""
    if text is None:
        return 0
    days = re.fullmatch(r"(\d{1,5})d", text, re.ASCII)
    if days:
        return int(days[1]) * 86_400_000_000
    try:
        return durations.parse_duration_us(text)
    except (errors.DuepointError, ValueError) as trouble:
        raise errors.InvalidSetting(
            "--older-than", f"{errors.quoted(text)}: write a duration such as 90m, 36h or 7d"
        ) from trouble


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
    _rows: list[output.Row] = field(default_factory=list)

    def tell(self, row: output.Row, result: str, why: str = "") -> None:
        self.done, self.left = self.done + (not why), self.left + bool(why)
        self._rows.append({**row, "result": result, "why": why})
        if self.shape == "json":
            self.flush()

    def flush(self) -> None:
        if self._rows:
            output.show_rows(
                self._rows, self.shape, _cells, spare=("scheduledTime", "id"), may_cut="why"
            )
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
@choosing
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
    asked = choice(given)
    _change(given, asked, form, _replay, "replayed", dry=dry_run, sure=yes)


@click.command("purge")
@choosing
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
    asked = choice(given)
    _change(given, asked, form, _purge, "purged", dry=dry_run, sure=yes)


def why_not(letter: deadletters.DeadEntry, known: upcoming.ScheduleView | None) -> str:
    """Why a letter cannot be replayed; empty where it can."""
    from duepoint.delayqueue import deadletters  # noqa: PLC0415 - only these commands pay for it

    if deadletters.slot_of(letter) is None:
        return "the letter names no Schedule and slot: its point could not be read"
    return _WHY["absent"] if known is None else ""


def _change(
    given: dict[str, str | None],
    asked: Choice,
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


async def _replay(opened: DelayQueue, asked: Choice, told: _Told, *, dry: bool) -> None:
    now_us = clocks.SystemClock().now_us()
    async for id_, letter in chosen(opened, asked, views.row_of, now_us):
        if letter is None:
            told.tell(_nothing(id_), "not replayed", "there is no such dead letter")
            continue
        result, why = await _replay_one(opened, letter, now_us, dry=dry)
        told.tell(views.row_of(letter), result, why)


async def _replay_one(
    opened: DelayQueue, letter: deadletters.DeadEntry, now_us: int, *, dry: bool
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


async def _purge(opened: DelayQueue, asked: Choice, told: _Told, *, dry: bool) -> None:
    now_us = clocks.SystemClock().now_us()
    batch: list[deadletters.DeadEntry] = []
    async for id_, letter in chosen(opened, asked, views.row_of, now_us):
        if letter is None:
            told.tell(_nothing(id_), "not purged", "there is no such dead letter")
            continue
        batch.append(letter)
        if len(batch) == _PURGED_TOGETHER:
            await _purge_batch(opened, batch, told, dry=dry)
            batch = []
    await _purge_batch(opened, batch, told, dry=dry)


async def _purge_batch(
    opened: DelayQueue, batch: list[deadletters.DeadEntry], told: _Told, *, dry: bool
) -> None:
    if batch and not dry:
        await opened.dead_letters.purge(batch)
    for letter in batch:
        told.tell(views.row_of(letter), "would be purged" if dry else "purged")


def _nothing(id_: str) -> output.Row:
    names = ("givenUp", "namespace", "schedule", "uid", "scheduledTime", "reason")
    return {"id": id_, **dict.fromkeys(names, "")}


def _cells(row: output.Row) -> output.Cells:
    return {
        "id": row["id"],
        "schedule": output.name(row),
        "scheduledTime": output.text(row["scheduledTime"]),
        "reason": row["reason"],
        "result": row["result"],
        "why": row["why"],
    }
