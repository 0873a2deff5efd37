"""The entry point: compiles a schedule's text, zone and choices to an Expression.

Every mistake of a user raises InvalidExpression. Compiled cron expressions are cached by text, zone
and choices, and by the identity only if the text uses H.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from duepoint import errors
from duepoint.expressions import advice, cron, descriptors, expression, syntax, timezones
from duepoint.expressions.cron import Gap, Overlap

#: Longest text, in characters; the CRD has the same limit, because its cost rules need one.
TEXT_LIMIT = 200

#: An expression without a year has a slot within this time or never: eight years, because leap
#: days around 2100 are eight years apart.
NEVER_AFTER_US = 2_922 * 86_400 * expression.SECOND_US

_NOT_ALLOWED = re.compile(r"[^A-Za-z0-9*?/,#()@ \t-\r:.+_=-]")
_HEAD = re.compile(r"(?P<head>@every|@at)(?:[ \t-\r]+(?P<value>.*))?", re.DOTALL)
_HASHED = re.compile(r"(?<![A-Za-z])H(?![A-Za-z])", re.IGNORECASE)


def compile_expression(
    text: str,
    *,
    time_zone: str = "Etc/UTC",
    gap: Gap = Gap.RUN_ONCE,
    overlap: Overlap = Overlap.FIRST,
    identity: str = "",
    anchor_us: int = 0,
    whole_seconds: bool = False,
    from_us: int | None = None,
    zone_data: str = "",
) -> expression.Expression:
    """Compile a schedule's text to its slots.

    Args:
        text: five to seven cron fields, a macro, ``@every D``, ``@at T`` or ``@never``. White space
            around it is ignored; positions in errors count from the first other character.
        time_zone: IANA name; checked for every form, used by cron.
        gap: what happens to fixed times that the clock skips.
        overlap: which one counts when a fixed time comes twice.
        identity: ``namespace/name``, hashed by H fields.
        anchor_us: slot 0 of ``@every``: ``startTime``, else the creation.
        whole_seconds: whether the target is a jobTemplate, whose names contain whole seconds.
        from_us: if set, refuse a cron expression without a slot in the eight years after it, or,
            with a year field, without a slot in any listed year.
        zone_data: the zone's data, as ``timezones.data_of`` writes it; empty = those of this
            version.

    Raises:
        InvalidExpression: the text is wrong, or names no instant.
    """
    if len(text) > TEXT_LIMIT:  # white space counts, as in the CRD
        raise errors.InvalidExpression(
            f"the schedule has {len(text)} characters; the limit is {TEXT_LIMIT}",
            hint="use several entries in spec.schedules",
        )
    text = text.strip(syntax.WHITE)
    _check_characters(text)
    zone = timezones.located(time_zone, zone_data)
    if text == descriptors.NEVER:
        return Merged(())
    if own := _HEAD.fullmatch(text):
        head, value = own["head"], own["value"] or ""
        try:
            if head == "@at":
                return descriptors.at(value, whole_seconds=whole_seconds, time_zone=time_zone)
            return descriptors.every(value, anchor_us=anchor_us, whole_seconds=whole_seconds)
        except ValueError as error:
            raise errors.InvalidExpression(
                f"{head}: {error}", field=head, position=len(text) - len(value)
            ) from error
    hashed = identity if _HASHED.search(text) else ""
    compiled = _cached(text, zone, Gap(gap), Overlap(overlap), hashed)
    if from_us is not None:
        _check_fires(text, compiled, from_us)
    return compiled


@functools.lru_cache(maxsize=1024)  # not more: an expression may take 20 KB
def _cached(
    text: str, zone: timezones.Zone, gap: Gap, overlap: Overlap, identity: str
) -> cron.Cron:
    fields = syntax.parse(text, identity=identity)
    return cron.Cron(fields, zone=zone, gap=gap, overlap=overlap)


@functools.lru_cache(maxsize=4096)
def _check_characters(text: str) -> None:
    if not text:
        raise errors.InvalidExpression(
            "the schedule is empty", hint='write for example "0 9 * * 1-5" or "@every 15m"'
        )
    if prefix := re.search(r"(?<![A-Za-z])(?:CRON_)?TZ=(\S*)", text, re.IGNORECASE):
        zone = prefix[1] if timezones.is_known(prefix[1]) else "Europe/Rome"
        at, what = prefix.start(), "TZ= and CRON_TZ= are not part of a schedule"
        hint = f"use the field timeZone, such as timeZone: {zone}"
    elif variable := re.search(r"\$[{(]?\w+[})]?", text):
        at, what = variable.start(), f"{variable[0]} is a variable that was not replaced"
        hint = "put its value in before you apply the manifest"
    elif wrong := _NOT_ALLOWED.search(text):
        at, what = (
            wrong.start(),
            f"the character U+{ord(wrong[0]):04X} has no meaning in a schedule",
        )
        hint = advice.for_character(wrong[0])
    else:
        return
    raise errors.InvalidExpression(f"column {at + 1}: {what}", position=at, hint=hint)


def _check_fires(text: str, compiled: cron.Cron, from_us: int) -> None:
    when, after_us, last_us = "in the next 8 years", from_us, from_us + NEVER_AFTER_US
    if compiled.fields.day_rule.years is not None:  # its slots may end some day
        when, after_us, last_us = "in any of its years", expression.FIRST_US - 1, expression.LAST_US
    first_us = compiled.next_after(after_us)
    if first_us is None or first_us > last_us:
        raise errors.InvalidExpression(
            f"{errors.quoted(text)} has no time {when}",
            never_fires=True,
            hint="check day-of-month against month; for the last day of a month write L, and "
            "@never for a Schedule that runs only when it is triggered",
        )


# -- several expressions as one, and a window of one -----------------------------------------------

# A Schedule may list several texts; an instant that two of them name is one slot. The next and the
# previous slot are the nearest of the members' own. The count is the sum of the members' counts
# minus duplicates: all slots except those of the busiest member are looked up, one by one.

#: Most slots to look up for one count, which takes some 0.2 s. Beyond it, slots that several
#: members name count more than once.
MOST_LOOKED_UP = 100_000


@dataclass(frozen=True, slots=True)
class Merged:
    """The union of the members' slots; without members it has none, as with ``@never``."""

    members: tuple[expression.Expression, ...]

    def next_after(self, instant_us: int) -> int | None:
        slots_us = [member.next_after(instant_us) for member in self.members]
        return min((slot_us for slot_us in slots_us if slot_us is not None), default=None)

    def previous_before(self, instant_us: int) -> int | None:
        slots_us = [member.previous_before(instant_us) for member in self.members]
        return max((slot_us for slot_us in slots_us if slot_us is not None), default=None)

    def count_between(self, after_us: int, through_us: int) -> int:
        counts = [(member.count_between(after_us, through_us), member) for member in self.members]
        total = sum(count for count, _ in counts)
        counted, looked_up = list[expression.Expression](), 0
        for count, member in sorted(counts, key=lambda pair: pair[0], reverse=True):
            if counted:
                looked_up += count
                if looked_up > MOST_LOOKED_UP:
                    break
                total -= sum(
                    any(other.next_after(slot_us - 1) == slot_us for other in counted)
                    for slot_us in expression.walk(member, after_us, through_us)
                )
            counted.append(member)
        return total

    def describe(self) -> str:
        never = "never by itself, only when it is triggered"
        return "; ".join(member.describe() for member in self.members) or never


