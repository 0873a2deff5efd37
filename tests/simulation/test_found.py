"""Stories that failed once, and random ones."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.simulation import history, oracle, stories
from tests.simulation.plans import Story

#: The first seeds; `make simulate` plays as many as you ask for.
SEEDS = range(1, 41)
FILES = sorted((Path(__file__).parent / "found").glob("*.json"))


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A story that failed once.

    Attributes:
        what: the defect, in a line.
        problems: those that the judge found.
    """

    what: str
    seed: int
    story: Story
    problems: list[str]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_story_ends_well(valkey, seed):
    assert oracle.judge(history.run(stories.of_seed(seed), seed, valkey)) == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_failed_once_is_mended(valkey, path):
    found = msgspec.json.decode(path.read_bytes(), type=Found)
    assert oracle.judge(history.run(found.story, found.seed, valkey)) == []
