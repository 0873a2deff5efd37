"""Assigns schedules to shards, and preferred workers to shards. Pure.

The shard is the id's low bits, so that doubling the shards splits each old one into new ones of
its own. The preferred worker is chosen by rendezvous hashing over the live ones: when one dies
only its shards move. Preference only saves empty claims; any worker may claim anywhere at any
time.

A shard's number names its layout too: the upper bits are the layout's generation (from 0), the
lower sixteen the shard within it. So a claim that was made before the index was resharded still
names the shard of its points.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Sequence

from duepoint.delayqueue import keys, messages
from duepoint.schedules import points

#: Most shards of a layout, and the distance between the numbers of two layouts' shards.
MOST_SHARDS = 65_536


def shard_of(schedule_id: points.ScheduleId, shards: int) -> messages.ShardId:
    """Return the shard of an id in the first layout; ``shards`` is a power of two."""
    return messages.ShardId(int.from_bytes(schedule_id, "big") % shards)


def home(schedule_id: points.ScheduleId, layout: messages.Layout) -> messages.ShardId:
    """Return the shard of an id in this layout."""
    return _shard(layout, shard_of(schedule_id, layout.shards))


def homes(schedule_id: points.ScheduleId, layout: messages.Layout) -> tuple[messages.ShardId, ...]:
    """Return the shards that may have a schedule: the former one first, then the new one."""
    if layout.former is None:
        return (home(schedule_id, layout),)
    return home(schedule_id, layout.former), home(schedule_id, layout)


def all_shards(layout: messages.Layout) -> tuple[messages.ShardId, ...]:
    """Return every shard that may hold schedules, the former ones first.

    Schedules move from the former shards to the new ones: reading all shards in this order misses
    none, and may see a schedule twice.
    """
    former = () if layout.former is None else own_shards(layout.former)
    return former + own_shards(layout)


@functools.lru_cache(maxsize=64)
def own_shards(layout: messages.Layout) -> tuple[messages.ShardId, ...]:
    """Return the shards of this layout alone."""
    return tuple(_shard(layout, number) for number in range(layout.shards))


def layout_of(shard: messages.ShardId) -> int:
    """Return the generation number of the layout that this shard belongs to."""
    return 1 + shard // MOST_SHARDS


def index_of(shard: messages.ShardId) -> int:
    """Return the shard's number within its layout."""
    return shard % MOST_SHARDS


def namespaces_of(shard: messages.ShardId) -> int:
    """Return a number that is the same for shards of a layout which hold the same namespaces.

    Adjacent shards share it, because the lowest bits of an id do not come from its namespace.
    """
    return shard // keys.SHARDS_OF_A_NAMESPACE


def is_possible(shards: int) -> bool:
    """Whether an index can have this many shards: a power of two."""
    return 0 < shards <= MOST_SHARDS and shards & (shards - 1) == 0


def _shard(layout: messages.Layout, index: int) -> messages.ShardId:
    return messages.ShardId((layout.number - 1) * MOST_SHARDS + index)


def preferred_worker(shard: messages.ShardId, workers: Sequence[str]) -> str | None:
    """Return the worker with the highest hash of (worker, shard); None if no worker is alive."""

    def weight(worker: str) -> bytes:
        return hashlib.blake2b(f"{shard}/{worker}".encode(), digest_size=8).digest()

    return max(workers, key=weight, default=None)


def standby_shards(
    shards: Iterable[messages.ShardId], workers: Sequence[str], me: str
) -> frozenset[messages.ShardId]:
    """Return the shards that another live worker should claim first."""
    return frozenset(
        shard for shard in shards if preferred_worker(shard, workers) not in (me, None)
    )
