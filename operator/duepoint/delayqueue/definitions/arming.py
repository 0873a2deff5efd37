"""Writing definitions and their chain points: the operator's half of the queue.

An arming becomes numbers (namespace, rule and target are interned per shard, cached here), then
one script that writes definition, blob and chain or none of them. A shard made anew in between
refuses numbers of its former life; they are asked for again, once.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Sequence
from typing import Any

from duepoint import errors
from duepoint.delayqueue import messages, sharding
from duepoint.delayqueue.definitions import interning, numbering, records
from duepoint.delayqueue.wire import scripting
from duepoint.schedules import definition as definitions
from duepoint.schedules import points
from duepoint.schedules import rule as rules

#: Occurrences taken out per call of ``remove``: well below what unpack() can carry.
_REMOVE_BATCH = 500
#: Occurrences in one script: some 0.3 ms of the server's time.
_ENQUEUE_BATCH = 100


class Arming(numbering.Numbering):
    """upsert, enqueue, enqueue_many, withdraw, remove."""

    def digest(self, namespace: str, blob: bytes) -> str:
        return self._seal.digest(namespace, blob)

    async def upsert(
        self, arming: messages.Arming, blob: bytes, epoch: messages.Epoch
    ) -> messages.Armed:
        definition = arming.definition
        self._check(arming, blob)
        reply = await self._where_it_is(
            definition.id, lambda shard: self._upsert_at(shard, arming, blob, epoch)
        )
        return _armed(reply, definition)

    async def _upsert_at(
        self,
        shard: messages.ShardId,
        arming: messages.Arming,
        blob: bytes,
        epoch: messages.Epoch,
    ) -> bytes | None:
        """The script's answer; None where the schedule is not, and will never be, in this shard."""
        definition = arming.definition
        for last in (False, True):
            numbers = await self._numbers(shard, definition, epoch)
            call = self._upsert_call(shard, arming, blob, epoch, numbers)
            try:
                reply: bytes = await self._until_free(
                    shard, functools.partial(self._gathered_durably.run, call)
                )
            except scripting.LayoutChanged:
                self._interned.forget(shard)
                if last:
                    raise
            else:
                return None if reply == b"ABSENT" else reply
        raise errors.Bug("unreachable")  # pragma: no cover

    async def enqueue(
        self,
        definition: definitions.Definition,
        point: points.DuePoint,
        record: messages.OccurrenceRecord,
        epoch: messages.Epoch,
    ) -> messages.Armed:
        (armed,) = await self.enqueue_many(definition, [(point, record)], epoch)
        return armed

    async def enqueue_many(
        self,
        definition: definitions.Definition,
        wanted: Sequence[tuple[points.DuePoint, messages.OccurrenceRecord]],
        epoch: messages.Epoch,
    ) -> list[messages.Armed]:
        armed: list[messages.Armed] = []
        for first in range(0, len(wanted), _ENQUEUE_BATCH):
            part = wanted[first : first + _ENQUEUE_BATCH]
            armed += await self._enqueue_part(definition, part, epoch)
        return armed

    async def _enqueue_part(
        self,
        definition: definitions.Definition,
        wanted: Sequence[tuple[points.DuePoint, messages.OccurrenceRecord]],
        epoch: messages.Epoch,
    ) -> list[messages.Armed]:
        reply = await self._where_it_is(
            definition.id, lambda shard: self._enqueue_at(shard, definition, wanted, epoch)
        )
        if reply == b"GONE":
            raise errors.WorldChanged(f"{definition.identity}: its definition is gone")
        return [messages.Armed(one.decode().lower()) for one in reply]

    async def withdraw(
        self,
        definition: definitions.Definition,
        point: points.DuePoint,
        epoch: messages.Epoch,
    ) -> messages.Armed:
        reply = await self._where_it_is(
            definition.id, lambda shard: self._withdraw_at(shard, definition, point, epoch)
        )
        return messages.Armed(reply.decode().lower())

    async def _withdraw_at(
        self,
        shard: messages.ShardId,
        definition: definitions.Definition,
        point: points.DuePoint,
        epoch: messages.Epoch,
    ) -> bytes | None:
        text = interning.entry(interning.Kind.NAMESPACE, definition.namespace.encode())
        lane = (await self._intern(shard, [text], epoch))[text]
        names = self._shard(shard)
        arguments = scripting.Arguments(
            layout=sharding.layout_of(shard), epoch=epoch, lane=str(lane)
        )
        arguments.put("id", arguments.position(definition.id))
        arguments.put("member", arguments.position(point.member))
        keys = [names.meta, names.heads, names.occ, names.occrec, names.lane(lane), names.leases]
        call = arguments.call("withdraw", keys)
        reply: bytes = await self._until_free(shard, lambda: self._scripts.run(call))
        return None if reply == b"ABSENT" else reply

    async def _enqueue_at(
        self,
        shard: messages.ShardId,
        definition: definitions.Definition,
        wanted: Sequence[tuple[points.DuePoint, messages.OccurrenceRecord]],
        epoch: messages.Epoch,
    ) -> Any:  # noqa: ANN401 - what the script replies
        text = interning.entry(interning.Kind.NAMESPACE, definition.namespace.encode())
        lane = (await self._intern(shard, [text], epoch))[text]
        names = self._shard(shard)
        arguments = scripting.Arguments(
            layout=sharding.layout_of(shard), epoch=epoch, lane=str(lane)
        )
        arguments.put("id", arguments.position(definition.id))
        arguments.put("uid", arguments.position(packed_uid(definition.uid)))
        arguments.put("members", arguments.run(point.member for point, _ in wanted))
        arguments.put("records", arguments.run(records.pack(record) for _, record in wanted))
        bucket = names.bucket_of(definition.id, self._buckets)
        keys = [
            names.meta, names.heads, names.occ, names.occrec, names.wake, names.lane(lane),
            bucket, names.leases,
        ]  # fmt: skip
        call = arguments.call("enqueue", keys)
        reply = await self._until_free(shard, lambda: self._scripts.run(call))
        return None if reply == b"ABSENT" else reply

    async def remove(
        self,
        schedule_id: points.ScheduleId,
        uid: str,
        namespace: str,
        epoch: messages.Epoch,
    ) -> messages.Armed:
        removed: list[bool] = []

        async def remove(shard: messages.ShardId) -> bool | None:
            applied, elsewhere = await self._remove_at(shard, schedule_id, uid, namespace, epoch)
            removed.append(applied)
            return None if elsewhere else applied

        await self._where_it_is(schedule_id, remove)
        return messages.Armed.APPLIED if any(removed) else messages.Armed.UNCHANGED

    async def _remove_at(
        self,
        shard: messages.ShardId,
        schedule_id: points.ScheduleId,
        uid: str,
        namespace: str,
        epoch: messages.Epoch,
    ) -> tuple[bool, bool]:
        """Whether there was something, and whether a new shard may have more of it."""
        text = interning.entry(interning.Kind.NAMESPACE, namespace.encode())
        lane = (await self._intern(shard, [text], epoch))[text]
        names = self._shard(shard)
        bucket = names.bucket_of(schedule_id, self._buckets)
        keys = [names.meta, names.heads, names.occ, names.occrec, names.lane(lane), bucket]
        arguments = scripting.Arguments(
            layout=sharding.layout_of(shard), epoch=epoch, lane=lane, batch=_REMOVE_BATCH
        )
        arguments.put("id", arguments.position(schedule_id))
        arguments.put("uid", arguments.position(packed_uid(uid)))
        call = arguments.call("remove", [*keys, names.leases])
        was_there = False
        while True:
            applied, more, elsewhere = await self._until_free(
                shard, lambda: self._scripts.run(call)
            )
            was_there = was_there or applied == b"APPLIED"
            if not more:
                return was_there, bool(elsewhere)

    def _check(self, arming: messages.Arming, blob: bytes) -> None:
        definition = arming.definition
        if definition.target != self._seal.digest(definition.namespace, blob):
            raise errors.Bug(f"{definition.identity}: its target is not the digest of its blob")
        if arming.due_us is not None and not records.is_due(arming.due_us):
            raise errors.InvalidSpec(
                (
                    errors.FieldError(
                        reason="OutOfRange",
                        path="spec.schedule",
                        message="the next run is before 1970 or after September 2112;"
                        " write a time between",
                    ),
                )
            )

    def _upsert_call(
        self,
        shard: messages.ShardId,
        arming: messages.Arming,
        blob: bytes,
        epoch: messages.Epoch,
        numbers: tuple[int, int, int | None],
    ) -> scripting.Call:
        definition = arming.definition
        lane, target, rule = numbers
        names = self._shard(shard)
        arguments = scripting.Arguments(
            layout=sharding.layout_of(shard),
            epoch=epoch,
            incarnation=self._interned.incarnation(shard),
            lane=str(lane),
            keep_chain=arming.keep_chain,
        )
        if arming.due_us is not None:
            arguments.put("due", arming.due_us)
            arguments.put("after", arming.after_us)
        if arming.replaces:
            arguments.put("replaces", arguments.position(arming.replaces))
        record = definitions.pack(definition, namespace=lane, target=target, rule=rule)
        arguments.put("numbers", [number for number in numbers if number is not None])
        arguments.put("id", arguments.position(definition.id))
        arguments.put("record", arguments.position(record))
        chain = definition.id + definition.timing_version
        arguments.put("chain", arguments.position(chain))
        arguments.put("digest", arguments.position(definition.target))
        arguments.put("blob", arguments.position(self._seal.pack(blob)))
        arguments.put(
            "open",
            arguments.run(
                value
                for one in arming.open
                for value in (str(one.point.due_us), one.point.member, records.pack(one.record))
            ),
        )
        bucket = names.bucket_of(definition.id, self._buckets)
        return arguments.call(
            "upsert",
            [
                names.meta,
                names.heads,
                names.blobs,
                names.wake,
                names.lane(lane),
                bucket,
                names.leases,
                names.interned,
                names.occ,
                names.occrec,
            ],
        )

    async def _numbers(
        self, shard: messages.ShardId, definition: definitions.Definition, epoch: messages.Epoch
    ) -> tuple[int, int, int | None]:
        """Numbers of namespace, target and, unless it stands inline, rule."""
        namespace = interning.entry(interning.Kind.NAMESPACE, definition.namespace.encode())
        target = interning.entry(interning.Kind.TARGET, definition.target.encode())
        texts = [namespace, target]
        rule = None
        if not definition.rule.is_private:
            rule = interning.entry(interning.Kind.RULE, rules.text(definition.rule))
            texts.append(rule)
        known = await self._intern(shard, texts, epoch)
        return known[namespace], known[target], None if rule is None else known[rule]


def _armed(reply: bytes, definition: definitions.Definition) -> messages.Armed:
    if reply == b"CHANGED":
        raise errors.WorldChanged(
            f"{definition.identity}: its chain is not the one that was to be kept; read it again"
        )
    return messages.Armed(reply.decode().lower())


def packed_uid(uid: str) -> bytes:
    """The uid as it stands in a packed definition, without its length."""
    try:
        parsed = uuid.UUID(uid)
    except ValueError:
        return uid.encode()
    return parsed.bytes if str(parsed) == uid else uid.encode()
