"""The names of all keys and channels of the index.

All keys of a shard share the hash tag ``{g<layout>.<shard>}``, so that they are on one node of a
cluster and one script may touch them together; the global ones share ``{ctl}``. Names are made
here and passed to scripts as KEYS. Only ``claim.lua`` makes the names of lanes and buckets itself,
from its shard's tag, because only the script finds out which it needs. The access rights of the
Redis users are written for the prefix (``dp:`` by default), which also keeps two installations on
one server apart. It has one colon, so that no prefix begins another one.

A *population* is the part of a Schedule's id that comes from its namespace (14 bits of a hash): the
id alone leads to the bucket that holds its definition. Two namespaces with the same population
share buckets and nothing else.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from duepoint.schedules import points

DEFAULT_PREFIX = "dp:"

#: Average fields of a bucket: fewer waste memory on keys, more waste time on searching a field.
BUCKET_FIELDS = 48
#: Shards that hold the schedules of one namespace: it does not decide two bits of their ids.
SHARDS_OF_A_NAMESPACE = 4
#: Buckets of one population in one shard, for some 6,000 schedules of a namespace; ten times as
#: many schedules outgrow the compact encoding (512 fields), which only costs memory. The number is
#: stored in the layout record: an index keeps the one that it was made with.
BUCKETS = 32


def prefix_of(name: str) -> str:
    """Return the prefix of all keys, given the ``redis_prefix`` setting."""
    return f"{name}:"


def buckets_for(schedules: int, shards: int) -> int:
    """Return the buckets of a population in each shard, for a namespace of this many schedules."""
    of_a_shard = schedules / min(shards, SHARDS_OF_A_NAMESPACE)
    return max(1, math.ceil(of_a_shard / BUCKET_FIELDS))


class ShardKeys:
    """The key names of one shard; immutable by convention, because they are cached.

    Attributes:
        crashes: how many owners each point has killed, as far as that is certain.
        logs: the lanes that have a log, by when a dead letter was added to it.
        ended: one-offs of sets that ended and left a short while ago.
        wake: channel: the shard's head came earlier.
        ran: channel: ``runs`` has new entries.
        probe, confirm: keys that exist for a moment.
    """

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self._buckets = f"{tag}:defs:n"
        self.meta = f"{tag}:meta"
        self.heads = f"{tag}:heads"
        self.claims = f"{tag}:claims"
        self.leases = f"{tag}:leases"
        self.crashes = f"{tag}:crashes"
        self.occ = f"{tag}:occ"
        self.occrec = f"{tag}:occrec"
        self.blobs = f"{tag}:blobs"
        self.texts = f"{tag}:texts"
        self.runs = f"{tag}:runs"
        self.ledger = f"{tag}:ledger"
        self.logs = f"{tag}:logs"
        self.ended = f"{tag}:ended"
        self.wake = f"{tag}:wake"
        self.ran = f"{tag}:ran"
        self.probe = f"{tag}:probe"
        self.confirm = f"{tag}:confirm"

    def lane(self, lane: str) -> str:
        """Return the key of the points of one namespace or set (``definitions.lanes``)."""
        return f"{self.tag}:points:{lane}"

    def log(self, lane: str) -> str:
        """Return the key of the dead letters of one namespace (by name) or set (by identity)."""
        return f"{self.tag}:log:{lane}"

    def active(self, schedule_id: points.ScheduleId) -> str:
        """Return the key of a schedule's runs that count for its concurrency policy."""
        return f"{self.tag}:active:{schedule_id.hex()}"

    def triggers(self, namespace: str) -> str:
        """Return the key of manual runs of a namespace's members; some have ended."""
        return f"{self.tag}:triggers:{namespace}"

    def bucket(self, population: str, number: int) -> str:
        return f"{self.tag}:defs:{population}:{number}"

    def bucket_of(self, schedule_id: points.ScheduleId, buckets: int) -> str:
        """Return the bucket that holds this schedule's definition."""
        return self.bucket_at(place_of(schedule_id, buckets), buckets)

    def bucket_at(self, place: int, buckets: int) -> str:
        """Return the bucket with this number, as ``place_of`` counts."""
        population, number = divmod(place, buckets)
        return f"{self._buckets}{population:x}:{number}"  # the same name as ``bucket``, but faster


