"""Storing definitions with their chain points: the operator's half of the queue.

``upsert`` takes one row or a million. It puts the rows together by shard, bucket and lane, turns
what they share (namespace, rule, target) into the numbers of their shard, and sends up to 250 of
them in one script, which compares each with what is stored and writes it whole or not at all.
A shard that was created anew refuses numbers of its former life: they are asked for again, once.
While the index is resharded a row goes to the former shard first, and to the new one where it is
not there.

Callers run a few calls side by side: one is put together while the server writes another, and
calls that meet in one turn of the event loop share a round trip.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import msgspec

from duepoint import errors
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import index, keys, layouts, messages, sharding
from duepoint.delayqueue.definitions import codec, interning, moves, records, signedblobs
from duepoint.delayqueue.wire import scripting
from duepoint.schedules import definition as definitions
from duepoint.schedules import points
from duepoint.schedules import rule as rules

#: Rows and open slots of one script: some 5 us of the server's time each, and unpack() carries
#: 7,900 values. One schedule is never divided, and has a few hundred open slots at most.
_PART = 250
#: Occurrences taken out per call of ``remove``: well below what unpack() can carry.
_REMOVE_BATCH = 500
#: Parts of one round trip: a few milliseconds of the server's time, between others' commands.
_PARTS_TOGETHER = 8
#: Looks for the schedules of one call while the layout changes: it changes twice in a move.
_ROUNDS = 4

#: What the script answers about a row, and what it means.
_ANSWERS = {name.upper().encode(): name for name in messages.Armed}
_ABSENT = b"ABSENT"

#: What is to be stored of one schedule, and the content that its target names.
Wanted = tuple[messages.Arming, bytes]


@dataclass(frozen=True, slots=True, eq=False)
class _Kind:
    """What definitions of one namespace, target and rule have in common, as it is stored.

    Attributes:
        rule: None: its text stands in the definition itself.
        made_from: the rule, whose identity stands for it while this lives.
    """

    namespace: bytes
    target: bytes
    rule: bytes | None
    digest: str
    blob: bytes
    made_from: rules.Rule

    def texts(self) -> list[bytes]:
        texts = self.namespace, self.target, self.rule
        return [text for text in texts if text is not None]


class _Row(msgspec.Struct, frozen=True, gc=False):
    """One schedule to be stored; ``place`` is where the caller has it."""

    place: int
    id: points.ScheduleId
    arming: messages.Arming
    kind: _Kind


class _Group(NamedTuple):
    """Rows of one namespace whose definitions lie in one bucket (see ``keys.place_of``)."""

    bucket: int
    rows: list[_Row]


class _Part(NamedTuple):
    """The rows of one script call."""

    shard: messages.ShardId
    groups: list[_Group]

    def rows(self) -> Iterator[_Row]:
        return itertools.chain.from_iterable(group.rows for group in self.groups)


class _Numbers(NamedTuple):
    """The texts of a kind as a shard numbers them."""

    namespace: int
    target: int
    rule: int | None


@dataclass(eq=False)
class DefinitionWriter:
    """Stores definitions, their blobs and their chain points, and removes them."""

    index: index.Index
    layouts: layouts.Layouts
    numbering: interning.Numbering
    interned: interning.Interned
    signed_blobs: signedblobs.SignedBlobs
    moves: moves.Moves

    async def upsert(self, wanted: Sequence[Wanted], epoch: messages.Epoch) -> list[messages.Armed]:
        answers: list[messages.Armed | None] = [None] * len(wanted)
        rows = self._rows(wanted)
        while rows:
            distinct = {row.id: row for row in reversed(rows)}
            await self._store(list(distinct.values()), answers, epoch)
            rows = [row for row in rows if answers[row.place] is None]
        return cast("list[messages.Armed]", answers)

    def _rows(self, wanted: Sequence[Wanted]) -> list[_Row]:
        """The rows; raises Bug or InvalidSpec where one cannot be stored."""
        kinds: dict[tuple[str, str, int, bytes], _Kind] = {}
        blobs: dict[str, bytes] = {}
        rows = []
        for place, (arming, content) in enumerate(wanted):
            known, due_us = arming.definition, arming.due_us
            if due_us is not None and not records.is_due(due_us):
                raise _out_of_range()
            key = (known.namespace, known.target, id(known.rule), content)
            kind = kinds.get(key)
            if kind is None:
                kind = kinds[key] = self._kind(known, content, blobs)
            rows.append(_Row(place, known.id, arming, kind))
        return rows

    def _kind(
        self, known: definitions.Definition, content: bytes, blobs: dict[str, bytes]
    ) -> _Kind:
        if known.target != self.signed_blobs.digest(known.namespace, content):
            raise errors.Bug(f"{known.identity}: its target is not the digest of its blob")
        if known.target not in blobs:
            blobs[known.target] = self.signed_blobs.pack(content)
        rule, entry = known.rule, interning.entry
        return _Kind(
            namespace=entry(interning.TextKind.NAMESPACE, known.namespace.encode()),
            target=entry(interning.TextKind.TARGET, known.target.encode()),
            rule=None if rule.is_private else entry(interning.TextKind.RULE, rules.text(rule)),
            digest=known.target,
            blob=blobs[known.target],
            made_from=rule,
        )

    async def _store(
        self, rows: list[_Row], answers: list[messages.Armed | None], epoch: messages.Epoch
    ) -> None:
        """Answer every row; no two of them are of one schedule."""
        for _ in range(_ROUNDS):
            layout = self.index.known_layout()
            try:
                if layout.former is not None:
                    rows = await self._store_in(layout.former, rows, answers, epoch)
                rows = await self._store_in(layout, rows, answers, epoch)
            except queue_errors.LayoutChanged:
                if await self.layouts.read() == layout:
                    raise
                rows = [row for row in rows if answers[row.place] is None]
            if not rows:
                return
            await self.layouts.read()
        raise queue_errors.LayoutChanged("the index is resharded faster than it can be written")

    async def _store_in(
        self,
        layout: messages.Layout,
        rows: Iterable[_Row],
        answers: list[messages.Armed | None],
        epoch: messages.Epoch,
    ) -> list[_Row]:
        """Answer the rows that a layout's shards have, or may have; the others are returned."""
        absent: list[_Row] = []
        all_parts = _parts(rows, layout, self.index.buckets)
        for first in range(0, len(all_parts), _PARTS_TOGETHER):
            parts: list[_Part] = []
            calls: list[scripting.ScriptCall] = []
            for part in all_parts[first : first + _PARTS_TOGETHER]:
                try:
                    calls.append(await self._call(part, epoch))
                    parts.append(part)
                except queue_errors.LayoutChanged:
                    self._forget_closed(part.shard)  # of a former layout: it has none of the rows
                    absent += part.rows()
            replies = await self.index.pipelined_durably.replies(calls)
            for part, reply in zip(parts, replies, strict=True):
                for row, answer in zip(
                    part.rows(), await self._answers(part, reply, epoch), strict=True
                ):
                    if answer == _ABSENT:
                        absent.append(row)
                    else:
                        answers[row.place] = _ANSWERS[answer]
        return absent

    async def _answers(
        self, part: _Part, reply: list[bytes] | errors.DuepointError, epoch: messages.Epoch
    ) -> list[bytes]:
        """What the script says of each row, once nothing keeps it from looking at them."""
        if isinstance(reply, queue_errors.LayoutChanged):
            self.interned.forget(part.shard)  # created anew: its numbers are others
        elif isinstance(reply, errors.DuepointError):
            raise reply
        elif reply[0] != b"BUSY":
            return reply

        async def again() -> list[bytes]:
            answers: list[bytes] = await self.index.pipelined_durably.run(
                await self._call(part, epoch)
            )
            return answers

        try:
            return await self.moves.until_free(part.shard, again)
        except queue_errors.LayoutChanged:
            self._forget_closed(part.shard)
            return [_ABSENT for _ in part.rows()]

    def _forget_closed(self, shard: messages.ShardId) -> None:
        """Forget a former shard that is closed; raises LayoutChanged again for a current one."""
        self.interned.forget(shard)
        if sharding.layout_of(shard) == self.index.known_layout().number:
            raise queue_errors.LayoutChanged(f"shard {shard} is of another layout now")

    async def _call(self, part: _Part, epoch: messages.Epoch) -> scripting.ScriptCall:
        shard = part.shard
        kinds = dict.fromkeys(row.kind for row in part.rows())
        # In their order, so that namespaces, which all records name, have the smallest numbers.
        texts = dict.fromkeys(itertools.chain.from_iterable(kind.texts() for kind in kinds))
        numbers = await self.numbering.intern(shard, list(texts), epoch)
        numbers_of = {
            kind: _Numbers(
                namespace=numbers[kind.namespace],
                target=numbers[kind.target],
                rule=None if kind.rule is None else numbers[kind.rule],
            )
            for kind in kinds
        }
        call = self.index.call(
            "upsert",
            shard,
            epoch=epoch,
            incarnation=self.interned.incarnation(shard),
            numbers=list(numbers.values()),
        )
        blobs = {kind.digest: kind.blob for kind in kinds}
        call.put(blobs=call.run(itertools.chain.from_iterable(blobs.items())))
        names = self.index.shard(shard)
        lanes: dict[int, int] = {}
        groups: list[int] = []
        options: dict[int, dict[str, object]] = {}
        for bucket, rows in part.groups:
            lane = lanes.setdefault(numbers_of[rows[0].kind].namespace, len(lanes) + 1)
            first, last = call.run(_values(rows, numbers_of))
            key = call.key(names.bucket_at(bucket, self.index.buckets))
            groups += (key, lane, first, last)
            for place, row in enumerate(rows):
                if chosen := _options(row.arming, call):
                    options[first + _ROW_LENGTH * place] = chosen
        keyed = [(str(number), call.key(names.lane(number))) for number in lanes]
        call.put(groups=groups, lanes=keyed, options=options)
        return call

    async def remove(
        self,
        schedule_id: points.ScheduleId,
        uid: str,
        namespace: str,
        epoch: messages.Epoch,
    ) -> messages.Armed:
        removed: list[bytes] = []

        async def remove(shard: messages.ShardId) -> bool | None:
            """None where a new shard may have more of it."""
            lane = await self.numbering.lane(shard, namespace, epoch)
            names = self.index.shard(shard)
            call = self.index.call(
                "remove",
                shard,
                *(
                    names.lane(lane),
                    names.bucket_of(schedule_id, self.index.buckets),
                    names.history_of(schedule_id, self.index.buckets),
                ),
                epoch=epoch,
                lane=lane,
                batch=_REMOVE_BATCH,
                id=schedule_id,
                uid=codec.packed_uid(uid),
            )
            more = True
            while more:
                applied, more, elsewhere = await self.moves.until_free(
                    shard, lambda: self.index.scripts.run(call)
                )
                removed.append(applied)
            return None if elsewhere else True

        await self.layouts.where_it_is(schedule_id, remove)
        return messages.Armed.APPLIED if b"APPLIED" in removed else messages.Armed.UNCHANGED


