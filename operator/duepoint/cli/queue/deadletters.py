"""``duepoint dlq``: lists, replays and purges dead letters, which are slots that were given up.

``list`` shows them, newest first, and changes nothing. ``replay`` and ``purge`` take the ids of
letters, or filters. They require at least one of these or ``--all``, so that a forgotten option
does not replay or purge every letter. A replayed letter goes through the queue once more, with the
id that its event always had. Its attempts and its age count anew, and if it fails again it is a
dead letter again. If its Schedule is gone, or the letter does not name its slot, it stays and the
row says why.

Exit codes of both: 0 = every chosen letter was replayed or purged (or would be), or there was none;
1 = some could not be.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

import click
from click.core import ParameterSource

from duepoint import client, errors, settings
from duepoint import clock as clocks
from duepoint.cli import apisession, grouping, options, output
from duepoint.cli.queue import connection
from duepoint.cli.queue.letters import WHY, ApiLetters, Letter, Letters, QueueLetters, given_up_us
from duepoint.expressions import durations

_MOST_LETTERS = 10_000
#: How many letters to read for a namespace or a Schedule before the search ends.
_LOOKED_AT = 200_000
_LETTER_ID = re.compile(r"\d{1,6}\.\d{1,6}\.\d{1,20}-\d{1,20}", re.ASCII)


def _letter_id(text: str) -> str:
    if _LETTER_ID.fullmatch(text):
        return text
    example = "write an ID as list shows it, such as 1.17.1763771234567-4"
    raise ValueError(f"{errors.quoted(text)}: {example}")


def _age_us(text: str) -> int:
    """Read a duration, which may also be in whole days; raises ValueError."""
    if days := re.fullmatch(r"(\d{1,5})d", text, re.ASCII):
        return int(days[1]) * 86_400_000_000
    try:
        return durations.parse_duration_us(text)
    except ValueError:
        message = f"{errors.quoted(text)}: write a duration such as 90m, 36h or 7d"
        raise ValueError(message) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which letters the user has chosen.

    Attributes:
        letter_ids: ids of letters on the command line.
        older_than_us: choose only letters that were given up longer ago than this.
    """

    letter_ids: tuple[str, ...] = ()
    namespace: str | None = None
    schedule: str | None = None
    reason: str | None = None
    older_than_us: int | None = None
    everything: bool = False

    def check(self) -> None:
        """Raise errors.InvalidSetting if nothing was chosen, or too much was."""
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

    def has(self, row: output.Row, now_us: int) -> bool:
        """Whether a letter is one of the chosen."""
        return (
            self.namespace in (None, row["namespace"])
            and self.schedule in (None, row["schedule"], row["uid"])
            and self.reason in (None, row["reason"])
            and (not self.older_than_us or given_up_us(row["id"]) <= now_us - self.older_than_us)
        )


# -- Redis or the API ----------------------------------------------------------------------------

Look = Callable[..., Coroutine[Any, Any, int]]


def _of_letters(look: Look) -> Callable[..., None]:
    """Turn a coroutine ``look(letters, choice=..., **options)`` into a command."""

    @options.together(
        click.option("--schedule", "-s", metavar="NAME|UID", type=options.NAME,
            help="Only of this Schedule."),
        click.option("--reason", metavar="REASON", help="Only with it, such as DeadlineExceeded."),
        options.output_format,
        apisession.of_api,
        connection.reaching,
    )  # fmt: skip
    @functools.wraps(look)
    def command(*, place: apisession.ApiPlace, **given: Any) -> None:  # noqa: ANN401 - click's values
        where = {name: given.pop(name) for name in connection.NAMES}
        chosen = {name: given.pop(name) for name in _CHOICES if name in given}
        choice = Choice(namespace=place.namespace, **chosen)

        async def run() -> None:
            async with options.limited(place.patience_seconds):
                if _is_api_meant(place, where["redis_url"]):
                    async with _of_api(place) as letters:
                        await look(letters, choice=choice, **given)
                else:
                    async with connection.opened(where) as queue:
                        await look(QueueLetters(queue), choice=choice, **given)

        asyncio.run(run())

    return command


_CHOICES = ("letter_ids", "schedule", "reason", "older_than_us", "everything")


def _is_api_meant(place: apisession.ApiPlace, redis_url: str | None) -> bool:
    """Whether to use the API: flags override the environment, and there Redis overrides the API."""
    source = click.get_current_context().get_parameter_source("server")
    if source is ParameterSource.COMMANDLINE:
        return True
    has_redis = redis_url is not None or settings.variable("redis_url") in os.environ
    return bool(place.server) and not has_redis


@contextlib.asynccontextmanager
async def _of_api(place: apisession.ApiPlace) -> AsyncIterator[ApiLetters]:
    """Open the letters of the chosen namespace through the API."""
    async with apisession.connected(place) as (api, namespace):
        try:
            yield ApiLetters(api, namespace)
        except client.NothingThere as missing:
            message = f"{place.server} has no dead letters ({missing}): is api.dashboard.enabled?"
            raise errors.InvalidSetting("--server", message) from missing


# -- list ----------------------------------------------------------------------------------------


@click.group("dlq", cls=grouping.CommandGroup)
def dlq() -> None:
    """Look at the dead letters: slots that were given up on; run them again, or remove them.

    In Redis, by the settings of a worker, or through the HTTP API by --server or DUEPOINT_API_URL:
    then of one namespace, that of -n or of the kubeconfig's context.
    """


