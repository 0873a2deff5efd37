"""How much a worker asks for: shares as a rule, whole batches while points go together."""

from __future__ import annotations

from duepoint.delayqueue import messages
from duepoint.worker import claim_budget

SHARDS = tuple(map(messages.ShardId, range(8)))


def test_due_shards_share_the_room():
    (ask,), _ = claim_budget.ClaimBudget().asks(SHARDS, 80, batch=500, now=0.0)
    assert (ask.shards, ask.batch) == (SHARDS, 10)


def test_of_no_shard_nothing_is_asked():
    assert claim_budget.ClaimBudget().asks((), 80, batch=500, now=0.0) == ([], ())


def test_shards_beyond_the_room_wait():
    asks, later = claim_budget.ClaimBudget().asks(SHARDS, 3, batch=500, now=0.0)
    assert asks[0].shards == SHARDS[:3]
    assert later == SHARDS[3:]


def test_while_points_go_together_a_shard_with_many_is_asked_for_all_that_there_is_room_for():
    made = claim_budget.ClaimBudget()
    made.fired_together(0.0)
    made.deep.update(dict.fromkeys(SHARDS[:6], 700))
    (quiet, whole), later = made.asks(SHARDS, 500, batch=500, now=0.5)
    assert quiet.shards == SHARDS[6:]
    assert (whole.shards, whole.batch) == (SHARDS[:2], 500)
    assert tuple(later) == SHARDS[2:6]


def test_shards_that_are_to_give_many_are_asked_whole_a_few_at_a_time():
    made = claim_budget.ClaimBudget()
    made.fired_together(0.0)
    asks, later = made.asks(SHARDS, 0, batch=500, now=0.5, expected=lambda _: 80)
    assert asks == [claim_budget.Ask(shards=SHARDS[:6], batch=80)]
    assert tuple(later) == SHARDS[6:]


def test_a_shard_that_has_given_all_is_asked_for_its_share():
    made = claim_budget.ClaimBudget()
    made.fired_together(0.0)
    made.deep[SHARDS[0]] = 0
    (ask,), _ = made.asks(SHARDS, 300, batch=500, now=0.5)
    assert (ask.shards, ask.batch) == (SHARDS, 100)


def test_a_second_after_the_last_ones_the_room_is_the_usual_one():
    made = claim_budget.ClaimBudget()
    made.fired_together(0.0)
    assert made.free(10, batch=500, now=0.9) == 510
    assert made.free(10, batch=500, now=1.0) == 10


def test_shards_with_many_points_are_asked_after_those_with_few():
    expected = {SHARDS[0]: 64, SHARDS[3]: 16}
    asks, _ = claim_budget.ClaimBudget().asks(
        SHARDS[:4], 80, batch=500, now=0.0, expected=lambda shard: expected.get(shard, 1)
    )
    assert [ask.shards for ask in asks] == [SHARDS[1:3], (SHARDS[0], SHARDS[3])]
    assert {ask.batch for ask in asks} == {20}


def test_shards_with_many_points_stand_back_once_where_others_are_due_soon():
    made = claim_budget.ClaimBudget()
    expected = {SHARDS[0]: 64, SHARDS[1]: 1}.__getitem__
    assert made.stand_back(SHARDS[:2], expected, others_soon=lambda: False) == set()
    assert made.stand_back(SHARDS[:2], expected, others_soon=lambda: True) == {SHARDS[0]}
    assert made.stand_back(SHARDS[:1], expected, others_soon=lambda: True) == set()
    assert made.stand_back(SHARDS[:1], expected, others_soon=lambda: True) == {SHARDS[0]}


def test_shards_alike_are_asked_together():
    asks, _ = claim_budget.ClaimBudget().asks(
        SHARDS, 800, batch=500, now=0.0, expected=lambda _: 64
    )
    assert [ask.shards for ask in asks] == [SHARDS]


def test_namespaces_with_few_points_in_hand_get_some_where_there_is_no_room():
    made = claim_budget.ClaimBudget()
    made.in_hand.update({0: 500, 1: claim_budget.FEW - 1})  # shards 0 to 3, and 4 to 7
    ask = made.few(SHARDS, most=512, left=0, batch=500, now=0.0)
    assert ask == claim_budget.Ask(shards=SHARDS[4:], batch=claim_budget.FEW)


