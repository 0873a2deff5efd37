"""``duepoint next`` and ``duepoint previous``: the slots of an expression.

``next`` begins strictly after ``--from`` and goes on, ``previous`` begins strictly before it and
goes back. Slots are computed one by one as they are written, so any ``--count`` streams.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import click

from duepoint import errors
from duepoint.cli import instants, options, output

_WIDTHS = {"scheduledTime": 24, "local": 32}

_count = click.option(
    "--count", default="1", metavar="N", show_default=True, help="How many slots to print."
)


@click.command("next")
@options.asking
@_count
@options.output_format
def next_slots(count: str, form: str | None, **given: Any) -> None:  # noqa: ANN401 - for options.asked
    """Print when the expression EXPR runs next."""
    asked = options.asked(**given)
    _show(_from_one_to_the_next(asked.expression.next_after, asked), asked, count, form, "after")


@click.command("previous")
@options.asking
@_count
@options.output_format
def previous_slots(count: str, form: str | None, **given: Any) -> None:  # noqa: ANN401 - for options.asked
    """Print when the expression EXPR ran last, newest first."""
    asked = options.asked(**given)
    before = asked.expression.previous_before
    _show(_from_one_to_the_next(before, asked), asked, count, form, "before")


def _show(
    slots_us: Iterator[int], asked: options.Asked, count: str, form: str | None, side: str
) -> None:
    local = instants.LocalTime(asked.time_zone)
    rows = (
        {"scheduledTime": instants.utc_text(slot_us), "local": local.text(slot_us)}
        for slot_us in itertools.islice(slots_us, _number(count))
    )
    if output.write(rows, output.format_of(form), widths=_WIDTHS) == 0:
        when = instants.utc_text(asked.from_us)
        output.complain(f"{errors.quoted(asked.text)} has no slot {side} {when}")
        raise click.exceptions.Exit(output.NOTHING)


def _from_one_to_the_next(step: Callable[[int], int | None], asked: options.Asked) -> Iterator[int]:
    slot_us = step(asked.from_us)
    while slot_us is not None:
        yield slot_us
        slot_us = step(slot_us)


def _number(text: str) -> int:
    if not text.isascii() or not text.lstrip("-").isdecimal() or len(text) > 18:
        raise errors.InvalidSetting("--count", f"{errors.quoted(text)} is not a whole number")
    number = int(text)
    if number < 1:
        raise errors.InvalidSetting("--count", f"{number} is too small; write 1 or more")
    return number
