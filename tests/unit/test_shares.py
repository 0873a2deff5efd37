"""Places and cached bytes of several owners: bounded, fair, never all of one owner's."""

from __future__ import annotations

import asyncio

import pytest

from duepoint import shares
from tests.support.taking import take_all


@pytest.mark.parametrize(
    ("places", "greed", "parts"),
    [(32, 1, [16, 8, 4, 2, 1, 1]), (256, shares.GREED, [192, 48, 12, 3, 1])],
    ids=["look-ups", "webhooks, Kafka and other Redis"],
)
def test_who_owns_several_namespaces_can_have_every_place(places, greed, parts):
    """Shares count namespaces; SECURITY.md says so."""
    given_out = shares.Shares(places, greed=greed)
    assert [take_all(given_out, f"team-{number}") for number in range(len(parts))] == parts
    assert given_out.taken == places
    assert not given_out.has_room("another")


# -- waiting ---------------------------------------------------------------------------------------


async def test_a_newcomer_waits_behind_no_line_of_others():
    places = shares.FairPlaces(8)
    while places.take("greedy"):
        pass
    waiting = [asyncio.create_task(places.wait("greedy", 5.0)) for _ in range(100)]
    await asyncio.sleep(0)
    assert places.waiting("greedy") == 100
    assert places.take("quiet")
    for one in waiting:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert places.waiting("greedy") == 0


def test_a_flood_of_one_namespace_leaves_what_another_one_holds():
    cache = shares.BytesCache(1000)
    cache.put("quiet", "a", "A", 100)
    for number in range(500):
        cache.put("hostile", number, number, 250)
    assert cache.get("quiet", "a") == "A"
    assert cache._sizes.get("hostile", 0) == 750


def test_of_the_largest_namespace_the_longest_unused_goes():
    cache = shares.BytesCache(400)
    for key in "abcd":
        cache.put("team", key, key, 100)
    assert cache.get("team", "a") == "a"
    cache.put("team", "e", "e", 100)
    assert cache.get("team", "b") is None
    assert [cache.get("team", key) for key in "acde"] == list("acde")


@pytest.mark.parametrize("answer_seconds", [0.02, 0.2])
def test_the_first_answer_of_a_burst_does_not_make_its_turns_slow(answer_seconds):
    pace = shares.Pace(0.0)
    pace.note_scarce(100.0)
    pace.note_free(100.0 + answer_seconds, is_scarce=True)
    assert pace.seconds_to_wait(31, 100.0 + answer_seconds) == 0.0
    pace.note_free(100.01 + answer_seconds, is_scarce=True)
    assert 0.0 < pace.seconds_to_wait(31, 100.01 + answer_seconds) < 0.05