@dlq.command("list")
@options.count(_MOST_LETTERS)
@_of_letters
async def list_letters(letters: Letters, *, choice: Choice, count: int, form: str) -> int:
    """List dead letters, newest first.

    Example: duepoint dlq list -n team-a
    """
    rows: list[output.Row] = []
    looked_at, now_us = 0, clocks.SystemClock().now_us()
    async for letter in letters.all():
        if choice.has(letter.row, now_us):
            if len(rows) == count:
                output.complain(f"there are more than these {count:,}; --count shows more")
                break
            rows.append(letter.row)
        looked_at += 1
        if looked_at == _LOOKED_AT:
            output.complain(f"only the newest {_LOOKED_AT} letters were looked at")
            break
    if not rows:
        output.complain(_no_letter(choice.reason))
    return output.show_rows(rows, form, _COLUMNS)


def _no_letter(reason: str | None) -> str:
    """Return the message that nothing was found; an unknown reason may be misspelt."""
    from duepoint.schedules import conditions  # noqa: PLC0415 - only these commands pay for it

    message = WHY["missing"]
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


_choosing = options.together(
    click.argument("letter_ids", metavar="[ID]...", nargs=-1, type=options.Converted(_letter_id)),
    click.option(
        "--older-than",
        "older_than_us",
        metavar="DURATION",
        type=options.Converted(_age_us),
        help="Only given up on longer ago than this, such as 36h or 7d.",
    ),
    click.option("--all", "everything", is_flag=True, help="All that there are."),
    click.option("--dry-run", is_flag=True, help="Say what would be done; do nothing."),
    click.option("--yes", "-y", is_flag=True, help="Do not ask before those that are chosen."),
)


@dlq.command("replay")
@_choosing
@_of_letters
async def replay(letters: Letters, *, choice: Choice, dry_run: bool, yes: bool, form: str) -> int:
    """Run the slots of dead letters again, each once and under the id that it had.

    Name them by ID, as list shows them, or choose them; filters together mean all of them at once.

    Example: duepoint dlq replay -n billing --reason Network
    """
    found = await _agreed(letters, choice, "replayed", is_asked=not (dry_run or yes))
    there = [letter for letter in found if letter.entry is not None]
    answers = await letters.replay(there, dry=dry_run)
    return _show_results(found, answers, "replayed", choice.reason, form=form, dry=dry_run)


@dlq.command("purge")
@_choosing
@_of_letters
async def purge(letters: Letters, *, choice: Choice, dry_run: bool, yes: bool, form: str) -> int:
    """Remove dead letters for good: their slots can not be replayed any more.

    Name them by ID, as list shows them, or choose them; filters together mean all of them at once.

    Example: duepoint dlq purge --older-than 30d --dry-run
    """
    found = await _agreed(letters, choice, "purged", is_asked=not (dry_run or yes))
    if found and not dry_run:
        await letters.purge([letter for letter in found if letter.entry is not None])
    return _show_results(found, {}, "purged", choice.reason, form=form, dry=dry_run)


async def _agreed(letters: Letters, choice: Choice, verb: str, *, is_asked: bool) -> list[Letter]:
    """Return the letters to change; asks first, unless the user named each by its id.

    Raises:
        click.exceptions.Exit: the user does not agree.
    """
    choice.check()
    if choice.letter_ids:
        return [letter async for letter in letters.named(tuple(dict.fromkeys(choice.letter_ids)))]
    now_us = clocks.SystemClock().now_us()
    found = [letter async for letter in letters.all() if choice.has(letter.row, now_us)]
    if not (is_asked and found):
        return found
    many = "1 dead letter" if len(found) == 1 else f"{len(found):,} dead letters"
    if options.confirmed(
        f"{'All ' if choice.everything else ''}{many} will be {verb}. Go on?",
        option="--yes",
        without_terminal=f"{many} would be {verb}: write --yes where there is no terminal to"
        " ask on",
    ):
        return found
    output.say(f"nothing was {verb}")
    raise click.exceptions.Exit(0)


def _show_results(
    found: list[Letter],
    answers: Mapping[str, str],
    verb: str,
    reason: str | None,
    *,
    form: str,
    dry: bool,
) -> int:
    """Show each letter, and why it was left if it was; return exit code 1 if any was.

    Args:
        answers: answers of the queue or the API, by the letters' ids; none = it is done.
    """
    would = "would be " if dry else ""
    rows: list[output.Row] = []
    for letter in found:
        answer = answers.get(letter.row["id"], verb) if letter.entry is not None else "missing"
        why = "" if answer == verb else WHY.get(answer, answer)
        result = f"not {verb}" if why else f"{would}{verb}"
        rows.append({**letter.row, "result": result, "why": why})
    output.show_rows(rows, form, _RESULT_COLUMNS)
    left = sum(bool(row["why"]) for row in rows)
    if not rows:
        output.complain(_no_letter(reason))
    if left:
        output.complain(f"{len(rows) - left} {would}{verb}, {left} not; the rows say why")
        raise click.exceptions.Exit(output.FAILED)
    return len(rows)


_RESULT_COLUMNS: output.Columns = {
    "id": "id",
    "schedule": output.name,
    "scheduledTime": "scheduledTime",
    "reason": "reason",
    "result": "result",
    "why": "why",
}
