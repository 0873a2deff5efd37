"""How much a worker asks for: shares as a rule, whole batches while points go together."""

from __future__ import annotations

from duepoint.delayqueue import messages
from duepoint.worker import claim_budget

SHARDS = tuple(map(messages.ShardId, range(8)))


def test_due_shards_share_the_room():
    (ask,), _ = claim_budget.ClaimBudget().asks(SHARDS, 80, batch=500, now=0.0)
    assert (ask.shards, ask.batch) == (SHARDS, 10)


def test_shards_beyond_the_room_wait():
    asks, later = claim_budget.ClaimBudget().asks(SHARDS, 3, batch=500, now=0.0)
    assert asks[0].shards == SHARDS[:3]
    assert later == SHARDS[3:]


def test_namespaces_with_few_points_in_hand_get_some_where_there_is_no_room():
    made = claim_budget.ClaimBudget()
    made.in_hand.update({0: 500, 1: claim_budget.FEW - 1})  # shards 0 to 3, and 4 to 7
    ask = made.few(SHARDS, most=512, left=0, batch=500, now=0.0)
    assert ask == claim_budget.Ask(shards=SHARDS[4:], batch=claim_budget.FEW)
