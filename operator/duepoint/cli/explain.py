"""``duepoint explain``: an expression in plain words, and the days on which it is special.

What is said comes from the engine: its words for the fields, its next slots, and its slots around
the next changes of the clock. A change of a zone's offset matters to a cron expression when some of
its local times lie among those that the clock jumps over (a gap) or shows twice (an overlap). The
CronJob's side is told where it differs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click

from duepoint import errors, expressions
from duepoint.cli import instants, options, output
from duepoint.cli.cronjob import differences
from duepoint.cli.options import Asked
from duepoint.expressions import cron, every, expression, syntax, timezones

_SECOND_US = expression.SECOND_US
_DAY = 86_400
#: So many local times are listed one by one.
_LISTED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
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


def coming(asked: cron.Cron, time_zone: str, from_us: int) -> list[Change]:
    """The next gap and the next overlap that concern the expression, in order."""
    found: dict[bool, Change] = {}
    for change in _changes(asked, time_zone, from_us):
        found.setdefault(change.is_gap, change)
        if len(found) == 2:
            break
    return sorted(found.values(), key=lambda change: change.at_us)


def has_any(time_zone: str, from_us: int) -> bool:
    """Whether clocks in the zone still change."""
    starts = timezones.load(time_zone).starts
    return len(starts) > 1 and starts[-1] * _SECOND_US > from_us


def _changes(asked: cron.Cron, time_zone: str, from_us: int) -> Iterator[Change]:
    zone = timezones.load(time_zone)
    pairs = zip(zone.starts[1:], zone.offsets, zone.offsets[1:], strict=False)
    for start, before, after in pairs:
        if start * _SECOND_US <= from_us:
            continue
        local_from, local_to = sorted((start + before, start + after))
        count = asked.pattern.count(local_from, local_to)
        if count:
            yield Change(
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


def clock_text(local: int) -> str:
    """A local time of day, with seconds only where there are any."""
    hours, rest = divmod(local % _DAY, 3_600)
    minutes, seconds = divmod(rest, 60)
    return f"{hours:02}:{minutes:02}" + (f":{seconds:02}" if seconds else "")


_SHOWN = 3


@click.command("explain")
@options.asking
@click.option("--output", "-o", "form", metavar="json|text", default="text", help="Unset: text.")
def explain(form: str, **given: Any) -> None:  # noqa: ANN401 - click's values, for options.asked
    """Say in plain words when the expression EXPR runs.

    Names the next dates on which daylight saving makes it behave specially, and what a CronJob
    with the same expression would do otherwise.
    """
    form = output.choice("--output", form, ("json", "text"))
    asked = options.asked(**given)
    local = instants.LocalTime(asked.time_zone)
    told = {
        "expression": asked.text.strip(),
        "timeZone": asked.time_zone,
        "meaning": asked.expression.describe(),
        "next": [_slot(slot_us, local) for slot_us in _coming(asked)],
        "clockChanges": list(_clock_changes(asked, local)),
        "cronJob": list(_cronjob(asked, local)),
    }
    _show(told, form)
    if not told["next"]:
        output.complain(f"{errors.quoted(asked.text)} has no slot after --from")
        raise click.exceptions.Exit(output.NOTHING)


def _show(told: dict[str, Any], form: str) -> None:
    if form == "json":
        sys.stdout.write(json.dumps(told) + "\n")
        return
    output.say(told["expression"])
    output.say(f"  {told['meaning']}")
    for times in told["next"]:
        output.say(f"  next {times['scheduledTime']}  {times['local']}")
    for change in told["clockChanges"]:
        output.say(f"  {change['text']}")
    for line in told["cronJob"]:
        output.say(f"  CronJob: {line}")


def _coming(asked: Asked) -> Iterator[int]:
    slot_us = asked.expression.next_after(asked.from_us)
    for _ in range(_SHOWN):
        if slot_us is None:
            return
        yield slot_us
        slot_us = asked.expression.next_after(slot_us)


def _slot(slot_us: int, local: instants.LocalTime) -> dict[str, str]:
    return {"scheduledTime": instants.utc_text(slot_us), "local": local.text(slot_us)}


# -- daylight saving -------------------------------------------------------------------------


def _clock_changes(asked: Asked, local: instants.LocalTime) -> Iterator[dict[str, Any]]:
    known = asked.expression
    if not isinstance(known, cron.Cron):
        yield {"text": "It takes no notice of daylight saving."}
        return
    if not has_any(asked.time_zone, asked.from_us):
        yield {"text": f"The clocks of {asked.time_zone} do not change."}
        return
    sweeping = syntax.parse(asked.text.strip(), identity=asked.identity).sweeping
    changes = coming(known, asked.time_zone, asked.from_us)
    if sweeping and changes:
        yield {"text": "Its rhythm goes on through changes of the clock; dst means nothing here."}
    if not changes:
        yield {"text": "No change of the clock concerns its times."}
    for change in changes:
        slots_us = change.slots_us(known)
        behaviour = "Cadence" if sweeping else _choice(change, asked)
        yield {
            "date": local.text(change.at_us)[:10],
            "kind": "Gap" if change.is_gap else "Overlap",
            "behaviour": behaviour,
            "scheduledTimes": [instants.utc_text(slot_us) for slot_us in slots_us],
            "text": _sentence(change, behaviour, slots_us, local, asked),
        }


def _choice(change: Change, asked: Asked) -> str:
    return str(asked.gap.value if change.is_gap else asked.overlap.value)


def _sentence(
    change: Change, behaviour: str, slots_us: list[int], local: instants.LocalTime, asked: Asked
) -> str:
    begin, end = (clock_text(edge) for edge in (change.local_from, change.local_to))
    times = _listed(change)
    day = local.text(change.at_us)[:10]
    verb = "do" if change.count > 1 else "does"
    if change.is_gap:
        said = f"{day}: clocks jump from {begin} to {end}, so {times} {verb} not exist; it "
    else:
        come = "come" if change.count > 1 else "comes"
        said = f"{day}: clocks go back from {end} to {begin}, so {times} {come} twice; it "
    return said + _what_it_does(change, behaviour, slots_us, local, asked)


def _what_it_does(
    change: Change, behaviour: str, slots_us: list[int], local: instants.LocalTime, asked: Asked
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


def _listed(change: Change) -> str:
    times = [clock_text(time) for time in change.times]
    if change.count > len(times):
        return f"{', '.join(times)} and {change.count - len(times)} more"
    return times[0] if len(times) == 1 else f"{', '.join(times[:-1])} and {times[-1]}"


# -- CronJob ---------------------------------------------------------------------------------


def _cronjob(asked: Asked, local: instants.LocalTime) -> Iterator[str]:
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
    yield from differences.texts(found, local)
    if not found and known.next_after(asked.from_us) is not None:
        yield "runs at the same times"
