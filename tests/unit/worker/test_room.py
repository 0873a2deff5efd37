"""How free room is shared out among the shards that are due."""

from __future__ import annotations

from duepoint.clock import SystemClock
from duepoint.delayqueue import keys, messages, sharding
from duepoint.worker import room, slots

QUIET, BURST = messages.ShardId(0), messages.ShardId(keys.SHARDS_OF_A_NAMESPACE)


def a_room(in_hand: int = 0, more: int = 0) -> room.Room:
    """Of 1,000 points in claims of 500; so much of the burst is in hand, and so much more due."""
    made = room.Room(slots.JobSlots(SystemClock()), most=1_000, batch=500)
    made.in_hand[sharding.namespaces_of(BURST)] = in_hand
    made.more[BURST] = more
    return made


def test_each_shard_gets_a_part_until_it_is_known_that_it_has_more():
    assert a_room().asks([BURST, QUIET]) == ([([BURST, QUIET], room.PART)], [])
    assert a_room(in_hand=16, more=5_000).asks([BURST, QUIET]) == (
        [([QUIET], room.PART), ([BURST], 500)],
        [],
    )


def test_a_burst_waits_for_an_eighth_of_the_room_and_a_quiet_namespace_for_none():
    full = a_room(in_hand=900, more=5_000)
    assert not full.has_enough()
    assert full.asks([BURST, QUIET]) == ([([QUIET], room.PART)], [BURST])
    over = a_room(in_hand=1_000, more=5_000)
    assert over.asks([BURST, QUIET]) == ([([QUIET], room.PART)], [BURST])