class IndexKeys:
    """The key names of one index.

    Attributes:
        troubles: the trouble of each worker that has any.
        circuits: open circuits, and Schedules whose receiver is gone.
        sets: the records of the ScheduleSets, by namespace and name.
        probe: a key that exists for a moment.
    """

    def __init__(self, prefix: str = DEFAULT_PREFIX) -> None:
        self.prefix = prefix
        self.layout = f"{prefix}{{ctl}}:layout"
        self.probe = f"{prefix}{{ctl}}:probe"
        self.workers = f"{prefix}{{ctl}}:workers"
        self.troubles = f"{prefix}{{ctl}}:troubles"
        self.circuits = f"{prefix}{{ctl}}:circuits"
        self.sets = f"{prefix}{{ctl}}:sets"

    def shard(self, layout: int, index: int) -> ShardKeys:
        """Return the names of the shard with this number within its layout."""
        return _shard_keys(self.prefix, layout, index)

    def stream(self, namespace: str, name: str) -> str:
        """Return the key of a user's stream; users know the name, so it has no hash tag."""
        return f"{self.prefix}stream:{namespace}:{name}"

    def stream_state(self, namespace: str, name: str) -> str:
        """Return the key of a user's stream's counters, on its node: the stream is the hash tag."""
        return f"{self.prefix}streamstate:{{{self.stream(namespace, name)}}}"

    def request(self, digest: str) -> str:
        """Return the key of a request to the HTTP API with an idempotency key."""
        return f"{self.prefix}{{ctl}}:request:{digest}"

    def requests(self, namespace: str, span: int) -> str:
        """Return the key that counts requests with an idempotency key, by namespace and day."""
        return f"{self.prefix}{{ctl}}:requests:{span}:{namespace}"

    def changes(self, owner: str) -> str:
        """Return the key that counts a set's or namespace's API changes in the current second."""
        return f"{self.prefix}{{ctl}}:changes:{owner}"

    def streams(self, namespace: str) -> str:
        """Return the key of the names of a namespace's streams."""
        return f"{self.prefix}{{ctl}}:streams:{namespace}"


@functools.cache
def _shard_keys(prefix: str, layout: int, shard: int) -> ShardKeys:
    return ShardKeys(f"{prefix}{{g{layout}.{shard}}}")


def place_of(schedule_id: points.ScheduleId, buckets: int) -> int:
    """Return the number of a definition's bucket in a shard; a population's are adjacent."""
    return place_of_number(int.from_bytes(schedule_id, "big"), buckets)


def place_of_number(number: int, buckets: int) -> int:
    """Return ``place_of`` for an id as a number."""
    # The lower bits chose the shard and the population. The uppermost are the best of the others:
    # points with one due are claimed in the order of their ids, and so from few buckets.
    return ((number >> 2) & 0x3FFF) * buckets + ((number >> 40) * buckets >> 24)


def set_populations(set_uid: str, spread: int, shard_index: int, shards: int) -> list[int]:
    """Return the populations of a shard that may hold members of a set, ascending."""
    own, of_set = points.member_bits(set_uid, spread)
    known = min(shards, 1 << 16) - 1  # bits that the shard determines
    if (of_set ^ shard_index) & known & ~own & 0xFFFF:
        return []
    free = [1 << bit for bit in range(16) if own >> bit & 1 and not known >> bit & 1]
    found = [of_set & ~known | shard_index & known & 0xFFFF]
    for bit in free:
        found += [number | bit for number in found]
    return sorted({number >> 2 for number in found})


@dataclass(frozen=True, slots=True)
class SetBuckets:
    """The buckets of a shard that may hold members of a set, in order.

    There may be tens of thousands, so names are made on demand.
    """

    shard: ShardKeys
    populations: Sequence[int]
    buckets: int

    def __len__(self) -> int:
        return len(self.populations) * self.buckets

    def some(self, first: int, most: int) -> list[str]:
        """Return the names of at most this many buckets, from this one on."""
        last = min(first + most, len(self))
        places = (divmod(number, self.buckets) for number in range(first, last))
        return [
            self.shard.bucket(population_name(self.populations[population]), number)
            for population, number in places
        ]


def population_name(population: int) -> str:
    """Return the population's part in the names of its buckets."""
    return f"n{population:x}"


def population_of(namespace: str) -> str:
    """Return the population of a namespace's schedules."""
    return population_name(place_of(points.schedule_id("", namespace), 1))
