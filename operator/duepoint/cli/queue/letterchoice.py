"""Which dead letters a command is about: by id, or by what they say.

At least one choice has to be made, ``--all`` being one, so that no letter is replayed or purged
because an option was forgotten. Filters look from the newest letter to the oldest; what is buried
meanwhile is not among them.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from duepoint import errors
from duepoint.cli.queue import connection, listing, sightings
from duepoint.expressions import durations

if TYPE_CHECKING:
    from duepoint.delayqueue import messages
    from duepoint.delayqueue.delayqueue import DelayQueue

_ID = re.compile(r"(\d{1,5})\.(\d{1,5})/(\d{1,20}-\d{1,20})", re.ASCII)

Row = Callable[["messages.DeadEntry"], listing.Row]


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

    def has(self, letter: messages.DeadEntry, row: listing.Row, now_us: int) -> bool:
        """Whether a letter is among them."""
        given_up_us = 1000 * int(letter.id.partition("-")[0])
        return (
            sightings.is_of(row, self.namespace, self.schedule)
            and self.reason in (None, row["reason"])
            and (not self.older_than_us or given_up_us <= now_us - self.older_than_us)
        )


def choosing(command: Callable[..., Any]) -> Callable[..., Any]:
    """The arguments and options that say which letters, for ``choice``."""
    for option in reversed(
        (
            click.argument("letter_ids", metavar="[ID]...", nargs=-1),
            connection.namespace,
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
    connection.check_name("--namespace", namespace)
    connection.check_name("--schedule", schedule)
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
) -> AsyncIterator[tuple[str, messages.DeadEntry | None]]:
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
