"""Whole schedules in bulk: interned texts, definitions and chain points, by the real key names.

Definitions are packed by ``definitions.codec``, ids and buckets are the queue's own; what is
left out is the script and the round trip of each ``upsert``. Streams are the target, because a
stream needs no other process.
"""

from __future__ import annotations

import collections
import itertools
import uuid

import redis

from benchmarks.queuespeed import place
from duepoint.delayqueue import delayqueue, messages, sharding
from duepoint.delayqueue.definitions import codec, interning
from duepoint.schedules import actions, definition
from duepoint.schedules import rule as rules

_CHUNK = 5_000
#: Ten texts of everyday; none has a slot within five seconds of a whole hour but that hour.
EXPRESSIONS = (
    *("0 * * * *", "*/5 * * * *", "0,30 * * * *", "*/10 * * * *", "0 * 1-31 * *"),
    *("*/15 * * * *", "0 * * * 1-7", "*/20 * * * *", "*/30 * * * *", "0 0-23 * * *"),
)
CREATED_US = 1_767_225_600_000_000


async def schedules(
    queue: delayqueue.DelayQueue,
    client: redis.Redis,
    *,
    count: int,
    namespaces: int,
    due_us: int,
) -> None:
    """So many Schedules with a stream target, all of whose chains are due then."""
    layout = await queue.layouts.read()
    blob = actions.encode(
        actions.Action(target=actions.StreamAction(name="bench", max_length=1000))
    )
    wanted = collections.Counter(f"team-{n % namespaces}" for n in range(count))
    for namespace, share in wanted.items():
        digest = queue.signed_blobs.digest(namespace, blob)
        made = (_definition(namespace, digest, n) for n in range(share))
        while part := list(itertools.islice(made, _CHUNK)):
            await _put(queue, client, layout, part, blob, due_us)


def _definition(namespace: str, digest: str, number: int) -> definition.Definition:
    timing = rules.Timing(schedules=(EXPRESSIONS[number % len(EXPRESSIONS)],))
    created_us = CREATED_US + number % 3600 * 1_000_000
    return definition.Definition(
        namespace=namespace,
        name=f"schedule-{number}",
        uid=str(uuid.uuid4()),
        generation=1,
        timing_generation=1,
        created_us=created_us,
        not_before_us=created_us,
        state=definition.State.ARMED,
        rule=rules.Rule(timing=timing),
        target=digest,
    )


async def _put(  # noqa: PLR0917 - called once
    queue: delayqueue.DelayQueue,
    client: redis.Redis,
    layout: messages.Layout,
    part: list[definition.Definition],
    blob: bytes,
    due_us: int,
) -> None:
    by_shard: dict[messages.ShardId, list[definition.Definition]] = collections.defaultdict(list)
    for known in part:
        by_shard[sharding.shard_of(known.id, layout.shards)].append(known)
    for shard, listed in by_shard.items():
        names = queue.index.shard(shard)
        lane = await _lane(queue, shard, listed[0], blob)
        pipeline = client.pipeline(transaction=False)
        for bucket, fields in (await _packed(queue, shard, listed)).items():
            pipeline.hset(bucket, mapping=fields)
        chains = {known.id + known.timing_version: due_us for known in listed}
        pipeline.zadd(names.lane(lane), {**chains, b"": float("inf")})
        pipeline.zadd(names.heads, {str(lane): due_us})
        pipeline.execute()


async def _lane(
    queue: delayqueue.DelayQueue, shard: messages.ShardId, one: definition.Definition, blob: bytes
) -> int:
    """The lane of a namespace; the first schedule of it goes in as the operator would put it."""
    entry = interning.entry(interning.TextKind.NAMESPACE, one.namespace.encode())
    known = queue.interned.number(shard, entry)
    if known is None:
        arming = messages.Arming(definition=one, due_us=place.now_us() + 10**12)
        await queue.writer.upsert([(arming, blob)], place.EPOCH)
        known = queue.interned.number(shard, entry)
        assert known is not None
    return known


async def _packed(
    queue: delayqueue.DelayQueue, shard: messages.ShardId, listed: list[definition.Definition]
) -> dict[str, dict[bytes, bytes]]:
    buckets: dict[str, dict[bytes, bytes]] = collections.defaultdict(dict)
    for known in listed:
        texts = [
            interning.entry(interning.TextKind.NAMESPACE, known.namespace.encode()),
            interning.entry(interning.TextKind.TARGET, known.target.encode()),
            interning.entry(interning.TextKind.RULE, rules.text(known.rule)),
        ]
        numbers = await queue.numbering.intern(shard, texts, place.EPOCH)
        lane, target, rule = (numbers[text] for text in texts)
        record = codec.pack(known, namespace=lane, target=target, rule=rule)
        name = queue.index.shard(shard).bucket_of(known.id, queue.index.buckets)
        buckets[name][known.id] = record
    return buckets
