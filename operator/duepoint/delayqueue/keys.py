"""Every key and channel name of the index, spelled once.

All keys of a shard share the hash tag ``{g<layout>.<shard>}``, so that they live on one node of a
cluster and one script may touch them together; the global ones share ``{ctl}``. Names are made
here and handed to scripts as KEYS; no script builds one. The prefix (``dp:`` by
default) is what the access rights of the Redis users are written for, and what keeps two
installations on one server apart; it holds one colon, so that no prefix begins another one.

A *population* is the namespace of a Schedule as far as its id knows it (14 bits of a hash): the
id alone leads to the bucket that holds its definition. Two namespaces that share one share
buckets and nothing else.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from duepoint.schedules import points

DEFAULT_PREFIX = "dp:"

#: Fields of a bucket on average: fewer waste memory on keys, more on looking for one of them.
BUCKET_FIELDS = 48
#: Shards that hold the schedules of one namespace: two bits of their ids are not the namespace's.
SHARDS_OF_A_NAMESPACE = 4
#: Buckets of one population in one shard, for some 6,000 schedules of a namespace; ten times as
#: many outgrow the compact encoding (512 fields) and cost more memory, nothing else. Kept in the
#: layout record: an index keeps the number that it was made with.
BUCKETS = 32


def prefix_of(name: str) -> str:
    """The prefix by the name that the setting gives it."""
    return f"{name}:"


def buckets_for(schedules: int, shards: int) -> int:
    """Buckets of a population in each shard, when a namespace is declared to be so large."""
    of_a_shard = schedules / min(shards, SHARDS_OF_A_NAMESPACE)
    return max(1, math.ceil(of_a_shard / BUCKET_FIELDS))


@dataclass(frozen=True, slots=True)
class ShardKeys:
    """The names of one shard."""

    tag: str

    @property
    def meta(self) -> str:
        return f"{self.tag}:meta"

    @property
    def heads(self) -> str:
        return f"{self.tag}:heads"

    @property
    def claims(self) -> str:
        return f"{self.tag}:claims"

    @property
    def leases(self) -> str:
        return f"{self.tag}:leases"

    @property
    def occ(self) -> str:
        return f"{self.tag}:occ"

    @property
    def occrec(self) -> str:
        return f"{self.tag}:occrec"

    @property
    def blobs(self) -> str:
        return f"{self.tag}:blobs"

    @property
    def interned(self) -> str:
        return f"{self.tag}:interned"

    @property
    def imported(self) -> str:
        """Batches that a partitioning brought here; there only while it lasts."""
        return f"{self.tag}:imported"

    @property
    def runs(self) -> str:
        return f"{self.tag}:runs"

    @property
    def dead(self) -> str:
        return f"{self.tag}:dead"

    @property
    def letters(self) -> str:
        """Which dead letters are of which namespace, oldest first."""
        return f"{self.tag}:letters"

    @property
    def letter_sums(self) -> str:
        """Bytes of the dead letters of each namespace."""
        return f"{self.tag}:lettersums"

    @property
    def wake(self) -> str:
        """Channel: the shard's head came earlier."""
        return f"{self.tag}:wake"

    @property
    def probe(self) -> str:
        """A key that is there for a moment."""
        return f"{self.tag}:probe"

    @property
    def ran(self) -> str:
        """Channel: something was added to ``runs``."""
        return f"{self.tag}:ran"

    def lane(self, number: int) -> str:
        """The points of one namespace or set, by its interned number."""
        return f"{self.tag}:points:{number}"

    def active(self, schedule_id: points.ScheduleId) -> str:
        """The runs of a schedule that count for its concurrency policy."""
        return f"{self.tag}:active:{schedule_id.hex()}"

    def looks(self, schedule_id: points.ScheduleId) -> str:
        """The same runs in the order in which they are to be looked at."""
        return f"{self.tag}:looks:{schedule_id.hex()}"

    def waiting(self, schedule_id: points.ScheduleId) -> str:
        """The slots of a schedule that wait for one of those to end."""
        return f"{self.tag}:waiting:{schedule_id.hex()}"

    def bucket(self, population: str, number: int) -> str:
        return f"{self.tag}:defs:{population}:{number}"

    def bucket_of(self, schedule_id: points.ScheduleId, buckets: int) -> str:
        """The bucket that holds this schedule's definition."""
        return self.bucket_at(place_of(schedule_id, buckets), buckets)

    def bucket_at(self, place: int, buckets: int) -> str:
        """As ``place_of`` numbers them."""
        population, number = divmod(place, buckets)
        return self.bucket(f"n{population:x}", number)


@dataclass(frozen=True, slots=True)
class IndexKeys:
    """The names of one index."""

    prefix: str = DEFAULT_PREFIX

    @property
    def layout(self) -> str:
        return f"{self.prefix}{{ctl}}:layout"

    @property
    def probe(self) -> str:
        """A key that is there for a moment."""
        return f"{self.prefix}{{ctl}}:probe"

    @property
    def workers(self) -> str:
        return f"{self.prefix}{{ctl}}:workers"

    @property
    def seen(self) -> str:
        """Which layout each worker knows."""
        return f"{self.prefix}{{ctl}}:seen"

    @property
    def circuits(self) -> str:
        """Receivers in trouble, and Schedules whose receiver is gone."""
        return f"{self.prefix}{{ctl}}:circuits"

    @property
    def troubled(self) -> str:
        """When each of the former is forgotten."""
        return f"{self.prefix}{{ctl}}:troubled"

    def shard(self, layout: int, index: int) -> ShardKeys:
        """Of the shard with this number within its layout."""
        return _shard_keys(self.prefix, layout, index)

    def stream(self, namespace: str, name: str) -> str:
        """A user's stream; its name is public, so it has no hash tag."""
        return f"{self.prefix}stream:{namespace}:{name}"

    def stream_state(self, namespace: str, name: str) -> str:
        """What is counted of a user's stream, on its node: the hash tag is the stream's key."""
        return f"{self.prefix}streamstate:{{{self.stream(namespace, name)}}}"

    def streams(self, namespace: str) -> str:
        """The names of the streams of one namespace."""
        return f"{self.prefix}{{ctl}}:streams:{namespace}"


@functools.cache
def _shard_keys(prefix: str, layout: int, shard: int) -> ShardKeys:
    return ShardKeys(f"{prefix}{{g{layout}.{shard}}}")


def place_of(schedule_id: points.ScheduleId, buckets: int) -> int:
    """The bucket of a definition among all of a shard, those of one population side by side."""
    return place_of_number(int.from_bytes(schedule_id, "big"), buckets)


def place_of_number(number: int, buckets: int) -> int:
    """As ``place_of``, of an id as a number."""
    # the upper bits: those below chose the shard and the population
    return ((number >> 2) & 0x3FFF) * buckets + (number >> 16) % buckets


def population_of(namespace: str) -> str:
    """The population of a namespace's schedules."""
    return f"n{place_of(points.schedule_id('', namespace), 1):x}"
