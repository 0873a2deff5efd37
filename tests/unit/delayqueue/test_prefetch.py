"""What the next claim of a shard will probably bring."""

from __future__ import annotations

from duepoint.delayqueue import messages
from duepoint.delayqueue.claims import prefetch
from duepoint.schedules import points

SHARD, OTHER = messages.ShardId(1), messages.ShardId(2)


def an_id(number):
    return points.ScheduleId(number.to_bytes(8, "big"))


def test_only_what_is_due_in_that_shard_is_taken_and_only_once():
    seen = prefetch.Prefetch()
    seen.expect(SHARD, an_id(1), 100)
    seen.expect(SHARD, an_id(2), 200)
    seen.expect(OTHER, an_id(3), 100)
    assert seen.take(SHARD, 150) == {an_id(1): 100}
    assert seen.take(SHARD, 150) == {}
    assert seen.take(SHARD, 250) == {an_id(2): 200}


def test_the_newest_due_of_a_schedule_counts():
    seen = prefetch.Prefetch()
    seen.expect(SHARD, an_id(1), 100)
    seen.expect(SHARD, an_id(1), 300)
    assert seen.take(SHARD, 200) == {}


def test_memory_is_bounded_and_frees_itself():
    seen = prefetch.Prefetch()
    for number in range(100_000):
        seen.expect(SHARD, an_id(number), number)
    assert len(seen.take(SHARD, 200_000)) == 64
    seen.expect(SHARD, an_id(1), 1)
    assert seen.take(SHARD, 1) == {an_id(1): 1}


def test_what_was_taken_too_early_is_expected_again_unless_something_newer_is():
    seen = prefetch.Prefetch()
    seen.expect(SHARD, an_id(1), 100)
    seen.expect(SHARD, an_id(2), 100)
    taken = seen.take(SHARD, 100)
    seen.expect(SHARD, an_id(2), 300)
    seen.give_back(SHARD, taken)
    assert seen.take(SHARD, 100) == {an_id(1): 100}
    assert seen.take(SHARD, 300) == {an_id(2): 300}