#: Values of a row: id, record, due of its chain.
_ROW_LENGTH = 3


def _values(rows: Iterable[_Row], numbers_of: Mapping[_Kind, _Numbers]) -> list[bytes | str]:
    values: list[bytes | str] = []
    for row in rows:
        arming = row.arming
        namespace, target, rule = numbers_of[row.kind]
        record = codec.pack(arming.definition, namespace=namespace, target=target, rule=rule)
        values += (row.id, record, "" if arming.due_us is None else str(arming.due_us))
    return values


def _options(arming: messages.Arming, call: scripting.ScriptCall) -> dict[str, object]:
    options: dict[str, object] = {}
    if arming.keep_chain:
        options = {"keep_chain": True, "after": arming.after_us}
    if arming.replaces:
        options["replaces"] = call.position(arming.replaces)
    if arming.undone_after_us is not None:
        options["undone_after"] = arming.undone_after_us
    if arming.open:
        options["open"] = call.run(
            itertools.chain.from_iterable(
                (
                    str(occurrence.point.due_us),
                    occurrence.point.member,
                    records.pack(occurrence.record),
                )
                for occurrence in arming.open
            )
        )
    return options


def _parts(rows: Iterable[_Row], layout: messages.Layout, buckets: int) -> list[_Part]:
    """The rows of each script call, group by group; all of a call are of one shard."""
    last_shard = layout.shards - 1
    found: collections.defaultdict[tuple[int, int, str], list[_Row]]
    found = collections.defaultdict(list)
    for row in rows:
        number = int.from_bytes(row.id, "big")
        namespace = row.arming.definition.namespace
        found[number & last_shard, keys.place_of_number(number, buckets), namespace].append(row)
    shards = sharding.own_shards(layout)
    parts: list[_Part] = []
    room = 0
    for (shard, bucket, _), listed in sorted(found.items(), key=lambda item: item[0]):
        for group in _divided(listed):
            weight = sum(1 + len(row.arming.open) for row in group)
            if not parts or parts[-1].shard != shards[shard] or weight > room:
                parts.append(_Part(shards[shard], []))
                room = _PART
            parts[-1].groups.append(_Group(bucket, group))
            room -= weight
    return parts


def _divided(rows: list[_Row]) -> Iterator[list[_Row]]:
    """Rows of one bucket, so many as one script may carry; a row alone always may."""
    part: list[_Row] = []
    room = _PART
    for row in rows:
        weight = 1 + len(row.arming.open)
        if part and weight > room:
            yield part
            part, room = [], _PART
        part.append(row)
        room -= weight
    yield part


def _out_of_range() -> errors.InvalidSpec:
    return errors.InvalidSpec(
        (
            errors.FieldError(
                reason="OutOfRange",
                path="spec.schedule",
                message="the next run is before 1970 or after September 2112; write a time between",
            ),
        )
    )
