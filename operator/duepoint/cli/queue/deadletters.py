"""``duepoint dlq``: slots that were given up on, why, and what is needed to run them again.

``list`` and ``show`` look at the ``dead`` streams, newest first, and change nothing; ``replay`` and
``purge`` (``deadletterchanges``) do. A letter is named by its shard and its entry there, as
``list`` shows it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from duepoint.cli import options, output
from duepoint.cli.queue import connection, deadletterchanges, views

if TYPE_CHECKING:
    from duepoint.delayqueue import deadletters
    from duepoint.delayqueue.delayqueue import DelayQueue

_MOST_LETTERS = 10_000
#: Letters that are looked at for a namespace or a Schedule before the search is ended.
_LOOKED_AT = 200_000


@click.group("dlq")
def dlq() -> None:
    """Look at the dead letters: slots that were given up on; run them again, or remove them."""


dlq.add_command(deadletterchanges.replay)
dlq.add_command(deadletterchanges.purge)


@dlq.command("list")
@options.count(_MOST_LETTERS)
@options.only_namespace
@click.option("--schedule", "-s", metavar="NAME|UID", type=options.NAME, help="Only this Schedule.")
@click.option("--reason", metavar="REASON", help="Only this reason, such as DeadlineExceeded.")
@options.output_format
@connection.looking()
async def list_letters(
    opened: DelayQueue,
    *,
    count: int,
    namespace: str | None,
    schedule: str | None,
    reason: str | None,
    form: str,
) -> int:
    """List dead letters, newest first."""
    rows: list[output.Row] = []
    looked_at = 0
    async for letter in opened.dead_letters.all():
        row = views.row_of(letter)
        if views.is_of(row, namespace, schedule) and reason in (None, row["reason"]):
            rows.append(row)
        looked_at += 1
        if len(rows) == count:
            break
        if looked_at == _LOOKED_AT:
            output.complain(f"only the newest {_LOOKED_AT} letters were looked at")
            break
    if not rows:
        output.complain("there is no such dead letter")
    for of, went in (await opened.dead_letters.dropped()).items():
        if namespace in (None, of):
            output.complain(
                f"{went} older letters of namespace {of} are gone: it had more than it may keep"
            )
    return output.show_rows(
        rows, form, _COLUMNS, spare=("attempts", "scheduledTime", "id"), may_cut="message"
    )


@dlq.command("show")
@click.argument("letter_id", metavar="ID", type=views.LETTER_ID)
@options.output_format
@connection.looking()
async def show_letter(opened: DelayQueue, *, letter_id: tuple[int, int, str], form: str) -> int:
    """Show one dead letter, by the ID that list shows, with what is needed to replay it."""
    letter = await opened.dead_letters.find(*letter_id)
    if letter is None:
        layout, shard, entry = letter_id
        output.complain(f"there is no dead letter {layout}.{shard}/{entry}")
        return 0
    row = views.row_of(letter)
    row |= {"fields": letter.entry, "member": letter.member.hex()}
    row["replay"] = await _replayability(opened, letter, row)
    return output.show_row(row, form, _all_cells(row))


_COLUMNS: output.Columns = {
    "id": "id",
    "schedule": output.name,
    "scheduledTime": "scheduledTime",
    "attempts": "attempts",
    "reason": "reason",
    "message": "message",
}


def _all_cells(row: output.Row) -> output.Cells:
    replay = row["replay"]
    cells = {
        "id": row["id"],
        "schedule": output.name(row),
        "uid": row["uid"],
        "scheduled time": output.text(row["scheduledTime"]),
        "given up": row["givenUp"],
        "kind": row["kind"],
        "trigger": row["trigger"],
        "run": row["runUid"],
        "attempts": output.text(row["attempts"]),
        "reason": row["reason"],
        "message": row["message"],
        "HTTP status": output.text(row["httpStatus"]),
        "in the queue": replay["definition"],
        "replayable": "yes" if replay["possible"] else f"no: {replay['why']}",
    }
    return {name: cell for name, cell in cells.items() if cell}


async def _replayability(
    opened: DelayQueue, letter: deadletters.DeadEntry, row: output.Row
) -> output.Row:
    """What running the slot again needs, and whether it is there."""
    needed = {name: row[name] for name in ("namespace", "schedule", "uid", "scheduledTime")}
    known = None
    if row["namespace"] and row["uid"]:
        known = await opened.upcoming.schedule_view(row["namespace"], uid=row["uid"])
    why = deadletterchanges.why_not(letter, known)
    return {
        **needed,
        "definition": "absent" if known is None else known.known.state.name.lower(),
        "possible": not why,
        "why": why,
    }
