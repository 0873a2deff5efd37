"""``duepoint dlq``: lists, replays and purges dead letters, which are slots that were given up.

``list`` shows them, newest first, and changes nothing. ``replay`` and ``purge`` take the ids of
letters, or filters. They require at least one of these or ``--all``, so that a forgotten option
does not replay or purge every letter. A replayed letter goes through the queue once more, with the
id that its event always had. Its attempts and its age count anew, and if it fails again it is a
dead letter again. If its Schedule is gone, or the letter does not name its slot, it stays and the
row says why.

The letters are read from Redis, or from the HTTP API by users without access to Redis. Both have
the same rows and the same words. The API shows only letters of Schedules in namespaces that the
user may see, and removes none.

Exit codes of both: 0 = every chosen letter was replayed or purged (or would be), or there was none;
1 = some could not be.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from duepoint import client, errors, settings
from duepoint.cli import apisession, instants, options, output
from duepoint.cli.queue import queue as queues
from duepoint.delayqueue import deadletters

if TYPE_CHECKING:
    from duepoint.delayqueue.delayqueue import DelayQueue

_MOST_LETTERS = 10_000
#: How many letters one request to the API may replay.
_PAGE = 100
#: Why a letter was not replayed, by the answer of the queue or of the API.
_WHY = {
    "waiting": "this slot waits in the queue already",
    "gone": "another command replayed or purged it just now",
    "absent": "the queue has no definition of this uid: the Schedule was deleted or is not armed",
    "forbidden": "you may not run its Schedule: ask for the verb run on it",
    "unreadable": "the letter names no Schedule and slot: its point could not be read",
    "missing": "there is no such dead letter",
}
#: The texts of a row, and the field of a letter in Redis that has each.
_FIELDS = {
    "namespace": "namespace", "schedule": "name", "uid": "uid", "kind": "kind",
    "trigger": "trigger", "runUid": "run_uid", "reason": "reason", "message": "message",
}  # fmt: skip
#: The fields that a letter in the API has under the same names.
_IN_VIEW = ("namespace", "schedule", "reason", "message", "attempts")


# -- Redis or the API ----------------------------------------------------------------------------


#: The row of a letter, and the letter as the queue or the API returned it; None if there is none.
Letter = tuple[output.Row, Any]


def _row(letter_id: str, entry: Mapping[str, str]) -> output.Row:
    """Return the row of a letter with these fields in Redis."""
    return {
        "id": letter_id,
        "givenUp": output.time(_given_up_us(letter_id)),
        **{name: entry.get(field, "") for name, field in _FIELDS.items()},
        "kind": entry.get("kind", "").lower(),
        "scheduledTime": output.time(deadletters.whole(entry.get("slot_us"))),
        "attempts": deadletters.whole(entry.get("attempts")),
        "httpStatus": deadletters.whole(entry.get("http_status")),
    }


def _given_up_us(letter_id: str) -> int:
    """Return when a letter was added, from its id."""
    return 1_000 * int(letter_id.rpartition(".")[2].partition("-")[0])


class QueueLetters:
    """The dead letters in Redis."""

    def __init__(self, queue: DelayQueue) -> None:
        self._log = queue.dead_letters

    async def all(self) -> AsyncIterator[Letter]:
        """Yield every letter, newest first."""
        async for letter in self._log.newest():
            yield _row(letter.id, letter.entry), letter

    async def replay(self, entries: Sequence[Any], *, dry: bool) -> dict[str, str]:
        """Run their slots again unless ``dry``; the answers by the letters' ids."""
        return {one.id: await self._log.replay(one, dry=dry) for one in entries}

    async def purge(self, entries: Sequence[Any], *, dry: bool) -> dict[str, str]:
        """Remove them unless ``dry``."""
        if entries and not dry:
            await self._log.purge(entries)
        return {}


