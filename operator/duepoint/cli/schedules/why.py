"""``duepoint why``: why a Schedule does not run, or what became of one of its slots.

Answers from the API server alone, with the rights of the person who asks: the Schedule, its Jobs
and Events, and the Lease of the operator.
The answer is the cause, since when, and what to do next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import click

from duepoint.cli import cluster, instants, options, output
from duepoint.cli.schedules import causes, gathering
from duepoint.cli.schedules.facts import ScheduleFacts
from duepoint.schedules import diagnosis


@click.command()
@options.schedule_name
@click.option(
    "--at",
    metavar="TIME",
    type=options.SLOT_TIME,
    help="The slot that is meant: RFC 3339, HH:MM for the last such time, or yesterday HH:MM;"
    " without an offset in the Schedule's zone. Unset: how it stands now.",
)
@options.output_format
@options.of_one
def why(
    name: str,
    *,
    at: str | None,
    form: str,
    place: options.Place,
) -> None:
    """Say why the Schedule NAME does not run, since when, and what to do next.

    Example: duepoint why report -n team-a --at 02:30
    """
    facts = asyncio.run(gathered(place, name))
    now_us = instants.now_us()
    if at is None:
        answer = causes.now(facts, now_us)
    else:
        answer = causes.of_slot(
            facts, instants.parse_last_us(at, zone=facts.zone, name="--at"), now_us
        )
    show(facts, answer, form)


async def gathered(place: options.Place, name: str) -> ScheduleFacts:
    """The facts of a Schedule."""
    async with cluster.session(place) as server:
        return await gathering.facts(server, name)


# -- showing -------------------------------------------------------------------------------------


def show(facts: ScheduleFacts, answer: causes.Explanation, form: str) -> None:
    """The answer for people, or as one object."""
    if output.is_data(form):
        output.write([row(facts, answer)], form)
        return
    for line in lines(facts, answer):
        output.say(line)


def row(facts: ScheduleFacts, answer: causes.Explanation) -> output.Row:
    """The answer under the names of the JSON output."""
    first = answer.cause
    return {
        "namespace": facts.namespace,
        "schedule": facts.name,
        "slot": output.time(answer.slot_us or None),
        "cause": first.cause,
        "message": first.text,
        "since": output.time(first.since_us or None),
        "do": list(_steps(facts, answer)),
        "also": [
            {"cause": one.cause, "message": one.text, "since": output.time(one.since_us or None)}
            for one in answer.findings[1:]
        ],
        "next": output.time(facts.next_us or None),
    }


def lines(facts: ScheduleFacts, answer: causes.Explanation) -> Iterator[str]:
    """The answer in lines: cause, since when, what to do, what else, and the last slots."""
    first = answer.cause
    slot = f", slot {instants.LocalTime(facts.zone).text(answer.slot_us)}" if answer.slot_us else ""
    yield f"{facts.identity}{slot}: {first.cause}"
    yield f"  cause  {first.text or first.cause}"
    if first.since_us:
        ago = output.span((instants.now_us() - first.since_us) / 1_000_000)
        since = instants.utc_text(first.since_us - first.since_us % 1_000_000)
        yield f"  since  {since} ({ago} ago)"
    for number, step in enumerate(_steps(facts, answer)):
        yield f"  {'do   ' if number == 0 else '     '}  {step}"
    for one in answer.findings[1:]:
        yield f"  also   {one.cause}: {one.text}"
    if facts.next_us:
        yield f"  next   {instants.LocalTime(facts.zone).text(facts.next_us)}"


def _steps(facts: ScheduleFacts, answer: causes.Explanation) -> tuple[str, ...]:
    """What to do about the cause, in commands that can be copied."""
    at = {"at": instants.utc_text(answer.slot_us)} if answer.slot_us else {}
    return diagnosis.steps_for(answer.cause.cause, namespace=facts.namespace, name=facts.name, **at)
