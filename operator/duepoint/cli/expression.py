"""``duepoint next`` and ``explain``: the slots of one expression, and its meaning.

Slots are computed one by one as they are written, so any ``--count`` streams. The meaning consists
of the engine's words for the fields, of the slots around the next clock changes, and of what a
CronJob with the same expression would do differently. A clock change matters to a cron expression
if some of its local times are skipped (a gap) or come twice (an overlap). ``H`` is refused without
an identity: it is a hash of the identity, and any other answer would be wrong. ``@every`` is
anchored at ``--anchor``, else at ``--from``.
"""

from __future__ import annotations

import itertools
import re
import sys
import time
from collections.abc import Callable, Iterator

import click

from duepoint import errors, expressions
from duepoint.cli import instants, options, output
from duepoint.cli.cronjob import differences
from duepoint.expressions import advice, cron, descriptors, expression, syntax

_SECOND_US = expression.SECOND_US


#: Most bytes to read from standard input: far more than the longest valid expression.
_INPUT_LIMIT = 4096
_USES_HASH = re.compile(r"(?<![A-Za-z])H(?![A-Za-z])", re.IGNORECASE)


@click.command("next")
@click.argument("expr")
@click.option(
    "--time-zone",
    default="Etc/UTC",
    metavar="ZONE",
    type=options.ZONE,
    show_default=True,
    help="IANA zone of the expression.",
)
@click.option(
    "--from",
    "from_",
    default="now",
    metavar="TIME",
    show_default=True,
    help="RFC 3339; without an offset in the zone asked for.",
)
@click.option(
    "--identity",
    metavar="NAMESPACE/NAME",
    type=options.Converted(options.namespaced),
    help="The object whose name H hashes.",
)
@click.option(
    "--dst-gap",
    "gap",
    default="RunOnce",
    metavar="RunOnce|Skip",
    type=click.Choice(("RunOnce", "Skip")),
    show_default=True,
    help="A fixed time that does not exist: run once right after the gap, or not at all.",
)
@click.option(
    "--dst-overlap",
    "overlap",
    default="First",
    metavar="First|Second|Both",
    type=click.Choice(("First", "Second", "Both")),
    show_default=True,
    help="A fixed time that exists twice: which of the two runs.",
)
@click.option(
    "--anchor",
    metavar="TIME",
    help="Where @every counts from, as startTime does. Unset: the time of --from.",
)
@click.option(
    "--count",
    default="3",
    metavar="N",
    type=int,
    show_default=True,
    help="How many slots to print; -3 = the last three before --from, newest first.",
)
@options.output_format
def next_slots(
    *, expr: str, time_zone: str, from_: str, identity: str | None, gap: str, overlap: str,
    anchor: str | None, count: int, form: str,
) -> None:  # fmt: skip
    """Say in plain words when the expression EXPR runs, and print its next slots.

    The text names the next dates when daylight saving makes the expression behave specially,
    and what a CronJob with it would do otherwise. JSON and YAML have the slots alone.

    next and explain are two names of this command.

    Example: duepoint next '30 2 * * *' --time-zone Europe/Rome
    """
    from_us = instants.parse_us(from_, zone=time_zone, name="--from")
    anchor_us = from_us - from_us % _SECOND_US  # whole seconds, like a creationTimestamp
    if anchor is not None:
        anchor_us = instants.parse_us(anchor, zone=time_zone, name="--anchor")
    text = expr
    if expr == "-":
        text = sys.stdin.buffer.read(_INPUT_LIMIT).decode("utf-8", "replace")
    text = text.strip()
    ways = expressions.Gap(gap), expressions.Overlap(overlap)
    try:
        known = expressions.compile_expression(
            text, time_zone=time_zone, gap=ways[0], overlap=ways[1], identity=identity or "",
            anchor_us=anchor_us,
        )  # fmt: skip
    except errors.InvalidExpression as error:
        # Remove the text at its beginning, which InvalidSetting repeats.
        message = str(error).removeprefix(f"{errors.quoted(text)} ")
        raise errors.InvalidSetting(errors.quoted(text), message) from None
    if not identity and not text.startswith("@") and _USES_HASH.search(text):
        raise errors.InvalidSetting(
            errors.quoted(text), "H is a hash of the object's name; write --identity namespace/name"
        )
    local = instants.LocalTime(time_zone)
    step, side = (known.next_after, "after") if count > 0 else (known.previous_before, "before")
    rows = (
        {"scheduledTime": instants.utc_text(slot_us), "local": local.text(slot_us)}
        for slot_us in itertools.islice(_walk(step, from_us), abs(count))
    )
    if output.is_data(form):
        found = output.write(rows, form)
    else:
        output.say(text)
        output.say(f"  {known.describe()}")
        found, which = 0, "next" if count > 0 else "last"
        for found, row in enumerate(rows, start=1):  # noqa: B007 - how many there were
            output.say(f"  {which} {row['scheduledTime']}  {row['local']}")
        for note in advice.of_other_schedulers(text):
            output.say(f"  note: {note}")
        for sentence in _clock_changes(
            known, text, local, ways, identity=identity or "", from_us=from_us
        ):
            output.say(f"  {sentence}")
        theirs = differences.sentences(text, time_zone, from_us, *ways)
        for sentence in theirs or ("runs at the same times",) * bool(found):
            output.say(f"  CronJob: {sentence}")
    if not found and text != descriptors.NEVER:
        when = instants.utc_text(from_us)
        output.complain(f"{errors.quoted(text)} has no slot {side} {when}")


