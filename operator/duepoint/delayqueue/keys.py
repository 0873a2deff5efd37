"""Every key and channel name of the index, spelled once.

All keys of a shard share the hash tag ``{g<layout>.<shard>}``, so that they live on one node of a
cluster and one script may touch them together; the global ones share ``{ctl}``. Names are made
here and handed to scripts as KEYS; ``claim.lua`` alone makes those of lanes and buckets from its
shard's tag, because it finds out by itself which it needs. The prefix (``dp:`` by
default) is what the access rights of the Redis users are written for, and what keeps two
installations on one server apart; it holds one colon, so that no prefix begins another one.

A *population* is the namespace of a Schedule as far as its id knows it (14 bits of a hash): the
id alone leads to the bucket that holds its definition. Two namespaces that share one share
buckets and nothing else.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
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


class ShardKeys:
    """The names of one shard; immutable by custom, because they are cached.

    Attributes:
        crashes: how many owners each point has ended, as far as that is certain.
        logs: the lanes that have a log, by when a dead letter was added to it.
        ended: one-offs of sets that ended and left a short while ago.
        wake: channel: the shard's head came earlier.
        ran: channel: something was added to ``runs``.
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
        """The points of one namespace or set (``definitions.lanes``)."""
        return f"{self.tag}:points:{lane}"

    def log(self, lane: str) -> str:
        """The dead letters of one namespace or set, by its name or text."""
        return f"{self.tag}:log:{lane}"

    def active(self, schedule_id: points.ScheduleId) -> str:
        """The runs of a schedule that count for its concurrency policy, and slots that wait."""
        return f"{self.tag}:active:{schedule_id.hex()}"

    def triggers(self, namespace: str) -> str:
        """The runs by hand of members of a namespace, and some that have ended."""
        return f"{self.tag}:triggers:{namespace}"

    def bucket(self, population: str, number: int) -> str:
        return f"{self.tag}:defs:{population}:{number}"

    def bucket_of(self, schedule_id: points.ScheduleId, buckets: int) -> str:
        """The bucket that holds this schedule's definition."""
        return self.bucket_at(place_of(schedule_id, buckets), buckets)

    def bucket_at(self, place: int, buckets: int) -> str:
        """As ``place_of`` numbers them."""
        population, number = divmod(place, buckets)
        return f"{self._buckets}{population:x}:{number}"  # as ``bucket``, for each of many rows


class IndexKeys:
    """The names of one index.

    Attributes:
        troubles: what is wrong with each worker that is not well.
        circuits: receivers in trouble, and Schedules whose receiver is gone.
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
        """Of the shard with this number within its layout."""
        return _shard_keys(self.prefix, layout, index)

    def stream(self, namespace: str, name: str) -> str:
        """A user's stream; its name is public, so it has no hash tag."""
        return f"{self.prefix}stream:{namespace}:{name}"

    def stream_state(self, namespace: str, name: str) -> str:
        """What is counted of a user's stream, on its node: the hash tag is the stream's key."""
        return f"{self.prefix}streamstate:{{{self.stream(namespace, name)}}}"

    def request(self, digest: str) -> str:
        """A request to the HTTP API that had an idempotency key."""
        return f"{self.prefix}{{ctl}}:request:{digest}"

    def requests(self, namespace: str, span: int) -> str:
        """What those of a namespace in a span of time take."""
        return f"{self.prefix}{{ctl}}:requests:{span}:{namespace}"

    def changes(self, owner: str) -> str:
        """What was changed through the HTTP API in the current second, by set or namespace."""
        return f"{self.prefix}{{ctl}}:changes:{owner}"

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


def set_populations(set_uid: str, spread: int, shard_index: int, shards: int) -> list[int]:
    """The populations of a shard that the members of a set lie in, ascending."""
    own, of_set = points.member_bits(set_uid, spread)
    known = min(shards, 1 << 16) - 1  # bits that the shard says
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

    There may be tens of thousands, so each is named when it is asked for.
    """

    shard: ShardKeys
    populations: Sequence[int]
    buckets: int

    def __len__(self) -> int:
        return len(self.populations) * self.buckets

    def some(self, first: int, most: int) -> list[str]:
        """The names of at most so many, from this one on."""
        last = min(first + most, len(self))
        places = (divmod(number, self.buckets) for number in range(first, last))
        return [
            self.shard.bucket(population_name(self.populations[population]), number)
            for population, number in places
        ]


def population_name(population: int) -> str:
    """As it stands in the names of buckets."""
    return f"n{population:x}"


def population_of(namespace: str) -> str:
    """The population of a namespace's schedules."""
    return population_name(place_of(points.schedule_id("", namespace), 1))
