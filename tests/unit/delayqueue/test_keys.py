from __future__ import annotations

import pytest

from duepoint.delayqueue import keys, messages
from duepoint.schedules import points

NAMES = keys.IndexKeys().shard(1, messages.ShardId(17))


def test_all_names_of_a_shard_share_its_hash_tag():
    schedule_id = points.schedule_id("uid", "default")
    names = [*vars(NAMES).values(), NAMES.lane(1), NAMES.bucket_of(schedule_id, keys.BUCKETS)]
    assert len(names) == len(set(names))
    assert {name[name.index("{") : name.index("}") + 1] for name in names} == {"{g1.17}"}


def test_a_prefix_stands_before_every_name():
    custom = keys.IndexKeys("team:")
    assert custom.shard(1, messages.ShardId(0)).meta == "team:{g1.0}:meta"
    assert custom.workers == "team:{ctl}:workers"


@pytest.mark.parametrize(
    ("schedules", "shards", "buckets"),
    [(1, 64, 1), (192, 64, 1), (193, 64, 2), (6_144, 64, keys.BUCKETS), (6_144, 1, 128)],
)
def test_a_bucket_has_48_fields_when_a_namespace_is_as_large_as_declared(
    schedules, shards, buckets
):
    assert keys.buckets_for(schedules, shards) == buckets
