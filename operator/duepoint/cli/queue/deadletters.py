"""``duepoint dlq``: slots that were given up on, why, and how they run again or are removed.

``list`` looks at the ``dead`` streams, newest first, and changes nothing; ``replay`` and ``purge``
do. A letter is named by its shard and its entry there, as ``list`` shows it.

Letters to replay or purge are named by id, or chosen by their content. At least one choice has to
be made, ``--all`` being one, so that no letter is replayed or purged because an option was
forgotten. Filters look from the newest letter to the oldest; letters added meanwhile are not among
them. A replayed letter goes back through the queue once, with the id that its event always had; its
attempts and ages count anew, and what fails again is a dead letter again. Where its Schedule is
gone, or the letter does not name its slot, it stays and the row says why.

Exit codes of both: 0 every chosen letter was replayed or purged (or would be), or there was none; 1
some could not be.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from duepoint import clock as clocks
from duepoint import errors
from duepoint.cli import grouping, options, output
from duepoint.cli.queue import connection
from duepoint.delayqueue import sharding
from duepoint.expressions import durations
from duepoint.schedules import points

if TYPE_CHECKING:
    from duepoint.delayqueue import deadletters
    from duepoint.delayqueue.delayqueue import DelayQueue

_MOST_LETTERS = 10_000
#: Letters that are looked at for a namespace or a Schedule before the search is ended.
_LOOKED_AT = 200_000
_PURGED_TOGETHER = 500

_ABSENT = "there is no such dead letter"
#: Why a letter was left, by the queue's answer.
_WHY = {
    "waiting": "this slot waits in the queue already",
    "gone": "another command replayed or purged it just now",
    "absent": "the queue holds no definition of this uid: the Schedule was deleted or is not armed",
    "moving": "its Schedule is moving to another shard: ask again in a moment",
}


_LETTER_ID = re.compile(r"(\d{1,5})\.(\d{1,5})/(\d{1,20}-\d{1,20})", re.ASCII)


def _letter_id(text: str) -> tuple[int, int, str]:
    if parts := _LETTER_ID.fullmatch(text):
        return int(parts[1]), int(parts[2]), parts[3]
    example = "write SHARD/ENTRY as list shows it, such as 1.17/1763771234567-0"
    raise ValueError(f"{errors.quoted(text)}: {example}")


#: A letter's id: its layout, shard and entry.
LETTER_ID = options.Converted(_letter_id)


def row_of(letter: deadletters.DeadEntry) -> output.Row:
    """What a letter says, under the names of the JSON output."""
    entry = letter.entry
    layout, number = sharding.layout_of(letter.shard), sharding.index_of(letter.shard)
    point = points.parse_member(letter.member, 0) if letter.member else None
    slot_us = _number(entry.get("slot_us"))
    if slot_us is None and point is not None and point.kind is not points.PointKind.CHAIN:
        slot_us = point.slot_us
    kind = entry.get("kind", "" if point is None else point.kind.name)
    return {
        "id": f"{layout}.{number}/{letter.id}",
        "givenUp": output.time(1000 * int(letter.id.partition("-")[0])),
        "namespace": entry.get("namespace", ""),
        "schedule": entry.get("name", ""),
        "uid": entry.get("uid", ""),
        "scheduledTime": output.time(slot_us),
        "kind": kind.lower(),
        "trigger": entry.get("trigger", ""),
        "runUid": entry.get("run_uid", ""),
        "reason": entry.get("reason", ""),
        "message": entry.get("message", ""),
        "attempts": _number(entry.get("attempts")),
        "httpStatus": _number(entry.get("http_status")),
    }


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 20 else None


def is_of(row: output.Row, namespace: str | None, schedule: str | None) -> bool:
    """Whether a row is of this namespace and Schedule; None = any."""
    if namespace is not None and row["namespace"] != namespace:
        return False
    return schedule is None or schedule in (row["schedule"], row["uid"])


@click.group("dlq", cls=grouping.CommandGroup)
def dlq() -> None:
    """Look at the dead letters: slots that were given up on; run them again, or remove them."""


@dlq.command("list")
@options.count(_MOST_LETTERS)
@options.only_namespace
@click.option("--schedule", "-s", metavar="NAME|UID", type=options.NAME, help="Only this Schedule.")
@click.option("--reason", metavar="REASON", help="Only this reason, such as DeadlineExceeded.")
@options.output_format
@connection.looking
async def list_letters(
    opened: DelayQueue,
    *,
    count: int,
    namespace: str | None,
    schedule: str | None,
    reason: str | None,
    form: str,
) -> int:
    """List dead letters, newest first.

    Example: duepoint dlq list -n team-a
    """
    rows: list[output.Row] = []
    looked_at = 0
    async for letter in opened.dead_letters.all():
        row = row_of(letter)
        if is_of(row, namespace, schedule) and reason in (None, row["reason"]):
            if len(rows) == count:
                output.complain(f"there are more than these {count:,}; --count shows more")
                break
            rows.append(row)
        looked_at += 1
        if looked_at == _LOOKED_AT:
            output.complain(f"only the newest {_LOOKED_AT} letters were looked at")
            break
    if not rows:
        output.complain(_no_letter(reason))
    for of, went in (await opened.dead_letters.dropped()).items():
        if namespace in (None, of):
            output.complain(
                f"{went} older letters of namespace {of} are gone: it had more than it may keep"
            )
    return output.show_rows(
        rows, form, _COLUMNS, spare=("attempts", "scheduledTime", "id"), may_cut="message"
    )


def _no_letter(reason: str | None) -> str:
    """That nothing was found; a reason that this version does not know may be misspelt."""
    from duepoint.schedules import conditions  # noqa: PLC0415 - only these commands pay for it

    message = "there is no such dead letter"
    known = [each.value for each in conditions.Reason]
    if reason is None or reason in known:
        return message
    near = grouping.nearest(reason, known)
    meant = f'; did you mean "{near}"?' if near else "; dlq list shows the reasons"
    return f"{message}, and this version has no reason {errors.quoted(reason)}{meant}"


_COLUMNS: output.Columns = {
    "id": "id",
    "schedule": output.name,
    "scheduledTime": "scheduledTime",
    "attempts": "attempts",
    "reason": "reason",
    "message": "message",
}


# -- replay and purge ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterSelection:
    """Which letters were asked for.

    Attributes:
        letter_ids: layout, shard and entry of letters that were named.
        older_than_us: only letters of slots given up on longer ago.
    """

    letter_ids: tuple[tuple[int, int, str], ...]
    namespace: str | None
    schedule: str | None
    reason: str | None
    older_than_us: int | None
    everything: bool

    def __post_init__(self) -> None:
        """Raise errors.InvalidSetting where nothing was chosen, or too much was."""
        filters = (self.namespace, self.schedule, self.reason, self.older_than_us)
        is_filtered = any(value is not None for value in filters)
        if self.letter_ids and (self.everything or is_filtered):
            message = "an ID names its letter: leave the other choices out"
            raise errors.InvalidSetting("ID", message)
        if self.everything and is_filtered:
            raise errors.InvalidSetting("--all", "means every letter: leave the other choices out")
        if not self.letter_ids and not self.everything and not is_filtered:
            raise errors.InvalidSetting(
                "ID", "is missing: write IDs as list shows them, or choose by --schedule,"
                " --namespace, --reason or --older-than, or write --all",
            )  # fmt: skip

    async def letters(
        self, opened: DelayQueue, now_us: int
    ) -> AsyncIterator[tuple[output.Row, deadletters.DeadEntry | None]]:
        """The chosen letters with their rows; None for an id that is no letter's (any more)."""
        for layout, shard, entry in dict.fromkeys(self.letter_ids):
            letter = await opened.dead_letters.find(layout, shard, entry)
            if letter is not None:
                yield row_of(letter), letter
                continue
            names = ("givenUp", "namespace", "schedule", "uid", "scheduledTime", "reason")
            yield {"id": f"{layout}.{shard}/{entry}", **dict.fromkeys(names, "")}, None
        if self.letter_ids:
            return
        async for letter in opened.dead_letters.all():
            row = row_of(letter)
            given_up_us = 1000 * int(letter.id.partition("-")[0])
            if (
                is_of(row, self.namespace, self.schedule)
                and self.reason in (None, row["reason"])
                and (not self.older_than_us or given_up_us <= now_us - self.older_than_us)
            ):
                yield row, letter


