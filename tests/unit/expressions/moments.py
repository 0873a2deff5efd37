"""Instants as people write them, to and from the engine's microseconds."""

from __future__ import annotations

import datetime as dt
import itertools

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def us(text: str) -> int:
    return (dt.datetime.fromisoformat(text) - EPOCH) // dt.timedelta(microseconds=1)


def utc(instant_us: int | None) -> str | None:
    if instant_us is None:
        return None
    return (EPOCH + dt.timedelta(microseconds=instant_us)).isoformat().replace("+00:00", "Z")


def next_times(expression, start: str, count: int) -> list[str]:
    """The next slots after the start, in UTC, fewer when there are no more."""
    return [utc(slot_us) for slot_us in itertools.islice(_walk(expression, us(start)), count)]


def between(expression, start: str, end: str) -> list[str]:
    """The slots in (start, end], in UTC."""
    slots_us = itertools.takewhile(lambda at_us: at_us <= us(end), _walk(expression, us(start)))
    return [utc(slot_us) for slot_us in slots_us]


def _walk(expression, at_us):
    while (at_us := expression.next_after(at_us)) is not None:
        yield at_us
