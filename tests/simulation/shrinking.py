"""A failing story made short, and kept as a file that a test plays for ever.

Events are taken away (half of them, a quarter, one by one) for as long as the story still fails in
the same way, then Schedules, then answers of receivers. Files are in ``found``.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from tests.simulation.plans import Story

FOUND = Path(__file__).parent / "found"

Fails = Callable[[Story], bool]
ItemT = TypeVar("ItemT")


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A story that failed once.

    Attributes:
        what: the defect, in a line.
        problems: what the judge said.
    """

    what: str
    seed: int
    story: Story
    problems: list[str]


def shrunk(story: Story, fails: Fails) -> Story:
    """The shortest story found that still fails."""
    events = _fewest(story.events, lambda left: fails(dataclasses.replace(story, events=left)))
    story = dataclasses.replace(story, events=events)
    planned = _fewest(
        story.schedules,
        lambda left: bool(left) and fails(dataclasses.replace(story, schedules=left)),
    )
    story = dataclasses.replace(story, schedules=planned)
    plain = dataclasses.replace(story, answers={})
    return plain if story.answers and fails(plain) else story


def _fewest(items: Sequence[ItemT], fails: Callable[[list[ItemT]], bool]) -> list[ItemT]:
    """Delta debugging: no item of the result can be left out."""
    left, size = list(items), max(1, len(items) // 2)
    while left:
        for fewer in _without_each(left, size):
            if fails(fewer):
                left = fewer
                break
        else:
            if size == 1:
                break
            size //= 2
    return left


def _without_each(items: list[ItemT], size: int) -> Iterator[list[ItemT]]:
    for first in range(0, len(items), size):
        yield items[:first] + items[first + size :]


def keep(found: Found, folder: Path = FOUND) -> Path:
    """Write it; the name is that of its content."""
    folder.mkdir(exist_ok=True)
    content = msgspec.json.format(msgspec.json.encode(found), indent=1)
    path = folder / f"seed{found.seed}-{hashlib.sha256(content).hexdigest()[:8]}.json"
    path.write_bytes(content + b"\n")
    return path


def read(path: Path) -> Found:
    """A file of ``keep``."""
    return msgspec.json.decode(path.read_bytes(), type=Found)