class ApiLetters:
    """The dead letters of a namespace in the HTTP API."""

    def __init__(self, api: client.AsyncClient, namespace: str) -> None:
        self._api = api
        self._namespace = namespace

    async def all(self) -> AsyncIterator[Letter]:
        """Yield every letter, newest first."""
        page = None
        while page is None or page.next:
            page = await self._api.schedule_letters(self._namespace, page.next if page else "")
            for view in page.items:
                known = {name: getattr(view, name) for name in _IN_VIEW}
                yield {**_row(view.id, {}), **known, "scheduledTime": view.slot_time}, view

    async def replay(self, entries: Sequence[Any], *, dry: bool) -> dict[str, str]:
        """Run their slots again unless ``dry``; the answers by the letters' ids."""
        results: dict[str, str] = {}
        ids = [one.id for one in entries]
        for first in range(0, 0 if dry else len(ids), _PAGE):
            some = ids[first : first + _PAGE]
            results |= await self._api.replay_schedule_letters(self._namespace, some)
        return results

    async def purge(self, _: Sequence[Any], *, dry: bool) -> dict[str, str]:  # noqa: ARG002 - as of Redis
        """Refuse: letters cannot be removed through the API."""
        raise errors.InvalidSetting("--server", "letters are purged in Redis; write --redis-url")


Letters = QueueLetters | ApiLetters


