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


def test_while_points_go_together_a_deep_shard_is_asked_for_a_whole_batch():
    made = claim_budget.ClaimBudget()
    made.fired_together(0.0)
    made.deep.update(SHARDS[:6])
    (quiet, deep), later = made.asks(SHARDS, 500, batch=500, now=0.5)
    assert quiet.shards == SHARDS[6:]
    assert (deep.shards, deep.batch) == (SHARDS[:2], 500)
    assert tuple(later) == SHARDS[2:6]


def test_a_second_after_the_last_ones_the_room_is_the_usual_one():
    made = claim_budget.ClaimBudget()
    made.fired_together(0.0)
    assert made.free(10, batch=500, now=0.9) == 510
    assert made.free(10, batch=500, now=1.0) == 10
