"""The slots of a schedule and their dues.

A *slot* is an instant when a schedule is due, identified by its UTC time. Its *due* is the
slot plus its jitter: never earlier, and before the next slot. This module compiles a rule into
one expression (merges its texts, applies start and end), and finds the slot that belongs to the
due of a chain point. Pure; instants are in microseconds since the epoch.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator

import msgspec

from duepoint import expressions, shares
from duepoint.expressions import expression as instants
from duepoint.expressions import fields
from duepoint.schedules import rule as rules

#: Memory of the cache of expressions: enough for about 20,000 like ``30 2 * * 1-5``. A tenant may
#: use any number of them, and the largest take 300 KB.
_MOST_BYTES = 80 << 20
_kept: shares.BytesCache[tuple[object, ...], expressions.Expression] = shares.BytesCache(
    _MOST_BYTES
)

#: An ``H`` that is not a letter of a name.
_HASHED = re.compile(r"(?<![A-Z])H(?![A-Z])", re.IGNORECASE)


class DueSlot(msgspec.Struct, frozen=True, gc=False):
    """A slot and when it may start."""

    slot_us: int
    due_us: int


class Slots(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """All slots of one schedule.

    Attributes:
        identity: ``namespace/name``; the jitter of a slot is a hash of it.
    """

    expression: expressions.Expression
    identity: str
    jitter_ms: int

    def due_slot(self, slot_us: int) -> DueSlot:
        """Return the slot with its due."""
        if self.jitter_ms == 0:
            return DueSlot(slot_us, slot_us)
        return self._jittered(slot_us, self.expression.next_after(slot_us))

    def _jittered(self, slot_us: int, following_us: int | None) -> DueSlot:
        distance_ms = None if following_us is None else (following_us - slot_us) // 1000
        jitter = jitter_ms(self.identity, slot_us, self.jitter_ms, distance_ms)
        return DueSlot(slot_us, slot_us + jitter * 1000)

    def next_after(self, instant_us: int) -> DueSlot | None:
        """Return the first slot strictly after an instant; None if no slot is left."""
        slot_us = self.expression.next_after(instant_us)
        return None if slot_us is None else self.due_slot(slot_us)

    def at_or_before(self, instant_us: int) -> int | None:
        """Return the newest slot at or before an instant: that of a chain point with this due."""
        return self.expression.previous_before(instant_us + 1)

    def previous_before(self, slot_us: int) -> int | None:
        """Return the slot before a slot."""
        return self.expression.previous_before(slot_us)

    def newest_due(self, now_us: int) -> int | None:
        """Return the newest slot whose due has come."""
        slot_us = self.at_or_before(now_us)
        if slot_us is not None and self.due_slot(slot_us).due_us > now_us:
            return self.expression.previous_before(slot_us)
        return slot_us

    def walk(self, after_us: int, through_us: int) -> Iterator[int]:
        """Yield the slots in (after, through], oldest first."""
        return instants.walk(self.expression, after_us, through_us)

    def dues_back(self, newest_us: int, oldest_us: int) -> Iterator[DueSlot]:
        """Yield the slots from one slot back to another, newest first, with their dues."""
        if self.jitter_ms == 0:
            for slot_us in self.walk_back(newest_us, oldest_us - 1):
                yield DueSlot(slot_us, slot_us)
            return
        following_us = self.expression.next_after(newest_us)
        for slot_us in self.walk_back(newest_us, oldest_us - 1):
            yield self._jittered(slot_us, following_us)
            following_us = slot_us

    def walk_back(self, through_us: int, after_us: int) -> Iterator[int]:
        """Yield the slots in (after, through], newest first."""
        slot_us = self.at_or_before(through_us)
        while slot_us is not None and slot_us > after_us:
            yield slot_us
            slot_us = self.expression.previous_before(slot_us)

    def count(self, after_us: int, through_us: int) -> int:
        """Return how many slots lie in (after, through]."""
        if through_us <= after_us:
            return 0
        return self.expression.count_between(after_us, through_us)

    def upcoming(self, after_us: int, count: int) -> list[int]:
        """Return the next slots after an instant, at most ``count``."""
        return list(itertools.islice(self.walk(after_us, instants.LAST_US), count))


def jitter_ms(identity: str, slot_us: int, most_ms: int, distance_to_next_ms: int | None) -> int:
    """Return a slot's jitter in milliseconds: 0 or more, and less than the distance to the next."""
    width_ms = most_ms if distance_to_next_ms is None else min(most_ms, distance_to_next_ms)
    return fields.digest(identity, str(slot_us // 1_000)) % width_ms if width_ms > 0 else 0


def for_rule(rule: rules.Rule, *, identity: str, created_us: int) -> Slots:
    """Return the slots of a rule for the schedule ``identity``, created at ``created_us``.

    Raises:
        errors.InvalidExpression: if a text is not an expression.
    """
    timing = rule.timing
    uses_hash, uses_anchor = _dependence(timing)
    identity_of_all = identity if uses_hash else ""
    anchor_us = 0
    if uses_anchor:
        anchor_us = created_us if timing.start_us is None else timing.start_us
    key = (timing, rule.whole_seconds, identity_of_all, anchor_us)
    expression = _kept.get("", key)
    if expression is None:
        whole = expressions.merged(
            [_compile(text, rule, identity_of_all, anchor_us) for text in timing.schedules]
        )
        expression = expressions.windowed(whole, start_us=_start_us(timing), end_us=timing.end_us)
        _kept.put("", key, expression, expressions.size_of(expression))
    return Slots(expression=expression, identity=identity, jitter_ms=timing.jitter_ms)


@functools.lru_cache(maxsize=20_000)
def _dependence(timing: rules.Timing) -> tuple[bool, bool]:
    """Return whether the slots depend on the schedule's name, and whether on an anchor instant."""
    return _uses_hash(timing), _uses_anchor(timing)


def is_alike(timing: rules.Timing) -> bool:
    """Whether schedules of one creation time share their slots, and each due equals its slot."""
    return timing.jitter_ms == 0 and not _uses_hash(timing)


def is_anchored(timing: rules.Timing) -> bool:
    """Whether the slots depend on the time of creation."""
    return timing.start_us is None and _uses_anchor(timing)


def check(text: str, rule: rules.Rule, *, identity: str, created_us: int) -> None:
    """Raise errors.InvalidExpression if a text is wrong or can never fire.

    The search for a slot begins at the creation (or startTime): an expression that had slots and
    has none left is complete, not wrong.
    """
    timing = rule.timing
    start_us = created_us if timing.start_us is None else timing.start_us
    _compile(text, rule, identity, start_us, from_us=start_us)


def _compile(
    text: str, rule: rules.Rule, identity: str, anchor_us: int, *, from_us: int | None = None
) -> expressions.Expression:
    timing = rule.timing
    return expressions.compile_expression(
        text,
        time_zone=timing.time_zone,
        gap=expressions.Gap(timing.gap),
        overlap=expressions.Overlap(timing.overlap),
        identity=identity,
        anchor_us=anchor_us,
        whole_seconds=rule.whole_seconds,
        from_us=from_us,
        zone_data=timing.zone_data,
    )


def _start_us(timing: rules.Timing) -> int | None:
    """Return the first instant that may have a slot; at suspendUntil no write is needed."""
    bounds = [timing.start_us, timing.suspend_until_us if timing.suspend else None]
    known = [bound for bound in bounds if bound is not None]
    return max(known, default=None)


def _uses_hash(timing: rules.Timing) -> bool:
    """Whether a text has an ``H`` field; the h of ``@hourly``, ``1h`` or ``THU`` is not one."""
    return any(
        not text.lstrip().startswith("@") and _HASHED.search(text) for text in timing.schedules
    )


def _uses_anchor(timing: rules.Timing) -> bool:
    return any("@every" in text.lower() for text in timing.schedules)
