"""The index, the set and its members, each made from its number.

Each member fires once a year, half a year from now, at one of 1,440 minutes. So nothing of the set
is due during a measurement, and the members share rules as those of an application would.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
from collections.abc import AsyncIterator

from benchmarks.queuespeed import place
from duepoint.delayqueue import delayqueue
from duepoint.delayqueue.members import values
from duepoint.schedules import actions
from duepoint.schedules import rule as rules
from duepoint.schedules.sets import setrecord, setspec

_UID = "5f0c2a94-31a7-4c52-9d0e-6a3b8e4c7d10"
_NAMESPACE, _NAME = "shop", "reminders"
_BLOB = actions.encode(
    actions.Action(target=actions.WebhookAction(url="https://hooks.shop.example.com/reminders"))
)

_MANY = 10_000_000
_ONCE = rules.Rule(timing=rules.Timing(schedules=rules.ONCE))


@contextlib.asynccontextmanager
async def queue(url: str, count: int) -> AsyncIterator[delayqueue.DelayQueue]:
    """Yield the product's queue; 256 shards from ten million members on, 64 otherwise."""
    async with place.queue(url, 256 if count >= _MANY else 64) as opened:
        yield opened


def the_set(queue: delayqueue.DelayQueue, count: int, blob: bytes = _BLOB) -> setrecord.SetRecord:
    """Return the set, declared for so many members; ``blob`` is their action."""
    return setrecord.SetRecord(
        namespace=_NAMESPACE,
        name=_NAME,
        uid=_UID,
        generation=1,
        state=setrecord.SetState.READY,
        spread=setspec.spread(count),
        target=queue.signed_blobs.digest(_NAMESPACE, blob),
        settings=setspec.SetSettings(limits=setspec.SetLimits(members=count)),
    )


async def store(
    queue: delayqueue.DelayQueue, count: int, blob: bytes = _BLOB
) -> setrecord.SetRecord:
    """Store the set in the queue, and return it."""
    record = the_set(queue, count, blob)
    await queue.sets.store(record, blob, place.EPOCH)
    return record


def name(number: int) -> str:
    """Return the id of a member."""
    return f"customer-{number:08d}"


def a_one_off(number: int, at_us: int) -> values.MemberWrite:
    """Return the write of a member that fires once."""
    return values.MemberWrite(id=name(number), rule=_ONCE, at_us=at_us, payload=b'{"order":17}')


def wanted(first: int, last: int) -> list[values.MemberWrite]:
    """Return the writes of the members ``first`` to ``last`` - 1, without payload."""
    listed = _rules()
    return [
        values.MemberWrite(id=name(number), rule=listed[number * 7_919 % len(listed)])
        for number in range(first, last)
    ]


@functools.cache
def _rules() -> tuple[rules.Rule, ...]:
    month = (dt.datetime.now(dt.UTC).month + 5) % 12 + 1
    return tuple(
        rules.Rule(timing=rules.Timing(schedules=(f"{minute} {hour} 15 {month} *",)))
        for hour in range(24)
        for minute in range(60)
    )
