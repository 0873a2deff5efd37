"""An independent enumeration of a spec's slots, by docs/reference/semantics.md.

It uses no code of the engine: an expression is a walk over seconds, a period is arithmetic.
``tests/differential`` compares what the stories do not use (zones, daylight saving, ``L``, ``W``,
``H``) with other engines.
"""

from __future__ import annotations

import datetime as dt
import functools
import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

S = 1_000_000
_UNITS = {"ms": 1_000, "s": S, "m": 60 * S, "h": 3600 * S, "d": 86_400 * S}


@functools.lru_cache(maxsize=4096)  # many slots share an instant
def instant_us(text: str) -> int:
    return round(dt.datetime.fromisoformat(text).timestamp()) * S


def duration_us(text: str) -> int:
    return sum(
        int(float(number) * _UNITS[unit])
        for number, unit in re.findall(r"([0-9.]+)(ms|s|m|h|d)", text)
    )


def slots_of(spec: Mapping[str, Any], created_us: int, until_us: int) -> list[int]:
    """Return all slots of a spec up to an instant in ascending order, ignoring edits."""
    start_us = instant_us(spec["startTime"]) if "startTime" in spec else None
    end_us = instant_us(spec["endTime"]) if "endTime" in spec else until_us + 1
    found: set[int] = set()
    for text in spec.get("schedules") or [spec["schedule"]]:
        found.update(_of_text(text, spec, start_us, created_us, until_us))
    least = created_us + 1 if start_us is None else start_us
    return sorted(slot for slot in found if least <= slot < end_us and slot <= until_us)


def _of_text(
    text: str, spec: Mapping[str, Any], start_us: int | None, created_us: int, until_us: int
) -> Iterator[int]:
    if text.startswith("@at "):
        yield instant_us(text[4:])
    elif text.startswith("@every "):
        anchor = created_us if start_us is None else start_us
        if "jobTemplate" in spec:
            anchor = anchor // S * S
        period = duration_us(text[7:])
        yield from range(anchor if start_us is not None else anchor + period, until_us + 1, period)
    else:
        yield from _of_cron(text, created_us, until_us)


def _of_cron(text: str, from_us: int, until_us: int) -> Iterator[int]:
    """Yield slots of an expression in UTC; it may use seconds and minutes, all else is ``*``."""
    fields = text.split()
    seconds, minutes = ("0", fields[0]) if len(fields) == 5 else (fields[0], fields[1])
    rest = fields[-4:]
    if rest != ["*"] * 4:
        raise ValueError(f"the oracle does not read {text!r}")
    wanted_s, wanted_m = _values(seconds), _values(minutes)
    for second in range(from_us // S, until_us // S + 1):
        if second % 60 in wanted_s and second // 60 % 60 in wanted_m:
            yield second * S


def _values(text: str) -> frozenset[int]:
    if text == "*":
        return frozenset(range(60))
    if text.startswith("*/"):
        return frozenset(range(0, 60, int(text[2:])))
    return frozenset(int(part) for part in text.split(","))


def jitter_us(
    spec: Mapping[str, Any], namespace: str, name: str, slot: int, following: int | None
) -> int:
    """Return the jitter of a slot, by the formula of the semantics."""
    if not spec.get("jitter"):
        return 0
    most_ms = duration_us(spec["jitter"]) // 1_000
    if following is not None:
        most_ms = min(most_ms, (following - slot) // 1_000)
    digest = hashlib.sha256(f"{namespace}/{name}\n{slot // 1_000}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % most_ms * 1_000 if most_ms else 0
