"""``duepoint next``, ``previous`` and ``explain``: the slots of one expression, and its meaning.

``next`` begins strictly after ``--from`` and goes on, ``previous`` begins strictly before it and
goes back. Slots are computed one by one as they are written, so any ``--count`` streams.

``explain`` takes the engine's words for the fields, its next slots, and its slots around the next
changes of the clock. A change of a zone's offset matters to a cron expression when some of its
local times lie among those that the clock jumps over (a gap) or shows twice (an overlap). It also
says what a CronJob with the same expression would do otherwise.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import click

from duepoint import errors, expressions
from duepoint.cli import instants, options, output
from duepoint.cli.cronjob import differences
from duepoint.cli.options import AskedExpression
from duepoint.expressions import cron, every, expression, syntax, timezones

_SECOND_US = expression.SECOND_US
_DAY = 86_400
_WIDTHS = {"scheduledTime": 24, "local": 32}
#: So many local times are listed one by one.
_LISTED = 4
#: Slots that ``explain`` shows.
_SHOWN = 3


_count = click.option(
    "--count", default="1", metavar="N", show_default=True, help="How many slots to print."
)


@click.command("next")
@options.asking
@_count
@options.output_format
def next_slots(count: str, form: str, **given: Any) -> None:  # noqa: ANN401 - for options.asked
    """Print when the expression EXPR runs next."""
    asked = options.asked(**given)
    _show_slots(_walk(asked, asked.expression.next_after), asked, count, form, "after")


@click.command("previous")
@options.asking
@_count
@options.output_format
def previous_slots(count: str, form: str, **given: Any) -> None:  # noqa: ANN401 - for options.asked
    """Print when the expression EXPR ran last, newest first."""
    asked = options.asked(**given)
    _show_slots(_walk(asked, asked.expression.previous_before), asked, count, form, "before")


def _walk(asked: AskedExpression, step: Callable[[int], int | None]) -> Iterator[int]:
    slot_us = step(asked.from_us)
    while slot_us is not None:
        yield slot_us
        slot_us = step(slot_us)


def _show_slots(
    slots_us: Iterator[int], asked: AskedExpression, count: str, form: str, side: str
) -> None:
    local = instants.LocalTime(asked.time_zone)
    rows = (_slot(slot_us, local) for slot_us in itertools.islice(slots_us, _number(count)))
    if output.write(rows, form, widths=_WIDTHS) == 0:
        when = instants.utc_text(asked.from_us)
        output.complain(f"{errors.quoted(asked.text)} has no slot {side} {when}")
        raise click.exceptions.Exit(output.NOTHING)


def _slot(slot_us: int, local: instants.LocalTime) -> dict[str, str]:
    return {"scheduledTime": instants.utc_text(slot_us), "local": local.text(slot_us)}


def _number(text: str) -> int:
    if not text.isascii() or not text.lstrip("-").isdecimal() or len(text) > 18:
        raise errors.InvalidSetting("--count", f"{errors.quoted(text)} is not a whole number")
    number = int(text)
    if number < 1:
        raise errors.InvalidSetting("--count", f"{number} is too small; write 1 or more")
    return number


@click.command("explain")
@options.asking
@options.text_format
def explain(form: str, **given: Any) -> None:  # noqa: ANN401 - click's values, for options.asked
    """Say in plain words when the expression EXPR runs.

    Names the next dates on which daylight saving makes it behave specially, and what a CronJob
    with the same expression would do otherwise.
    """
    asked = options.asked(**given)
    local = instants.LocalTime(asked.time_zone)
    coming = itertools.islice(_walk(asked, asked.expression.next_after), _SHOWN)
    found = {
        "expression": asked.text.strip(),
        "timeZone": asked.time_zone,
        "meaning": asked.expression.describe(),
        "next": [_slot(slot_us, local) for slot_us in coming],
        "clockChanges": list(_clock_changes(asked, local)),
        "cronJob": list(_cronjob(asked, local)),
    }
    _show_meaning(found, form)
    if not found["next"]:
        output.complain(f"{errors.quoted(asked.text)} has no slot after --from")
        raise click.exceptions.Exit(output.NOTHING)


def _show_meaning(found: dict[str, Any], form: str) -> None:
    if form == "json":
        sys.stdout.write(json.dumps(found) + "\n")
        return
    output.say(found["expression"])
    output.say(f"  {found['meaning']}")
    for times in found["next"]:
        output.say(f"  next {times['scheduledTime']}  {times['local']}")
    for change in found["clockChanges"]:
        output.say(f"  {change['text']}")
    for line in found["cronJob"]:
        output.say(f"  CronJob: {line}")


# -- daylight saving -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockChange:
    """A change of the clock that concerns an expression.

    Attributes:
        at_us: the instant at which the offset changes.
        is_gap: local times are missing; else they come twice.
        local_from, local_to: the local times ``[local_from, local_to)`` concerned, in seconds
            since 1970-01-01T00:00:00 by the wall clock.
        times: the first of the expression's local times among them.
        count: how many there are.
    """

    at_us: int
    is_gap: bool
    local_from: int
    local_to: int
    times: tuple[int, ...]
    count: int

    def slots_us(self, of: expressions.Expression) -> list[int]:
        """The slots that stand for these local times: mostly one or two, at most a hundred."""
        width_us = 0 if self.is_gap else (self.local_to - self.local_from) * _SECOND_US
        slot_us = of.next_after(self.at_us - width_us - 1)
        last_us = self.at_us if self.is_gap else self.at_us + width_us - 1
        found: list[int] = []
        while slot_us is not None and slot_us <= last_us and len(found) < 100:
            found.append(slot_us)
            slot_us = of.next_after(slot_us)
        return found


def _coming_changes(asked: cron.Cron, time_zone: str, from_us: int) -> list[ClockChange]:
    """The next gap and the next overlap that concern the expression, in order."""
    found: dict[bool, ClockChange] = {}
    for change in _changes(asked, time_zone, from_us):
        found.setdefault(change.is_gap, change)
        if len(found) == 2:
            break
    return sorted(found.values(), key=lambda change: change.at_us)


def _clocks_change(time_zone: str, from_us: int) -> bool:
    """Whether clocks in the zone still change."""
    starts = timezones.load(time_zone).starts
    return len(starts) > 1 and starts[-1] * _SECOND_US > from_us


def _changes(asked: cron.Cron, time_zone: str, from_us: int) -> Iterator[ClockChange]:
    zone = timezones.load(time_zone)
    pairs = zip(zone.starts[1:], zone.offsets, zone.offsets[1:], strict=False)
    for start, before, after in pairs:
        if start * _SECOND_US <= from_us:
            continue
        local_from, local_to = sorted((start + before, start + after))
        count = asked.pattern.count(local_from, local_to)
        if count:
            yield ClockChange(
                at_us=start * _SECOND_US,
                is_gap=after > before,
                local_from=local_from,
                local_to=local_to,
                times=_clock_times(asked, local_from, local_to),
                count=count,
            )


def _clock_times(asked: cron.Cron, local_from: int, local_to: int) -> tuple[int, ...]:
    times: list[int] = []
    local = asked.pattern.first_from(local_from)
    while local < local_to and len(times) < _LISTED:
        times.append(local)
        local = asked.pattern.first_from(local + 1)
    return tuple(times)


def _clock_text(local: int) -> str:
    """A local time of day, with seconds only where there are any."""
    hours, rest = divmod(local % _DAY, 3_600)
    minutes, seconds = divmod(rest, 60)
    return f"{hours:02}:{minutes:02}" + (f":{seconds:02}" if seconds else "")


def _clock_changes(asked: AskedExpression, local: instants.LocalTime) -> Iterator[dict[str, Any]]:
    known = asked.expression
    if not isinstance(known, cron.Cron):
        yield {"text": "It takes no notice of daylight saving."}
        return
    if not _clocks_change(asked.time_zone, asked.from_us):
        yield {"text": f"The clocks of {asked.time_zone} do not change."}
        return
    sweeping = syntax.parse(asked.text.strip(), identity=asked.identity).sweeping
    changes = _coming_changes(known, asked.time_zone, asked.from_us)
    if sweeping and changes:
        yield {"text": "Its rhythm goes on through changes of the clock; dst means nothing here."}
    if not changes:
        yield {"text": "No change of the clock concerns its times."}
    for change in changes:
        slots_us = change.slots_us(known)
        chosen = asked.gap.value if change.is_gap else asked.overlap.value
        behaviour = "Cadence" if sweeping else str(chosen)
        yield {
            "date": local.text(change.at_us)[:10],
            "kind": "Gap" if change.is_gap else "Overlap",
            "behaviour": behaviour,
            "scheduledTimes": [instants.utc_text(slot_us) for slot_us in slots_us],
            "text": _sentence(change, behaviour, slots_us, local, asked),
        }


def _sentence(
    change: ClockChange,
    behaviour: str,
    slots_us: list[int],
    local: instants.LocalTime,
    asked: AskedExpression,
) -> str:
    begin, end = (_clock_text(edge) for edge in (change.local_from, change.local_to))
    times = _listed(change)
    day = local.text(change.at_us)[:10]
    verb = "do" if change.count > 1 else "does"
    if change.is_gap:
        sentence = f"{day}: clocks jump from {begin} to {end}, so {times} {verb} not exist; it "
    else:
        come = "come" if change.count > 1 else "comes"
        sentence = f"{day}: clocks go back from {end} to {begin}, so {times} {come} twice; it "
    return sentence + _what_it_does(change, behaviour, slots_us, local, asked)


def _what_it_does(
    change: ClockChange,
    behaviour: str,
    slots_us: list[int],
    local: instants.LocalTime,
    asked: AskedExpression,
) -> str:
    at = ", ".join(local.text(slot_us) for slot_us in slots_us[:4])
    at += ", ..." * (len(slots_us) > 4)
    match behaviour:
        case "Cadence" if change.is_gap:
            before = asked.expression.previous_before(change.at_us)
            after = asked.expression.next_after(change.at_us - 1)
            edges = [local.text(edge) for edge in (before, after) if edge is not None]
            return f"goes on from {' to '.join(edges)}"
        case "Cadence":
            return "runs at each of them"
        case "RunOnce":
            return f"runs once, at {at} (gap: RunOnce)"
        case "Skip":
            return "does not run for them (gap: Skip)"
        case "Both":
            return f"runs both times, at {at} (overlap: Both)"
    which = "first" if behaviour == "First" else "second"
    return f"runs the {which} time only, at {at} (overlap: {behaviour})"


def _listed(change: ClockChange) -> str:
    times = [_clock_text(time) for time in change.times]
    if change.count > len(times):
        return f"{', '.join(times)} and {change.count - len(times)} more"
    return times[0] if len(times) == 1 else f"{', '.join(times[:-1])} and {times[-1]}"


# -- CronJob ---------------------------------------------------------------------------------


def _cronjob(asked: AskedExpression, local: instants.LocalTime) -> Iterator[str]:
    if why := differences.refusal(asked.text):
        yield f"refuses this expression ({why})"
        return
    known = asked.expression
    if isinstance(known, every.Every):
        yield "counts from its last run or its creation, in whole seconds and at least one"
        return
    if not isinstance(known, cron.Cron):
        return
    found = differences.differences(asked.text, known, asked.time_zone, asked.from_us)
    yield from (difference.text(local) for difference in found)
    if not found and known.next_after(asked.from_us) is not None:
        yield "runs at the same times"
