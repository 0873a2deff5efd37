"""Every identifier keeps to one of two shards when shards are doubled."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from duepoint.delayqueue import sharding
from duepoint.schedules import points

IDS = st.binary(min_size=8, max_size=8).map(points.ScheduleId)


@given(IDS)
def test_doubling_the_shards_splits_each_into_two_of_its_own(schedule_id):
    assert sharding.shard_of(schedule_id, 128) % 64 == sharding.shard_of(schedule_id, 64)