def merged(expressions: Sequence[expression.Expression]) -> expression.Expression:
    """Return the union of the expressions; a single one is returned unchanged."""
    distinct = tuple(dict.fromkeys(expressions))
    return distinct[0] if len(distinct) == 1 else Merged(distinct)


@dataclass(frozen=True, slots=True, kw_only=True)
class Windowed:
    """The slots of ``inner`` in ``[start_us, end_us)``."""

    inner: expression.Expression
    start_us: int
    end_us: int

    def next_after(self, instant_us: int) -> int | None:
        slot_us = self.inner.next_after(max(instant_us, self.start_us - 1))
        return slot_us if slot_us is not None and slot_us < self.end_us else None

    def previous_before(self, instant_us: int) -> int | None:
        slot_us = self.inner.previous_before(min(instant_us, self.end_us))
        return slot_us if slot_us is not None and slot_us >= self.start_us else None

    def count_between(self, after_us: int, through_us: int) -> int:
        first_us, last_us = max(after_us, self.start_us - 1), min(through_us, self.end_us - 1)
        return self.inner.count_between(first_us, last_us) if first_us < last_us else 0

    def describe(self) -> str:
        words = self.inner.describe()
        if self.start_us > expression.FIRST_US:
            words += f", from {expression.utc_text(self.start_us)}"
        if self.end_us <= expression.LAST_US:
            words += f", before {expression.utc_text(self.end_us)}"
        return words


def windowed(
    inner: expression.Expression, *, start_us: int | None, end_us: int | None
) -> expression.Expression:
    """Return the expression cut to the window; unchanged if neither end is given."""
    if start_us is None and end_us is None:
        return inner
    return Windowed(
        inner=inner,
        start_us=expression.FIRST_US if start_us is None else start_us,
        end_us=expression.LAST_US + 1 if end_us is None else end_us,
    )


#: Bytes of an expression and its rule, without times and days.
_EXPRESSION_BYTES, _CRON_BYTES = 1_000, 1_800


def size_of(compiled: expression.Expression) -> int:
    """Return the most bytes an expression takes, with its caches; shared parts count in full."""
    match compiled:
        case cron.Cron():
            return _CRON_BYTES + compiled.pattern.size_bytes
        case Merged():
            return _EXPRESSION_BYTES + sum(map(size_of, compiled.members))
        case Windowed():
            return _EXPRESSION_BYTES + size_of(compiled.inner)
        case _:
            return _EXPRESSION_BYTES