def _age_us(text: str) -> int:
    """A duration as it is written everywhere, and whole days besides."""
    days = re.fullmatch(r"(\d{1,5})d", text, re.ASCII)
    if days:
        return int(days[1]) * 86_400_000_000
    try:
        return durations.parse_duration_us(text)
    except ValueError:
        message = f"{errors.quoted(text)}: write a duration such as 90m, 36h or 7d"
        raise ValueError(message) from None


_choosing = options.together(
    options.gathered(
        "selection",
        DeadLetterSelection,
        click.argument("letter_ids", metavar="[ID]...", nargs=-1, type=LETTER_ID),
        options.only_namespace,
        click.option(
            "--schedule", "-s", metavar="NAME|UID", type=options.NAME, help="Only of this Schedule."
        ),
        click.option("--reason", metavar="REASON", help="Only with this reason."),
        click.option(
            "--older-than",
            "older_than_us",
            metavar="DURATION",
            type=options.Converted(_age_us),
            help="Only given up on longer ago than this, such as 36h or 7d.",
        ),
        click.option("--all", "everything", is_flag=True, help="All that there are."),
    ),
    click.option("--dry-run", is_flag=True, help="Say what would be done; do nothing."),
    click.option("--yes", "-y", is_flag=True, help="Do not ask before those that are chosen."),
    options.output_format,
)


