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
    assert seen.take(SHARD, 150).few == {an_id(1): 100}
    assert seen.take(SHARD, 150).few == {}
    assert seen.take(SHARD, 250).few == {an_id(2): 200}


def test_the_newest_due_of_a_schedule_counts():
    seen = prefetch.Prefetch()
    seen.expect(SHARD, an_id(1), 100)
    seen.expect(SHARD, an_id(1), 300)
    assert seen.take(SHARD, 200).few == {}


def test_memory_is_bounded_and_frees_itself():
    seen = prefetch.Prefetch()
    for number in range(100_000):
        seen.expect(SHARD, an_id(number), number)
        seen.expect_many(OTHER, number, 10)
    assert len(seen.take(SHARD, 200_000).dues) == 64
    assert seen.known(OTHER, 200_000) == 640
    seen.expect(SHARD, an_id(1), 1)
    assert seen.take(SHARD, 1).few == {an_id(1): 1}


def test_of_many_the_number_is_known_and_no_definition_is_worth_reading():
    seen = prefetch.Prefetch()
    seen.expect(SHARD, an_id(1), 100)
    seen.expect_many(SHARD, 100, 40)
    seen.expect_many(SHARD, 100, 40)
    seen.expect_many(SHARD, 200, 40)
    assert seen.known(SHARD, 100) == 81
    taken = seen.take(SHARD, 100)
    assert taken.few == {}
    assert seen.known(SHARD, 200) == 40
    seen.give_back(SHARD, taken)
    assert seen.known(SHARD, 200) == 121


def test_more_than_a_few_schedules_are_many():
    seen = prefetch.Prefetch()
    for number in range(prefetch.FEW + 1):
        seen.expect(SHARD, an_id(number), 100)
    assert seen.take(SHARD, 100).few == {}


def test_what_was_taken_too_early_is_expected_again_unless_something_newer_is():
    seen = prefetch.Prefetch()
    seen.expect(SHARD, an_id(1), 100)
    seen.expect(SHARD, an_id(2), 100)
    taken = seen.take(SHARD, 100)
    seen.expect(SHARD, an_id(2), 300)
    seen.give_back(SHARD, taken)
    assert seen.take(SHARD, 100).few == {an_id(1): 100}
    assert seen.take(SHARD, 300).few == {an_id(2): 300}
