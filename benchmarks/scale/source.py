"""Schedules without end, the same ones every time, made from their number when asked for.

``PER_NAMESPACE`` schedules share a namespace, which has one webhook; ten everyday expressions in
three time zones; no schedule has a payload of its own. Names, uids and times of creation are of
usual length.
"""

from __future__ import annotations

import functools

from benchmarks.queuespeed import filling
from duepoint.delayqueue import delayqueue, messages
from duepoint.schedules import actions, definition
from duepoint.schedules import rule as rules

PER_NAMESPACE = 10_000
ZONES = ("Etc/UTC", "Europe/Berlin", "America/New_York")
_RULES = tuple(
    rules.Rule(timing=rules.Timing(schedules=(text,), time_zone=zone))
    for text in filling.EXPRESSIONS
    for zone in ZONES
)
_HOUR_US = 3_600_000_000
_YEAR_US = 31_536_000_000_000


def namespaces(count: int) -> int:
    """How many namespaces hold so many schedules."""
    return -(-count // PER_NAMESPACE)


@functools.cache
def action(namespace: str) -> bytes:
    """What every schedule of a namespace does, as it is stored."""
    url = f"https://hooks.{namespace}.example.com/schedules"
    return actions.encode(actions.Action(target=actions.WebhookAction(url=url)))


def uid(number: int) -> str:
    """A UUID of its own for each number; ids are hashes, so that it need not be random."""
    return "%08x-a7c3-4b52-9d0e-%012x" % (number, number)  # noqa: UP031 - the quickest


def one(number: int, target: str) -> definition.Definition:
    """The n-th schedule; ``target`` is the digest of its namespace's action."""
    created_us = filling.CREATED_US + number % 9_000_000 * 1_000_000
    return definition.Definition(
        namespace=f"team-{number // PER_NAMESPACE}",
        name=f"billing-report-{number:08d}",
        uid=uid(number),
        generation=1,
        timing_generation=1,
        created_us=created_us,
        not_before_us=created_us,
        state=definition.State.ARMED,
        rule=_RULES[number % len(_RULES)],
        target=target,
    )


def wanted(
    queue: delayqueue.DelayQueue, first: int, last: int, due_us: int
) -> list[tuple[messages.Arming, bytes]]:
    """Armings of the schedules from ``first`` on, due at random minutes of the year after."""
    return [_wanted(queue, number, due_us) for number in range(first, last)]


def _wanted(
    queue: delayqueue.DelayQueue, number: int, due_us: int
) -> tuple[messages.Arming, bytes]:
    namespace = f"team-{number // PER_NAMESPACE}"
    blob = action(namespace)
    known = one(number, _digest(queue, namespace))
    apart_us = number * 7_919_000_000 % _YEAR_US // 60_000_000 * 60_000_000
    return messages.Arming(definition=known, due_us=due_us + apart_us), blob


@functools.lru_cache(maxsize=64)
def _digest(queue: delayqueue.DelayQueue, namespace: str) -> str:
    return queue.signed_blobs.digest(namespace, action(namespace))
