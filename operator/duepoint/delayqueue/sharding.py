"""Which shard a schedule lives in, and which worker looks after a shard first.

The shard is the id's low bits, so that doubling the shards splits each old one into new ones of
its own. The preferred worker is chosen by rendezvous hashing over the live ones: when one dies
only its shards move. Preference is a courtesy that spares empty claims; any worker may claim
anywhere at any time. Pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from duepoint.delayqueue import messages
from duepoint.schedules import points


def shard_of(schedule_id: points.ScheduleId, shards: int) -> messages.ShardId:
    """The shard of an id; ``shards`` is a power of two."""
    return messages.ShardId(int.from_bytes(schedule_id, "big") % shards)


def all_shards(layout: messages.Layout) -> tuple[messages.ShardId, ...]:
    return tuple(messages.ShardId(number) for number in range(layout.shards))


def preferred_worker(shard: messages.ShardId, workers: Sequence[str]) -> str | None:
    """The worker with the highest hash of (worker, shard); None when nobody lives."""
    return max(workers, key=lambda worker: _weight(worker, shard), default=None)


def standby_shards(
    shards: Iterable[messages.ShardId], workers: Sequence[str], me: str
) -> frozenset[messages.ShardId]:
    """The shards for which another live worker is preferred."""
    return frozenset(
        shard for shard in shards if preferred_worker(shard, workers) not in (me, None)
    )


def _weight(worker: str, shard: messages.ShardId) -> bytes:
    return hashlib.blake2b(f"{shard}/{worker}".encode(), digest_size=8).digest()