_RESULT_COLUMNS: output.Columns = {
    "id": "id",
    "schedule": output.name,
    "scheduledTime": "scheduledTime",
    "reason": "reason",
    "result": "result",
    "why": "why",
}


def _show_results(
    rows: list[tuple[output.Row, str]], verb: str, reason: str | None, *, form: str, dry: bool
) -> int:
    """Show each letter with why it was left, if it was; end the command with 1 where any was.

    Args:
        rows: each letter's, and why it was left.
    """
    would = "would be " if dry else ""
    shown = [
        {**row, "result": f"not {verb}" if why else f"{would}{verb}", "why": why}
        for row, why in rows
    ]
    output.show_rows(shown, form, _RESULT_COLUMNS, spare=("scheduledTime", "id"), may_cut="why")
    left = sum(bool(why) for _, why in rows)
    if not rows:
        output.complain(_no_letter(reason))
    if left:
        output.complain(f"{len(rows) - left} {would}{verb}, {left} not; the rows say why")
        raise click.exceptions.Exit(output.FAILED)
    return len(rows)


@dlq.command("replay")
@_choosing
@connection.looking
async def replay(
    opened: DelayQueue, *, selection: DeadLetterSelection, dry_run: bool, yes: bool, form: str
) -> int:
    """Run the slots of dead letters again, each once and under the id that it had.

    Name them by ID, as list shows them, or choose them; filters together mean all of them at once.

    Example: duepoint dlq replay -n billing --reason Timeout
    """
    now_us = clocks.SystemClock().now_us()
    if not (dry_run or yes or await _is_agreed(opened, selection, "replayed", now_us)):
        return 0
    rows = [
        (row, await _trouble_replaying(opened, letter, now_us, dry=dry_run))
        async for row, letter in selection.letters(opened, now_us)
    ]
    return _show_results(rows, "replayed", selection.reason, form=form, dry=dry_run)


@dlq.command("purge")
@_choosing
@connection.looking
async def purge(
    opened: DelayQueue, *, selection: DeadLetterSelection, dry_run: bool, yes: bool, form: str
) -> int:
    """Remove dead letters for good: their slots can not be replayed any more.

    Name them by ID, as list shows them, or choose them; filters together mean all of them at once.

    Example: duepoint dlq purge --older-than 30d --dry-run
    """
    now_us = clocks.SystemClock().now_us()
    if not (dry_run or yes or await _is_agreed(opened, selection, "purged", now_us)):
        return 0
    found = [pair async for pair in selection.letters(opened, now_us)]
    letters = [letter for _, letter in found if letter is not None]
    for first in range(0, 0 if dry_run else len(letters), _PURGED_TOGETHER):
        await opened.dead_letters.purge(letters[first : first + _PURGED_TOGETHER])
    rows = [(row, "" if letter else _ABSENT) for row, letter in found]
    return _show_results(rows, "purged", selection.reason, form=form, dry=dry_run)


async def _is_agreed(
    opened: DelayQueue, selection: DeadLetterSelection, verb: str, now_us: int
) -> bool:
    """Whether it may go on; asks before letters are changed that were not named one by one."""
    if selection.letter_ids:
        return True
    if selection.everything:
        count = await opened.dead_letters.count()
    else:
        count = len([row async for row, _ in selection.letters(opened, now_us)])
    if not count:
        return True
    letters = "1 dead letter" if count == 1 else f"{count:,} dead letters"
    agreed = options.confirmed(
        f"{'All ' if selection.everything else ''}{letters} will be {verb}. Go on?",
        option="--yes",
        without_terminal=f"{letters} would be {verb}: write --yes where there is no terminal to"
        " ask on",
    )
    if not agreed:
        output.say(f"nothing was {verb}")
    return agreed


async def _trouble_replaying(
    opened: DelayQueue, letter: deadletters.DeadEntry | None, now_us: int, *, dry: bool
) -> str:
    """Replay a letter unless ``dry``: why it was not, or would not be; empty where it was."""
    from duepoint.delayqueue import deadletters  # noqa: PLC0415 - only these commands pay for it

    if letter is None:
        return _ABSENT
    slot = deadletters.slot_of(letter)
    if slot is None:
        return "the letter names no Schedule and slot: its point could not be read"
    known = await opened.upcoming.schedule_view(slot.namespace, uid=slot.uid)
    if known is None:
        return _WHY["absent"]
    if dry:
        return ""
    answer = await opened.dead_letters.replay(letter, slot, (known.shard, known.known), now_us)
    return "" if answer is deadletters.Replayed.APPLIED else _WHY[answer.value]