def test_of_a_shard_with_many_points_few_are_asked_for_when_it_has_waited():
    made, expected = claim_budget.ClaimBudget(), lambda shard: 80 * (shard == SHARDS[0])
    asked = [
        made.few(SHARDS[:2], most=512, left=0, batch=500, now=now, expected=expected)
        for now in (0.0, 0.09, 0.11)
    ]
    assert [ask.shards for ask in asked] == [SHARDS[1:2], SHARDS[1:2], SHARDS[:2]]
    made.crowded_since.clear()  # it was asked
    again = made.few(SHARDS[:1], most=512, left=0, batch=500, now=0.12, expected=expected)
    assert again is None


def test_what_a_worker_takes_beyond_its_room_is_bounded():
    made, shards = claim_budget.ClaimBudget(), tuple(map(messages.ShardId, range(64)))
    assert len(made.few(shards, most=512, left=0, batch=500, now=0.0).shards) == 8
    assert len(made.few(shards, most=512, left=-112, batch=500, now=0.0).shards) == 1
    assert made.few(shards, most=512, left=-128, batch=500, now=0.0) is None


def test_of_little_room_and_of_a_small_batch_no_more_is_taken():
    made = claim_budget.ClaimBudget()
    assert made.few(SHARDS, most=64, left=0, batch=500, now=0.0).batch == 4
    assert made.few(SHARDS, most=512, left=0, batch=1, now=0.0).batch == 1
    assert made.few(SHARDS, most=2, left=0, batch=500, now=0.0) is None


def test_little_room_goes_to_shards_with_many_points_in_turn_and_not_point_by_point():
    made = claim_budget.ClaimBudget()
    made.deep.update(dict.fromkeys(SHARDS[1:], 50))
    (quiet, large), later = made.asks(SHARDS, 64, batch=500, now=0.0)
    assert quiet == claim_budget.Ask(shards=SHARDS[:1], batch=8)
    assert large == claim_budget.Ask(shards=SHARDS[1:4], batch=18)
    assert tuple(later) == SHARDS[4:]


def test_of_shards_with_many_points_those_of_namespaces_with_few_in_hand_come_first():
    made = claim_budget.ClaimBudget()
    made.deep.update(dict.fromkeys(SHARDS, 50))
    made.in_hand.update({0: 30, 1: 3})  # shards 0 to 3, and 4 to 7
    (large,), later = made.asks(SHARDS, 32, batch=500, now=0.0)
    assert large == claim_budget.Ask(shards=SHARDS[4:6], batch=16)
    assert tuple(later) == (*SHARDS[:4], *SHARDS[6:])


def test_more_quiet_shards_than_there_is_room_for_wait():
    made = claim_budget.ClaimBudget()
    made.deep[SHARDS[0]] = 50
    (quiet, large), later = made.asks(SHARDS, 2, batch=500, now=0.0)
    assert (quiet.shards, large.shards) == (SHARDS[1:3], SHARDS[:1])
    assert tuple(later) == SHARDS[3:]


def waits(made, free, now, *, each=50):
    return made.waits_for_room(SHARDS, free, most=512, batch=500, now=now, expected=lambda _: each)


def test_where_more_is_due_a_quarter_of_the_room_is_waited_for_a_moment():
    made = claim_budget.ClaimBudget()
    assert [waits(made, 3, now) for now in (0.0, 0.04, 0.06, 0.07)] == [True, True, False, True]
    assert made.wanted == 128
    assert not waits(made, 128, 0.08)
    assert waits(made, 0, 0.2)


def test_no_more_room_is_waited_for_than_is_needed():
    made = claim_budget.ClaimBudget()
    assert not waits(made, 8, 0.0, each=1)
    assert waits(made, 7, 0.0, each=1)
    assert made.wanted == len(SHARDS)


def test_a_small_batch_is_enough_room():
    made = claim_budget.ClaimBudget()
    one = made.waits_for_room(SHARDS, 1, most=512, batch=1, now=0.0, expected=lambda _: 50)
    assert not one
