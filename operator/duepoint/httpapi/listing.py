"""Operations that list: the set's summary, members, open slots and dead letters; and the replay.

The dashboard shows the dead letters of Schedules in the same form.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

import msgspec

from duepoint.delayqueue import deadletters
from duepoint.httpapi import calls, views
from duepoint.httpapi.calls import Call
from duepoint.httpapi.problems import OperationProblem
from duepoint.model import answers
from duepoint.model.vocabulary import Fields, Keywords
from duepoint.net.httpserver import HttpResponse
from duepoint.schedules.points import DUE_LIMIT_US
from duepoint.schedules.sets import members as memberjson


async def summary(call: Call) -> HttpResponse:
    """Return the set with its counts."""
    record, queue = call.owned.record, call.shared.queue
    counts = await queue.sets.counts(record)
    promise = await queue.health.durability()
    overdue_us, now_us = counts.oldest_overdue_us, call.shared.clock.now_us()
    lag_us = 0 if overdue_us is None else max(0, now_us - overdue_us)
    shown = answers.SetView(
        namespace=record.namespace,
        name=record.name,
        uid=record.uid,
        state=record.state.value,
        managed_by_rows=record.is_managed,
        members=counts.members,
        armed=counts.armed,
        in_flight=counts.in_flight,
        next_due_time=views.time(counts.next_due_us),
        lag_seconds=lag_us / 1_000_000,
        limits=msgspec.convert(record.settings.limits, answers.LimitsView, from_attributes=True),
        durability=msgspec.convert(promise, answers.DurabilityView, from_attributes=True),
    )
    return views.json(200, shown)


async def members(call: Call) -> HttpResponse:
    since_us, until_us = call.instant_us("dueFrom"), call.instant_us("dueUntil")
    prefix, cursor = call.text("prefix"), call.text("cursor")
    pages, record = call.shared.queue.members.pages, call.owned.record
    is_by_due = since_us is not None or until_us is not None
    if prefix and (is_by_due or not memberjson.is_id(prefix)):
        why = "cannot be combined with a due time" if is_by_due else memberjson.wrong_id(prefix)
        raise OperationProblem("InvalidParameter", why, field="prefix")
    if is_by_due:
        first = max(0, since_us or 0)
        last = DUE_LIMIT_US if until_us is None else min(max(0, until_us), DUE_LIMIT_US)
        page = await pages.due(record, first, last, limit=call.limit, cursor=cursor)
    else:
        page = await pages.page(record, cursor, limit=call.limit, prefix=prefix)
    items = [views.member(each) for each in page.members]
    return views.json(200, {"items": items, "next": page.cursor})


# -- dead letters ----------------------------------------------------------------------------------

MOST_REPLAYED = 100


class Replay(Fields, forbid_unknown_fields=True):
    """Which dead letters to replay."""

    ids: Annotated[tuple[str, ...], Keywords(minItems=1, maxItems=MOST_REPLAYED)]


async def letters(call: Call) -> HttpResponse:
    return views.json(200, await letters_of(call, _lane(call)))


async def letters_of(call: Call, lane: str) -> dict[str, object]:
    """Return a page of the dead letters of a lane."""
    stored, cursor = call.shared.queue.dead_letters, call.text("cursor")
    page = await stored.page(lane, limit=call.limit, cursor=cursor)
    return {"items": [shown(letter) for letter in page.letters], "next": page.cursor}


async def replay(call: Call) -> HttpResponse:
    call.owned.check_active()
    ids = replayed_ids(call)
    if len(ids) > 1:  # every request has already taken one from the rate limit
        await call.shared.sets.take(call.owned, len(ids) - 1)
    results = {id_: await replay_letter(call, id_, _lane(call)) for id_ in ids}
    return views.json(200, replayed(results))


def _lane(call: Call) -> str:
    return call.owned.record.identity.text.decode()


async def replay_letter(
    call: Call, letter_id: str, lane: str, may: Callable[[str], Awaitable[bool]] | None = None
) -> str:
    """Replay a letter of a lane, and return the result in one word.

    Args:
        may: whether the caller may run the Schedule of this name; None = any.
    """
    stored, applied = call.shared.queue.dead_letters, deadletters.Replayed.APPLIED
    letter = await stored.find(letter_id, lane)
    if letter is None:
        return "gone"
    if may is not None and not await may(letter.entry.get("name", "")):
        return "forbidden"
    result = await stored.replay(letter)
    # Unchanged: the slot runs again by an earlier request.
    return (applied if result is deadletters.Replayed.UNCHANGED else result).value


def replayed(results: dict[str, str]) -> answers.Replayed:
    """Return the answer to a replay, from the result of each letter."""
    done = deadletters.Replayed.APPLIED.value
    missing = tuple(letter_id for letter_id, result in results.items() if result != done)
    return answers.Replayed(replayed=len(results) - len(missing), missing=missing, results=results)


def replayed_ids(call: Call) -> tuple[str, ...]:
    """Return the letters' ids in a replay request; raises Problem InvalidField."""
    return calls.decoded(call.body, Replay, '{"ids": ["…"]}').ids


def shown(letter: deadletters.DeadEntry) -> dict[str, object]:
    """Return a dead letter as a list shows it."""
    entry = letter.entry
    return {
        "id": letter.id,
        "namespace": entry.get("namespace", ""),
        "schedule": entry.get("name", ""),
        "slotTime": views.time(deadletters.whole(entry.get("slot_us"))),
        "deadTime": views.time(letter.given_up_us),
        "reason": entry.get("reason", ""),
        "message": entry.get("message", ""),
        "attempts": deadletters.whole(entry.get("attempts")) or 0,
    }
