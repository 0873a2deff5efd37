"""Places of several owners become equal in the end, in many random histories."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from duepoint import shares
from tests.support.taking import take_all


@given(places=st.integers(16, 128), seed=st.integers(0, 1000))
def test_places_that_end_and_are_taken_again_become_equal(places, seed):
    chance = random.Random(seed)
    given_out = shares.Shares(places)
    take_all(given_out, "first")
    for _ in range(40 * places):
        given_out.give_back(chance.choice(_holders(given_out)))
        for owner in chance.sample(["first", "second"], 2):
            take_all(given_out, owner, most=1)
    held = given_out.held("first"), given_out.held("second")
    assert max(held) - min(held) <= places // 2  # it began with all of them and none
    assert min(held) >= places // 7


def _holders(given_out):
    return [one for one in ("first", "second") if given_out.held(one)]
