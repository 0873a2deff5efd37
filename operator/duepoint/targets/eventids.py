"""How a receiver recognises a slot: its ids, and instants as texts. Pure.

An id is the same for every attempt of a slot, by any worker at any time: ``webhook_id`` is the
receiver's idempotency key, ``event_id`` the same fact in a form that people can read. Receivers
store these texts.
"""

from __future__ import annotations

import datetime as dt
import functools
import hashlib

_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - UTC; its text ends in Z


def webhook_id(uid: str, slot_us: int, run_uid: str = "") -> str:
    """``msg_`` and 32 hex digits: one per (Schedule, slot, ScheduleRun), for all attempts."""
    digest = hashlib.sha256(f"{uid}\n{slot_us}\n{run_uid}".encode()).hexdigest()
    return f"msg_{digest[:32]}"


def event_id(uid: str, slot_us: int, run_uid: str = "") -> str:
    """``<uid>-<slot in seconds>``, with ``.mmm`` off the second and a mark of the run if any."""
    mark = f"-{hashlib.sha256(run_uid.encode()).hexdigest()[:10]}" if run_uid else ""
    return f"{uid}-{seconds_text(slot_us)}{mark}"


def seconds_text(instant_us: int) -> str:
    """Unix seconds, with ``.mmm`` off the second."""
    seconds, rest_us = divmod(instant_us, 1_000_000)
    return f"{seconds}.{rest_us // 1000:03d}" if rest_us else str(seconds)


def instant_text(instant_us: int) -> str:
    """RFC 3339 in UTC, to the second, or to the millisecond where the instant is off it."""
    seconds, rest_us = divmod(instant_us, 1_000_000)
    if rest_us:
        return f"{_second_text(seconds)}.{rest_us // 1000:03d}Z"
    return _second_text(seconds) + "Z"


@functools.lru_cache(maxsize=1024)  # many deliveries share their slot and their second
def _second_text(seconds: int) -> str:
    return (_EPOCH + dt.timedelta(seconds=seconds)).isoformat(timespec="seconds")
