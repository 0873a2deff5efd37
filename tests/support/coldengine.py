"""The engine of expressions as a process that has just started has it: nothing remembered."""

from __future__ import annotations

from duepoint.expressions import compile as engine
from duepoint.expressions import days, fields, pattern, syntax
from duepoint.schedules import slots

_CACHES = (
    *(engine._cached, engine._shared, syntax._plain, days.matching_days),
    *(pattern._minutes_of_day, pattern._times_of_day, fields.values_of),
)


def forget() -> None:
    """Empty what is remembered of texts; zones stay loaded."""
    for cache in _CACHES:
        cache.cache_clear()
    slots._kept.clear()
