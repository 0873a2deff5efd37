"""Operations on dead letters: list those of a set, and run them again.

What a request and an answer look like is the same for letters of Schedules, which the dashboard
has (``httpapi.dashboard.letters``).
"""

from __future__ import annotations

import msgspec

from duepoint.delayqueue import deadletters
from duepoint.delayqueue.members import members
from duepoint.httpapi import bodies, calls, rates, views
from duepoint.httpapi.problems import OperationProblem
from duepoint.net.requests import HttpResponse

USUALLY_LISTED = 100
MOST_LISTED = 500
MOST_REPLAYED = 100


class _Replay(msgspec.Struct, forbid_unknown_fields=True):
    ids: list[str]


_decoder = msgspec.json.Decoder(_Replay)


class Letters:
    """Carries out operations on dead letters."""

    def __init__(self, stored: members.Members, limits: rates.Rates) -> None:
        self._members = stored
        self._rates = limits

    async def list(self, call: calls.OperationCall) -> HttpResponse:
        limit = call.whole("limit", USUALLY_LISTED, MOST_LISTED)
        page = await self._members.given_up.page(
            call.owned.record, call.text("cursor"), limit=limit
        )
        items = [_shown(letter_id, letter) for letter_id, letter in page.letters]
        return views.json(200, {"items": items, "next": page.cursor})

    async def replay(self, call: calls.OperationCall) -> HttpResponse:
        call.owned.check_able()
        ids = replayed_ids(call)
        owned = call.owned
        most = owned.changes_per_second
        if len(ids) > 1:  # one is taken by each request
            await self._rates.take(owned.owner, most, len(ids) - 1)
        answers = await self._members.given_up.replay(owned.record, ids)
        missing = [one for one, answer in answers.items() if answer not in REPLAYED]
        return views.json(200, {"replayed": len(answers) - len(missing), "missing": missing})


#: The slot runs again, by this request or an earlier one.
REPLAYED = frozenset({deadletters.Replayed.APPLIED, deadletters.Replayed.UNCHANGED})


def replayed_ids(call: calls.OperationCall) -> list[str]:
    """The ids of a request to run slots again; raises Problem InvalidField."""
    ids = bodies.decoded(call.body, _decoder, '{"ids": ["…"]}', field="ids").ids
    if not 1 <= len(ids) <= MOST_REPLAYED:
        message = f"has {len(ids)} ids; write 1 to {MOST_REPLAYED}"
        raise OperationProblem("InvalidField", message, field="ids")
    return ids


def shown(letter_id: str, letter: deadletters.DeadEntry, slot_us: int | None) -> dict[str, object]:
    """A letter as it is listed."""
    entry = letter.entry
    return {
        "id": letter_id,
        "schedule": entry.get("name", ""),
        "slotTime": views.time(slot_us),
        "deadTime": views.time(_number(letter.id.partition("-")[0]) * 1_000),
        "reason": entry.get("reason", ""),
        "message": entry.get("message", ""),
        "attempts": _number(entry.get("attempts", "")),
    }


def _shown(letter_id: str, letter: deadletters.DeadEntry) -> dict[str, object]:
    return shown(letter_id, letter, _number(letter.entry.get("slot_us", "")))


def _number(text: str) -> int:
    return deadletters.whole(text) or 0
