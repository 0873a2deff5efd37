"""Small stories for exhaustive tests: every event at every message of a stretch of time."""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

from tests.simulation import chance, faults
from tests.simulation.faults import Event, Kind
from tests.simulation.history import Record
from tests.simulation.plans import BEGIN_US, TARGETS, Planned, Story

#: When the slot of the story is due after its begin; a later one shows that all is well again.
SLOT_SECONDS = 8.0
PERIOD_SECONDS = 80.0


def clock_text(seconds: float) -> str:
    """Return the instant that lies this long after the begin, as text for a manifest."""
    at = (chance.BASE_US + BEGIN_US) / 1e6 + seconds
    return dt.datetime.fromtimestamp(at, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def one_slot(target: str, **fields: object) -> Story:
    """Return a story of one Schedule, with a slot that events hit and another one long after it."""
    timing = {"schedule": f"@every {PERIOD_SECONDS:g}s", "startTime": clock_text(SLOT_SECONDS)}
    planned = Planned(name="one", target=target, timing={**timing, **fields})
    return Story(schedules=[planned], seconds=SLOT_SECONDS + PERIOD_SECONDS + 2)


def one_member(target: str) -> Story:
    """Return a story of two members that fire once: at the slot, and long after it."""
    instants = (SLOT_SECONDS, SLOT_SECONDS + PERIOD_SECONDS)
    planned = [
        Planned(
            name=f"set/{name}",
            target=target,
            timing={"schedule": f"@at {clock_text(seconds)}"},
            apply_seconds=6.0,
        )
        for name, seconds in zip(("one", "two"), instants, strict=True)
    ]
    return Story(schedules=planned, seconds=SLOT_SECONDS + PERIOD_SECONDS + 2)


#: The stories, by name.
STORIES: Mapping[str, Callable[[], Story]] = {
    **{target: functools.partial(one_slot, target) for target in TARGETS},
    "history": functools.partial(one_slot, "job", successfulJobsHistoryLimit=0),
    "forbid": functools.partial(one_slot, "job", concurrencyPolicy="Forbid"),
    "replace": functools.partial(one_slot, "webhook", concurrencyPolicy="Replace"),
    "queue": functools.partial(one_slot, "webhook", concurrencyPolicy="Queue"),
    "all": functools.partial(one_slot, "webhook", catchUpPolicy="All"),
    **{f"member-{target}": functools.partial(one_member, target) for target in TARGETS},
}


def points(record: Record, first_seconds: float, last_seconds: float) -> list[int]:
    """Return the numbers of the messages in a stretch of time after the begin."""
    first, last = (BEGIN_US + round(each * 1e6) for each in (first_seconds, last_seconds))
    return [message.number for message in record.messages if first <= message.at_us <= last]


def of_slot(record: Record) -> list[int]:
    """Return messages from just before the slot until its Job has ended and its status says so."""
    return points(record, SLOT_SECONDS - 0.1, SLOT_SECONDS + 4.5)


def of_applying(record: Record) -> list[int]:
    """Return the messages that arm the Schedule."""
    begin = record.story.schedules[0].apply_seconds
    return points(record, begin, begin + 0.5)


def singles(numbers: Sequence[int], kinds: Sequence[Kind]) -> Iterator[Event]:
    """Yield each event at each message; fallbacks lose one, three and thirty commands."""
    for number in numbers:
        for kind in kinds:
            if kind is Kind.FALL_BACK:
                yield from (faults.usual(kind, number, lost) for lost in (1.0, 3.0, 30.0))
            else:
                yield faults.usual(kind, number)


def with_events(story: Story, *events: Event) -> Story:
    return dataclasses.replace(story, events=events)


def of_firing(record: Record) -> list[int]:
    """Return the messages of workers from just before the slot until it is settled."""
    return [
        number
        for number in points(record, SLOT_SECONDS - 0.1, SLOT_SECONDS + 0.3)
        if record.messages[number].process.name.startswith("worker")
    ]


#: Kinds that set Redis's clock wrong: with a process's clock wrong too, nothing is promised.
_OF_SERVER_CLOCK = frozenset({Kind.SERVER_AHEAD, Kind.SERVER_BEHIND})


def kinds(numbers: Sequence[int]) -> Iterator[tuple[Event, Event]]:
    """Yield each ordered pair of kinds of events, each at two messages of the slot.

    The choice of messages rotates, so that every two messages get a share of the pairs.
    """
    places = itertools.cycle(itertools.combinations(numbers, 2))
    for one, other in itertools.product(Kind, repeat=2):
        clocks = {one, other} & faults.OF_CLOCKS
        if clocks & _OF_SERVER_CLOCK and clocks - _OF_SERVER_CLOCK:
            continue
        first, second = next(places)
        yield faults.usual(one, first), faults.usual(other, second)