def _of_letters(look: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Turn a coroutine ``look(letters, namespace=..., **options)`` into a command."""

    @options.together(
        options.only_schedule,
        click.option("--reason", metavar="REASON", help="Only with it, such as DeadlineExceeded."),
        options.output_format,
        apisession.of_api,
        queues.reaching,
    )  # fmt: skip
    @functools.wraps(look)
    def command(*, place: apisession.ApiPlace, **given: Any) -> None:  # noqa: ANN401 - click's values
        where = {name: given.pop(name) for name in queues.NAMES}
        has_redis = where["redis_url"] is not None or settings.variable("redis_url") in os.environ

        async def run() -> None:
            async with contextlib.AsyncExitStack() as stack:
                letters: Letters
                if place.server and not has_redis:
                    api, namespace = await stack.enter_async_context(apisession.connected(place))
                    letters = ApiLetters(api, namespace)
                else:
                    letters = QueueLetters(await stack.enter_async_context(queues.opened(where)))
                try:
                    await look(letters, namespace=place.namespace, **given)
                except client.NothingThere as missing:
                    message = f"{place.server} has no dead letters ({missing})"
                    message += ": is api.dashboard.enabled?"
                    raise errors.InvalidSetting("--server", message) from missing

        asyncio.run(run())

    return command


# -- list ----------------------------------------------------------------------------------------


@click.group("dlq", cls=options.CommandGroup)
def dlq() -> None:
    """List, replay or purge dead letters, which are slots that were given up.

    With Redis they are those of every namespace unless -n names one; --redis-url or the variables
    of a worker say where it is. Without Redis they come through the HTTP API, from the namespace of
    -n or of the kubeconfig's context; --server or DUEPOINT_API_URL says where it is, and the token
    is that of the context unless another one is given.
    """


@dlq.command("list")
@options.count(_MOST_LETTERS)
@_of_letters
async def list_letters(letters: Letters, *, count: int, form: str, **filters: Any) -> None:  # noqa: ANN401 - click's values
    """List dead letters, newest first.

    Example: duepoint dlq list -n team-a
    """
    rows: list[output.Row] = []
    async for row, _ in _chosen(letters, **filters):
        if len(rows) == count:
            output.complain(f"there are more than these {count:,}; --count shows more")
            break
        rows.append(row)
    _show(rows, form, "attempts", "reason", "message")


async def _chosen(
    letters: Letters,
    *,
    namespace: str | None,
    schedule: str | None,
    reason: str | None,
    older_than_us: int | None = None,
) -> AsyncIterator[Letter]:
    """Yield the letters that all the filters choose, newest first; a filter may be None."""
    before_us = instants.now_us() - (older_than_us or 0)
    async for row, entry in letters.all():
        if (
            namespace in (None, row["namespace"])
            and schedule in (None, row["schedule"], row["uid"])
            and reason in (None, row["reason"])
            and (not older_than_us or _given_up_us(row["id"]) <= before_us)
        ):
            yield row, entry


def _show(rows: list[output.Row], form: str, *columns: str) -> None:
    if not rows:
        output.complain(_WHY["missing"])
    first: output.Columns = {"id": "id", "schedule": output.name, "scheduledTime": "scheduledTime"}
    output.show_rows(rows, form, {**first, **{name: name for name in columns}})


# -- replay and purge ----------------------------------------------------------------------------


def _letter_id(text: str) -> str:
    if deadletters.LETTER_ID.fullmatch(text):
        return text
    example = "write an ID as list shows it, such as 1.17.1763771234567-4"
    raise ValueError(f"{errors.quoted(text)}: {example}")


_choosing = options.together(
    click.argument("letter_ids", metavar="[ID]...", nargs=-1, type=options.Converted(_letter_id)),
    click.option(
        "--older-than",
        "older_than_us",
        metavar="DURATION",
        type=options.DURATION_US,
        help="Only given up on longer ago than this, such as 36h or 7d.",
    ),
    click.option(
        "--all", "everything", is_flag=True, help="All of them, in place of IDs and filters."
    ),
    click.option("--dry-run", is_flag=True, help="Say what would be done; do nothing."),
    click.option("--yes", "-y", is_flag=True, help="Do not ask before those that are chosen."),
)


@dlq.command("replay")
@_choosing
@_of_letters
async def replay(letters: Letters, **choice: Any) -> None:  # noqa: ANN401 - click's values
    """Run the slots of dead letters again, each once and under the id that it had.

    Name them by ID, as list shows them, or choose them: a dead letter must match every filter, and
    -n alone is one.

    Example: duepoint dlq replay -n billing --reason Network
    """
    await _change(letters, letters.replay, "replayed", **choice)


@dlq.command("purge")
@_choosing
@_of_letters
async def purge(letters: Letters, **choice: Any) -> None:  # noqa: ANN401 - click's values
    """Remove dead letters for good: their slots cannot be replayed any more.

    Name them by ID, as list shows them, or choose them: a dead letter must match every filter, and
    -n alone is one.

    Example: duepoint dlq purge --older-than 30d --dry-run
    """
    await _change(letters, letters.purge, "purged", **choice)


async def _agreed(
    letters: Letters,
    verb: str,
    *,
    letter_ids: tuple[str, ...],
    everything: bool,
    yes: bool,
    dry_run: bool,
    **filters: Any,  # noqa: ANN401 - click's values
) -> list[Letter]:
    """Return the letters to change; asks first, unless the user named each by its id.

    Raises:
        errors.InvalidSetting: nothing was chosen, or in two ways.
        click.exceptions.Exit: the user does not agree.
    """
    is_filtered = any(value is not None for value in filters.values())
    if [bool(letter_ids), everything, is_filtered].count(True) != 1:
        message = "write IDs as list shows them, or choose by --schedule, --namespace, --reason"
        message += " and --older-than, or write --all: one of these"
        raise errors.InvalidSetting("ID", message)
    if letter_ids:
        there = {one[0]["id"]: one async for one in letters.all() if one[0]["id"] in letter_ids}
        return [there.get(each) or (_row(each, {}), None) for each in dict.fromkeys(letter_ids)]
    found = [letter async for letter in _chosen(letters, **filters)]
    many = "1 dead letter" if len(found) == 1 else f"{len(found):,} dead letters"
    if not found or yes or dry_run or options.confirmed(
        f"{'All ' if everything else ''}{many} will be {verb}. Go on?",
        option="--yes",
        without_terminal=f"{many} would be {verb}: write --yes where there is no terminal to"
        " ask on",
    ):  # fmt: skip
        return found
    output.say(f"nothing was {verb}")
    raise click.exceptions.Exit(0)


async def _change(
    letters: Letters, act: Callable[..., Awaitable[Mapping[str, str]]], verb: str, *,
    form: str, dry_run: bool, **choice: Any,  # noqa: ANN401 - click's values
) -> None:  # fmt: skip
    """Change the chosen letters, and show each, and why it was left if it was.

    Args:
        act: returns the answers by the letters' ids; none = it is done.

    Raises:
        click.exceptions.Exit: with code 1 if any was left.
    """
    found = await _agreed(letters, verb, dry_run=dry_run, **choice)
    answers = await act([entry for _, entry in found if entry is not None], dry=dry_run)
    would = "would be " if dry_run else ""
    rows: list[output.Row] = []
    for row, entry in found:
        answer = "missing" if entry is None else answers.get(row["id"], verb)
        why = "" if answer == verb else _WHY.get(answer, answer)
        rows.append({**row, "result": f"not {verb}" if why else f"{would}{verb}", "why": why})
    _show(rows, form, "reason", "result", "why")
    if left := sum(bool(row["why"]) for row in rows):
        output.complain(f"{len(rows) - left} {would}{verb}, {left} not; the rows say why")
        raise click.exceptions.Exit(output.FAILED)
