"""Stories that failed once, and random ones."""

from __future__ import annotations

import pytest

from tests.simulation import history, oracle, shrinking, stories

#: The first seeds; `make simulate` plays as many as it is given.
SEEDS = range(1, 41)
_FILES = sorted(shrinking.FOUND.glob("*.json"))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_story_ends_well(valkey, seed):
    assert oracle.judge(history.run(stories.of_seed(seed), seed, valkey)) == []


@pytest.mark.skipif(not _FILES, reason="no story has failed yet")
def test_what_failed_once_is_mended(valkey):
    for path in _FILES:
        found = shrinking.read(path)
        assert oracle.judge(history.run(found.story, found.seed, valkey)) == [], path.name


def test_a_failing_story_is_shrunk_and_kept(valkey, tmp_path):
    """A judge that dislikes one event of many names that event alone."""
    story = next(s for s in map(stories.of_seed, range(1, 400)) if len(s.events) == 4)
    culprit = story.events[2]
    short = shrinking.shrunk(story, lambda fewer: culprit in fewer.events)
    assert list(short.events) == [culprit]
    assert len(short.schedules) == 1
    kept = shrinking.Found(what="a test", seed=5, story=short, problems=["none"])
    read = shrinking.read(shrinking.keep(kept, tmp_path))
    assert read.story == short
    record = history.run(read.story, read.seed, valkey)
    assert record.digest == history.run(short, 5, valkey).digest
