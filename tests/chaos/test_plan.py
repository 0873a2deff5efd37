"""Plans of faults: the same for a seed, every kind in its turn, calm between the rounds."""

from __future__ import annotations

import pytest

from tests.chaos import plan
from tests.chaos.plan import FaultKind, Rhythm

RHYTHM = Rhythm(
    rounds=3, faults_seconds=30, calm_seconds=40, every_seconds=1.0, costly_every_seconds=1.5
)
KINDS = list(FaultKind)


def test_a_seed_is_a_plan():
    assert plan.of_seed(7, RHYTHM, KINDS) == plan.of_seed(7, RHYTHM, reversed(KINDS))
    assert plan.of_seed(7, RHYTHM, KINDS) != plan.of_seed(8, RHYTHM, KINDS)


OTHERS = frozenset(KINDS) - plan.COSTLY - plan.OF_RECEIVER


@pytest.mark.parametrize("deck", [plan.COSTLY, plan.OF_RECEIVER, OTHERS])
def test_no_kind_comes_twice_before_each_of_its_deck_has_come_once(deck):
    found = [one.kind for one in plan.of_seed(7, RHYTHM, KINDS) if one.kind in deck]
    size = len(deck)
    assert len(found) >= 2 * size
    assert set(found[:size]) == set(found[size : 2 * size]) == deck


def test_a_plan_of_one_kind_has_no_other():
    found = {one.kind for one in plan.of_seed(7, RHYTHM, [FaultKind.KILL_API])}
    assert found == {FaultKind.KILL_API}


def test_nothing_begins_in_the_calm():
    for one in plan.of_seed(7, RHYTHM, KINDS):
        assert one.at_seconds % 70 < 30


def test_the_receiver_is_well_again_long_before_the_calm():
    """The wait of a circuit doubles with each probe that fails."""
    found = [one for one in plan.of_seed(7, RHYTHM, KINDS) if one.kind in plan.OF_RECEIVER]
    assert all(one.at_seconds % 70 < one.begins_by_seconds % 70 == 10 for one in found)


def test_faults_last_as_long_as_their_kind_says():
    for one in plan.of_seed(7, RHYTHM, KINDS):
        shortest, longest = plan.LASTING.get(one.kind, (0.0, 0.0))
        assert shortest <= one.lasts_seconds <= longest


def test_a_plan_without_kinds_is_refused():
    with pytest.raises(ValueError, match="at least one kind"):
        plan.of_seed(1, RHYTHM, [])
