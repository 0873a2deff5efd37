from __future__ import annotations

import collections

import pytest

from duepoint.delayqueue import keys, messages
from duepoint.schedules import points

NAMES = keys.IndexKeys().shard(1, messages.ShardId(17))


def test_the_names_are_those_of_the_design():
    assert NAMES.meta == "dp:{g1.17}:meta"
    assert NAMES.heads == "dp:{g1.17}:heads"
    assert NAMES.lane(3) == "dp:{g1.17}:points:3"
    assert keys.IndexKeys().layout == "dp:{ctl}:layout"
    assert keys.IndexKeys().workers == "dp:{ctl}:workers"
    assert keys.IndexKeys().stream("team-a", "ticks") == "dp:stream:team-a:ticks"


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


def test_the_buckets_of_a_large_namespace_stay_compact():
    buckets = keys.buckets_for(1_000_000, 256)
    fields = collections.Counter(
        NAMES.bucket_of(points.schedule_id(f"uid-{number}", "team-a"), buckets)
        for number in range(0, 1_000_000, 100)
    )
    assert len(fields) == pytest.approx(min(buckets, 10_000), rel=0.2)
    assert max(fields.values()) < 512 / 10


def test_the_bucket_of_a_schedule_is_one_of_its_namespaces():
    for number in range(200):
        schedule_id = points.schedule_id(f"uid-{number}", "team-a")
        buckets = {NAMES.bucket(keys.population_of("team-a"), n) for n in range(keys.BUCKETS)}
        assert NAMES.bucket_of(schedule_id, keys.BUCKETS) in buckets


def test_the_schedules_of_a_namespace_spread_over_its_buckets():
    ids = [points.schedule_id(f"uid-{number}", "team-a") for number in range(2_000)]
    counts: dict[str, int] = {}
    for schedule_id in ids:
        bucket = NAMES.bucket_of(schedule_id, keys.BUCKETS)
        counts[bucket] = counts.get(bucket, 0) + 1
    assert len(counts) == keys.BUCKETS
    assert max(counts.values()) < 3 * 2_000 / keys.BUCKETS
