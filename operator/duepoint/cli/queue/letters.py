"""Where dead letters are looked at: in Redis, or through the HTTP API by who has no Redis.

Both have the same rows and the same words for what became of a letter. The API shows those of
Schedules in the namespaces that the person may see, and removes none.
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
    from duepoint.model import answers

#: Why a letter was left, by the answer of the queue or of the API.
WHY = {
    "waiting": "this slot waits in the queue already",
    "gone": "another command replayed or purged it just now",
    "absent": "the queue holds no definition of this uid: the Schedule was deleted or is not armed",
    "forbidden": "you may not run its Schedule: ask for the verb run on it",
    "unreadable": "the letter names no Schedule and slot: its point could not be read",
    "missing": "there is no such dead letter",
}
_PAGE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A letter that was found, or an id that is no letter's (any more).

    Attributes:
        entry: as the queue has it; None where it has none, and for those of the API.
    """

    row: output.Row
    is_there: bool = True
    entry: deadletters.DeadEntry | None = None


def given_up_us(letter_id: str) -> int:
    """When a letter was added, by its id."""
    return 1_000 * int(letter_id.rpartition(".")[2].partition("-")[0])


def _row(letter_id: str, **known: Any) -> output.Row:  # noqa: ANN401 - cells
    texts = ("namespace", "schedule", "uid", "kind", "trigger", "runUid", "reason", "message")
    return {
        "id": letter_id,
        "givenUp": output.time(given_up_us(letter_id)),
        **dict.fromkeys(texts, ""),
        "scheduledTime": None,
        "attempts": None,
        "httpStatus": None,
        **known,
    }


def _absent(letter_id: str) -> Letter:
    return Letter(row=_row(letter_id, givenUp="", scheduledTime=""), is_there=False)


class QueueLetters:
    """Those in Redis."""

    def __init__(self, queue: DelayQueue) -> None:
        self._queue = queue

    async def all(self) -> AsyncIterator[Letter]:
        """Every letter, newest first."""
        async for entry in self._queue.dead_letters.newest():
            yield self._letter(entry)

    async def named(self, ids: Sequence[str]) -> AsyncIterator[Letter]:
        """The letters of these ids."""
        for letter_id in ids:
            entry = await self._queue.dead_letters.find(letter_id)
            yield _absent(letter_id) if entry is None else self._letter(entry)

    async def replay(self, letters: Sequence[Letter], *, dry: bool) -> list[str]:
        """Run their slots again unless ``dry``; of each, why not, or nothing."""
        return [await self._replay(letter.entry, dry=dry) for letter in letters]

    async def purge(self, letters: Sequence[Letter]) -> None:
        """Remove them."""
        found = [letter.entry for letter in letters if letter.entry is not None]
        await self._queue.dead_letters.purge(found)

    async def _replay(self, entry: deadletters.DeadEntry | None, *, dry: bool) -> str:
        if entry is None:
            return WHY["missing"]
        return WHY.get(await self._queue.dead_letters.replay(entry, dry=dry), "")

    @staticmethod
    def _letter(letter: deadletters.DeadEntry) -> Letter:
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
        return Letter(row=row, entry=letter)


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 20 else None


class ApiLetters:
    """Those of a namespace that the HTTP API shows."""

    def __init__(self, api: client.AsyncClient, namespace: str) -> None:
        self._api = api
        self._namespace = namespace

    async def all(self) -> AsyncIterator[Letter]:
        """Every letter, newest first."""
        cursor = ""
        while True:
            page = await self._api.send(calls.schedule_letters(self._namespace, cursor))
            for view in page.items:
                yield self._letter(view)
            if not (cursor := page.next):
                return

    async def named(self, ids: Sequence[str]) -> AsyncIterator[Letter]:
        """The letters of these ids."""
        left = set(ids)
        async for letter in self.all():
            if letter.row["id"] in left:
                left.remove(letter.row["id"])
                yield letter
            if not left:
                return
        for letter_id in ids:
            if letter_id in left:
                yield _absent(letter_id)

    async def replay(self, letters: Sequence[Letter], *, dry: bool) -> list[str]:
        """Run their slots again unless ``dry``; of each, why not, or nothing."""
        results: dict[str, str] = {}
        ids = [letter.row["id"] for letter in letters if letter.is_there and not dry]
        for first in range(0, len(ids), _PAGE):
            call = calls.replay_schedule_letters(self._namespace, ids[first : first + _PAGE])
            results |= (await self._api.send(call)).results
        return [_why(letter, results) for letter in letters]

    async def purge(self, _: Sequence[Letter]) -> None:
        """Nobody removes letters through the API."""
        raise errors.InvalidSetting("--server", "letters are purged in Redis; write --redis-url")

    @staticmethod
    def _letter(view: answers.LetterView) -> Letter:
        row = _row(
            view.id,
            namespace=view.namespace,
            schedule=view.schedule,
            scheduledTime=view.slot_time,
            reason=view.reason,
            message=view.message,
            attempts=view.attempts,
        )
        return Letter(row=row)


def _why(letter: Letter, results: dict[str, str]) -> str:
    if not letter.is_there:
        return WHY["missing"]
    answer = results.get(letter.row["id"], "replayed")
    return "" if answer == "replayed" else WHY.get(answer, answer)


Letters = QueueLetters | ApiLetters
