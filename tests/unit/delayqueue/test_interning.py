"""What a process remembers of interned texts, and for how long."""

from __future__ import annotations

from duepoint.delayqueue import messages
from duepoint.delayqueue.definitions import interning

SHARD = messages.ShardId(0)


def test_what_was_asked_for_just_now_outlives_the_learning_of_many_others(monkeypatch):
    monkeypatch.setattr(interning, "LIMIT", 10)
    known = interning.Interned()
    known.learn(SHARD, 1, b"nteam-a")
    for number in range(2, 500):
        if number % 4 == 0:
            assert known.text(SHARD, 1) == b"nteam-a"
            assert known.number(SHARD, b"nteam-a") == 1
        known.learn(SHARD, number, b"d%d" % number)


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(interning, "LIMIT", 10)
    known = interning.Interned()
    for number in range(500):
        known.learn(SHARD, number, b"d%d" % number)
    assert len(known) <= 10
    assert known.text(SHARD, 0) is None
    assert known.text(SHARD, 499) == b"d499"


def test_another_incarnation_of_a_shard_has_other_numbers():
    known = interning.Interned()
    known.see(SHARD, "first")
    known.learn(SHARD, 1, b"nteam-a")
    known.learn(messages.ShardId(1), 1, b"nteam-b")
    known.see(SHARD, "second")
    assert known.text(SHARD, 1) is None
    assert known.number(SHARD, b"nteam-a") is None
    assert known.text(messages.ShardId(1), 1) == b"nteam-b"
