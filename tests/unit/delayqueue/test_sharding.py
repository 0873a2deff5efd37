from __future__ import annotations

from duepoint.delayqueue import messages, sharding
from duepoint.schedules import points

WORKERS = ("w1", "w2", "w3")
SHARDS = sharding.all_shards(messages.Layout(number=1, shards=64))


def test_the_schedules_of_a_namespace_use_four_of_64_shards():
    shards = {
        sharding.shard_of(points.schedule_id(f"uid-{number}", "default"), 64)
        for number in range(500)
    }
    assert len(shards) == 4


def test_each_shard_has_one_preferred_worker_and_the_load_is_spread():
    counts = dict.fromkeys(WORKERS, 0)
    for shard in SHARDS:
        counts[sharding.preferred_worker(shard, WORKERS)] += 1
    assert min(counts.values()) >= 10
    standby = [sharding.standby_shards(SHARDS, WORKERS, worker) for worker in WORKERS]
    assert all(sum(shard in each for each in standby) == 2 for shard in SHARDS)


def test_when_a_worker_dies_only_its_shards_move():
    before = {shard: sharding.preferred_worker(shard, WORKERS) for shard in SHARDS}
    after = {shard: sharding.preferred_worker(shard, ("w1", "w2")) for shard in SHARDS}
    moved = {shard for shard in SHARDS if after[shard] != before[shard]}
    assert moved == {shard for shard in SHARDS if before[shard] == "w3"} != set()
