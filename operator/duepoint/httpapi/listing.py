"""Operations that list: the set itself, members, open slots, dead letters, which also run again.

What a letter looks like is the same for those of Schedules, which the dashboard has.
"""

from __future__ import annotations

import msgspec

from duepoint import clock as clocks
from duepoint.delayqueue import deadletters, serverhealth
from duepoint.delayqueue.members import members, values
from duepoint.httpapi import calls, ownsets, views
from duepoint.httpapi.problems import OperationProblem
from duepoint.net.requests import HttpResponse
from duepoint.schedules.points import DUE_LIMIT_US
from duepoint.schedules.sets import members as memberjson


class Listing:
    """Carries out operations that list."""

    def __init__(
        self,
        population: members.Members,
        sets: ownsets.OwnSets,
        probe: serverhealth.DurabilityProbe,
        clock: clocks.Clock,
    ) -> None:
        self._members = population
        self._sets = sets
        self._durability = probe
        self._clock = clock

    async def summary(self, call: calls.OperationCall) -> HttpResponse:
        """The set with its counts."""
        record, now_us = call.owned.record, self._clock.now_us()
        counts = await self._sets.counts(call.owned)
        promise = await self._durability.read()
        limits = record.settings.limits
        overdue_us = counts.oldest_overdue_us
        lag_us = 0 if overdue_us is None else max(0, now_us - overdue_us)
        shown = {
            "namespace": record.namespace,
            "name": record.name,
            "uid": record.uid,
            "state": record.state.value,
            "managedByRows": record.is_managed,
            "members": counts.members,
            "armed": counts.armed,
            "inFlight": counts.in_flight,
            "nextDueTime": views.time(counts.next_due_us),
            "lagSeconds": lag_us / 1_000_000,
            "limits": {
                "members": limits.members,
                "payloadBytes": limits.payload_bytes,
                "changesPerSecond": limits.changes_per_second,
            },
            "durability": {
                "persistence": promise.persistence,
                "replicas": promise.replicas,
                "lossWindow": promise.loss_window,
            },
        }
        return views.json(200, shown)

    async def members(self, call: calls.OperationCall) -> HttpResponse:
        since_us, until_us = call.instant_us("dueFrom"), call.instant_us("dueUntil")
        limit = call.limit
        prefix, cursor = call.text("prefix"), call.text("cursor")
        if since_us is not None or until_us is not None:
            if prefix:
                raise OperationProblem(
                    "InvalidParameter", "cannot stand beside a due time", field="prefix"
                )
            return await self._due(call, since_us, until_us, limit)
        if prefix and not memberjson.is_id(prefix):
            raise OperationProblem("InvalidParameter", memberjson.wrong_id(prefix), field="prefix")
        page = await self._members.pages.page(call.owned.record, cursor, limit=limit, prefix=prefix)
        return self._page(call, page)

    async def due(self, call: calls.OperationCall) -> HttpResponse:
        """Due now, and no worker has it yet."""
        limit = call.limit
        return await self._due(call, None, self._clock.now_us(), limit)

    async def _due(
        self, call: calls.OperationCall, since_us: int | None, until_us: int | None, limit: int
    ) -> HttpResponse:
        first = max(0, since_us or 0)
        last = DUE_LIMIT_US if until_us is None else min(max(0, until_us), DUE_LIMIT_US)
        page = await self._members.dues.due(
            call.owned.record, first, last, limit=limit, cursor=call.text("cursor")
        )
        return self._page(call, page)

    async def export(self, call: calls.OperationCall) -> HttpResponse:
        limit = call.limit
        record = call.owned.record
        page = await self._members.pages.page(record, call.text("cursor"), limit=limit)
        return self._page(call, page)

    async def unacknowledged(self, call: calls.OperationCall) -> HttpResponse:
        limit = call.limit
        points = await self._members.dues.unacknowledged(call.owned.record, limit=limit)
        items = [
            {
                "id": point.id,
                "slotTime": views.time(point.slot_us),
                "attempt": point.attempt,
                "sinceTime": views.time(point.since_us or None),
                "dueTime": views.time(point.due_us),
                "claimed": point.claimed,
                "lastError": point.last_error,
            }
            for point in points
        ]
        return views.json(200, {"items": items})

    @staticmethod
    def _page(call: calls.OperationCall, page: values.MemberPage) -> HttpResponse:
        settings = call.owned.record.settings
        items = [views.member(each, settings) for each in page.members]
        return views.json(200, {"items": items, "next": page.cursor})


MOST_REPLAYED = 100


class _Replay(msgspec.Struct, forbid_unknown_fields=True):
    ids: list[str]


_decoder = msgspec.json.Decoder(_Replay)


class Letters:
    """Carries out operations on dead letters."""

    def __init__(self, stored: deadletters.DeadLetters, limits: ownsets.Rates) -> None:
        self._letters = stored
        self._rates = limits

    async def list(self, call: calls.OperationCall) -> HttpResponse:
        page = await self._letters.page(_lane(call), limit=call.limit, cursor=call.text("cursor"))
        items = [shown(letter) for letter in page.letters]
        return views.json(200, {"items": items, "next": page.cursor})

    async def replay(self, call: calls.OperationCall) -> HttpResponse:
        call.owned.check_able()
        ids = replayed_ids(call)
        owned = call.owned
        most = owned.changes_per_second
        if len(ids) > 1:  # one is taken by each request
            await self._rates.take(owned.owner, most, len(ids) - 1)
        missing = []
        for letter_id in ids:
            letter = await self._letters.find(letter_id, _lane(call))
            if letter is None or await self._letters.replay(letter) not in REPLAYED:
                missing.append(letter_id)
        return views.json(200, {"replayed": len(ids) - len(missing), "missing": missing})


def _lane(call: calls.OperationCall) -> str:
    return call.owned.record.identity.text.decode()


#: The slot runs again, by this request or an earlier one.
REPLAYED = frozenset({deadletters.Replayed.APPLIED, deadletters.Replayed.UNCHANGED})


def replayed_ids(call: calls.OperationCall) -> list[str]:
    """The ids of a request to run slots again; raises Problem InvalidField."""
    ids = calls.decoded(call.body, _decoder, '{"ids": ["…"]}', field="ids").ids
    if not 1 <= len(ids) <= MOST_REPLAYED:
        message = f"has {len(ids)} ids; write 1 to {MOST_REPLAYED}"
        raise OperationProblem("InvalidField", message, field="ids")
    return ids


def shown(letter: deadletters.DeadEntry) -> dict[str, object]:
    """A letter as it is listed."""
    entry, slot = letter.entry, letter.slot
    slot_us = deadletters.whole(entry.get("slot_us")) if slot is None else slot.slot_us
    return {
        "id": letter.id,
        "schedule": entry.get("name", ""),
        "slotTime": views.time(slot_us),
        "deadTime": views.time(letter.given_up_us),
        "reason": entry.get("reason", ""),
        "message": entry.get("message", ""),
        "attempts": deadletters.whole(entry.get("attempts")) or 0,
    }
