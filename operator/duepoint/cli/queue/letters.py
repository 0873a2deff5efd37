"""The two sources of dead letters: Redis, or the HTTP API for users without access to Redis.

Both have the same rows and the same words for the result of a letter. The API shows only letters of
Schedules in namespaces that the user may see, and removes none.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from duepoint import client, errors
from duepoint.cli import output
from duepoint.client import calls
from duepoint.schedules import points

if TYPE_CHECKING:
    from duepoint.delayqueue import deadletters
    from duepoint.delayqueue.delayqueue import DelayQueue

#: Why a letter was not replayed, by the answer of the queue or of the API.
WHY = {
    "waiting": "this slot waits in the queue already",
    "gone": "another command replayed or purged it just now",
    "absent": "the queue holds no definition of this uid: the Schedule was deleted or is not armed",
    "forbidden": "you may not run its Schedule: ask for the verb run on it",
    "unreadable": "the letter names no Schedule and slot: its point could not be read",
    "missing": "there is no such dead letter",
}
_PAGE = 100


@dataclass(frozen=True, slots=True)
class Letter:
    """A letter that was found, or an id without a letter.

    Attributes:
        entry: the letter as the queue or the API returned it; None if there is none.
    """

    row: output.Row
    entry: Any = None


def given_up_us(letter_id: str) -> int:
    """Return when a letter was added, from its id."""
    return 1_000 * int(letter_id.rpartition(".")[2].partition("-")[0])


_TEXTS = ("namespace", "schedule", "uid", "kind", "trigger", "runUid", "reason", "message")


def _row(letter_id: str, **known: Any) -> output.Row:  # noqa: ANN401 - cells
    return {
        "id": letter_id,
        "givenUp": output.time(given_up_us(letter_id)),
        **dict.fromkeys(_TEXTS, ""),
        "scheduledTime": None,
        "attempts": None,
        "httpStatus": None,
        **known,
    }


def _absent(letter_id: str) -> Letter:
    return Letter(_row(letter_id, givenUp="", scheduledTime=""))


class QueueLetters:
    """The dead letters in Redis."""

    def __init__(self, queue: DelayQueue) -> None:
        self._log = queue.dead_letters

    async def all(self) -> AsyncIterator[Letter]:
        """Yield every letter, newest first."""
        async for entry in self._log.newest():
            yield _of_queue(entry)

    async def named(self, ids: Sequence[str]) -> AsyncIterator[Letter]:
        """Yield the letters of these ids."""
        for letter_id in ids:
            entry = await self._log.find(letter_id)
            yield _absent(letter_id) if entry is None else _of_queue(entry)

    async def replay(self, letters: Sequence[Letter], *, dry: bool) -> dict[str, str]:
        """Run their slots again unless ``dry``; the answers by the letters' ids."""
        return {one.row["id"]: await self._log.replay(one.entry, dry=dry) for one in letters}

    async def purge(self, letters: Sequence[Letter]) -> None:
        """Remove them."""
        await self._log.purge([one.entry for one in letters])


def _of_queue(letter: deadletters.DeadEntry) -> Letter:
    entry = letter.entry
    point = points.parse_member(letter.member, 0) if letter.member else None
    slot_us = _number(entry.get("slot_us"))
    if slot_us is None and point is not None and point.kind is not points.PointKind.CHAIN:
        slot_us = point.slot_us
    row = _row(
        letter.id,
        namespace=entry.get("namespace", ""),
        schedule=entry.get("name", ""),
        uid=entry.get("uid", ""),
        scheduledTime=output.time(slot_us),
        kind=entry.get("kind", "" if point is None else point.kind.name).lower(),
        trigger=entry.get("trigger", ""),
        runUid=entry.get("run_uid", ""),
        reason=entry.get("reason", ""),
        message=entry.get("message", ""),
        attempts=_number(entry.get("attempts")),
        httpStatus=_number(entry.get("http_status")),
    )
    return Letter(row, letter)


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 20 else None


class ApiLetters:
    """The dead letters of a namespace in the HTTP API."""

    def __init__(self, api: client.AsyncClient, namespace: str) -> None:
        self._api = api
        self._namespace = namespace

    async def all(self) -> AsyncIterator[Letter]:
        """Yield every letter, newest first."""
        cursor = ""
        while True:
            page = await self._api.send(calls.schedule_letters(self._namespace, cursor))
            for view in page.items:
                row = _row(
                    view.id,
                    namespace=view.namespace,
                    schedule=view.schedule,
                    scheduledTime=view.slot_time,
                    reason=view.reason,
                    message=view.message,
                    attempts=view.attempts,
                )
                yield Letter(row, view)
            if not (cursor := page.next):
                return

    async def named(self, ids: Sequence[str]) -> AsyncIterator[Letter]:
        """Yield the letters of these ids."""
        found = {one.row["id"]: one async for one in self.all() if one.row["id"] in ids}
        for letter_id in ids:
            yield found.get(letter_id) or _absent(letter_id)

    async def replay(self, letters: Sequence[Letter], *, dry: bool) -> dict[str, str]:
        """Run their slots again unless ``dry``; the answers by the letters' ids."""
        results: dict[str, str] = {}
        ids = [one.row["id"] for one in letters]
        for first in range(0, 0 if dry else len(ids), _PAGE):
            call = calls.replay_schedule_letters(self._namespace, ids[first : first + _PAGE])
            results |= (await self._api.send(call)).results
        return results

    async def purge(self, _: Sequence[Letter]) -> None:
        """Refuse: letters cannot be removed through the API."""
        raise errors.InvalidSetting("--server", "letters are purged in Redis; write --redis-url")


Letters = QueueLetters | ApiLetters