def _walk(step: Callable[[int], int | None], from_us: int) -> Iterator[int]:
    slot_us = step(from_us)
    while slot_us is not None:
        yield slot_us
        slot_us = step(slot_us)


# -- daylight saving -------------------------------------------------------------------------


#: The most times to list one by one.
_LISTED = 4


def _clock_changes(
    known: expressions.Expression, text: str, local: instants.LocalTime,
    ways: tuple[expressions.Gap, expressions.Overlap], *, identity: str, from_us: int,
) -> Iterator[str]:  # fmt: skip
    """Yield what happens to the expression at the next gap and the next overlap that affect it."""
    zone = local.zone
    if not isinstance(known, cron.Cron):
        yield "It ignores daylight saving."
        return
    if zone.starts[1:] == () or zone.starts[-1] * _SECOND_US <= from_us:
        yield f"The clocks of {zone.name} do not change."
        return
    if syntax.parse(text, identity=identity).sweeping:
        yield "Its period continues through clock changes; dst has no effect on it."
        return
    changes: dict[bool, str] = {}
    days: dict[bool, str] = {}
    for start, before, after in zone.changes_after(from_us // _SECOND_US):
        is_gap = after > before
        day = local.text(start * _SECOND_US)[:10]
        days.setdefault(is_gap, day)
        span = min(start + before, start + after), max(start + before, start + after)
        if is_gap in changes or not known.pattern.count(*span):
            continue
        # with seconds only if there are any
        begin, end = (
            time.strftime("%H:%M:%S", time.gmtime(each)).removesuffix(":00") for each in span
        )
        changed = f"jump from {begin} to {end}" if is_gap else f"go back from {end} to {begin}"
        width = 0 if is_gap else span[1] - span[0]
        first_us, last_us = (start - width) * _SECOND_US, (start + width) * _SECOND_US
        runs = expression.walk(known, first_us - 1, last_us - bool(width))
        at = ", ".join(local.text(slot_us) for slot_us in itertools.islice(runs, _LISTED))
        does = _DOES[ways[0] if is_gap else ways[1]].format(at)
        changes[is_gap] = f"{day}: clocks {changed}; it {does}"
        if len(changes) == 2:
            break
    next_days = " and ".join(days.values())
    none = f"No clock change affects its times; the next changes are on {next_days}."
    yield from changes.values() or [none]


#: What happens to times that do not exist, and to times that come twice.
_DOES = {
    expressions.Gap.RUN_ONCE: "runs once, at {} (gap: RunOnce)",
    expressions.Gap.SKIP: "does not run in between (gap: Skip)",
    expressions.Overlap.FIRST: "runs the first time only, at {} (overlap: First)",
    expressions.Overlap.SECOND: "runs the second time only, at {} (overlap: Second)",
    expressions.Overlap.BOTH: "runs both times, at {} (overlap: Both)",
}
