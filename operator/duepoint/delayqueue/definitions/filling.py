"""Arming by the thousand: what an empty index, or an empty shard of it, is filled with.

``upsert`` compares each schedule with what is stored and costs a script of its own. Where nothing
is stored there is nothing to compare: here schedules are put together by shard, bucket and lane,
and written a few hundred at a time by native commands with many values. The script writes all of a
part or nothing; what turns out to stand there already, whatever keeps a chain, and everything
while the index is cut anew goes by ``upsert``.

Callers run a few of these side by side: one is put together here while the server writes another.
"""

from __future__ import annotations

import asyncio
import itertools
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from duepoint import errors
from duepoint.delayqueue import keys, messages, sharding
from duepoint.delayqueue.definitions import arming, interning, records, seal
from duepoint.delayqueue.wire import scripting
from duepoint.schedules import definition as definitions
from duepoint.schedules import points
from duepoint.schedules import rule as rules

#: Schedules of one script: some 5 us of the server's time each, and unpack() carries 7,900 values.
_PART = 250
#: Parts of one round trip: a few milliseconds of the server's time, between others' commands.
_PARTS_TOGETHER = 8
#: Tries without those that were found standing, before the rest goes by ``upsert``.
_ROUNDS = 3
_UPSERTS_TOGETHER = 64

_VERSION = slice(definitions.VERSION_OFFSET, definitions.VERSION_OFFSET + 4)

#: As the first two arguments of ``upsert``.
Wanted = tuple[messages.Arming, bytes]
ItemT = TypeVar("ItemT")


class _Row(NamedTuple):
    """One schedule to be written; ``place`` is where the caller has it."""

    shard: messages.ShardId  # first, so that rows of one shard and bucket are sorted together
    bucket: int
    place: int
    id: points.ScheduleId
    arming: messages.Arming
    blob: bytes


@dataclass(frozen=True, slots=True)
class _Part:
    """One call of the script, and whose id stands where in its ARGV."""

    shard: messages.ShardId
    rows: list[_Row]
    call: scripting.Call
    row_at: dict[int, _Row]


@dataclass(frozen=True, slots=True)
class _Stored:
    """How the texts of a definition are stored; ``rule`` None: in the definition itself."""

    namespace: bytes
    target: bytes
    rule: bytes | None


class _Shared:
    """What rows have in common, worked out once."""

    def __init__(self, sealed: seal.Seal) -> None:
        self._seal = sealed
        self._texts: dict[tuple[str, str, int], _Stored] = {}
        self._kept: list[rules.Rule] = []  # whose identity is a key must not go away
        self._blobs: dict[str, bytes] = {}

    def texts(self, known: definitions.Definition) -> _Stored:
        key = known.namespace, known.target, id(known.rule)
        found = self._texts.get(key)
        if found is None:
            self._kept.append(known.rule)
            is_inline = known.rule.is_private
            rule = None if is_inline else _entry(interning.Kind.RULE, rules.text(known.rule))
            found = self._texts[key] = _Stored(
                namespace=_entry(interning.Kind.NAMESPACE, known.namespace.encode()),
                target=_entry(interning.Kind.TARGET, known.target.encode()),
                rule=rule,
            )
        return found

    def blob(self, digest: str, content: bytes) -> bytes:
        """As it is stored."""
        packed = self._blobs.get(digest)
        if packed is None:
            packed = self._blobs[digest] = self._seal.pack(content)
        return packed


_entry = interning.entry
_shard_of = operator.attrgetter("shard")


def _bucket_of(paired: tuple[_Row, _Stored]) -> int:
    return paired[0].bucket


class Filling(arming.Arming):
    """upsert_many."""

    async def upsert_many(
        self, wanted: Sequence[Wanted], epoch: messages.Epoch
    ) -> list[messages.Armed]:
        answers: dict[int, messages.Armed] = {}
        shared = _Shared(self._seal)
        waiting = self._fillable(wanted)
        for _ in range(_ROUNDS):
            waiting = await self._fill(waiting, shared, answers, epoch)
        left = [place for place in range(len(wanted)) if place not in answers]
        for several in _slices(left, _UPSERTS_TOGETHER):
            told = await asyncio.gather(*(self.upsert(*wanted[place], epoch) for place in several))
            answers.update(zip(several, told, strict=True))
        return [answers[place] for place in range(len(wanted))]

    def _fillable(self, wanted: Sequence[Wanted]) -> list[_Row]:
        """What may be new, no id twice; raises what ``upsert`` raises of one that cannot be."""
        rows: dict[points.ScheduleId, _Row] = {}
        checked: set[tuple[str, str, bytes]] = set()
        layout, buckets = self._known_layout(), self._buckets
        shards = sharding.own_shards(layout)
        for place, (one, blob) in enumerate(wanted):
            known = one.definition
            due_us = one.due_us
            key = known.namespace, known.target, blob
            if key not in checked or not (due_us is None or records.is_due(due_us)):
                self._check(one, blob)
                checked.add(key)
            if not one.keep_chain:
                id_ = known.id
                home = shards[sharding.shard_of(id_, layout.shards)]
                bucket = keys.place_of(id_, buckets)
                rows.setdefault(id_, _Row(home, bucket, place, id_, one, blob))
        return list(rows.values()) if layout.former is None else []

    async def _fill(
        self,
        rows: list[_Row],
        shared: _Shared,
        answers: dict[int, messages.Armed],
        epoch: messages.Epoch,
    ) -> list[_Row]:
        """Write what is new; the neighbours of what is not, to be tried without it."""
        again: list[_Row] = []
        for several in _slices(self._by_shard(rows), _PARTS_TOGETHER):
            parts = [await self._part(shard, listed, shared, epoch) for shard, listed in several]
            replies = await self._scripts.run_many_durably([part.call for part in parts])
            for part, reply in zip(parts, replies, strict=True):
                if isinstance(reply, scripting.LayoutChanged):
                    self._interned.forget(part.shard)
                elif isinstance(reply, errors.DuepointError):
                    raise reply
                elif reply:
                    standing = {part.row_at[position].place for position in reply}
                    again += [row for row in part.rows if row.place not in standing]
                else:
                    answers.update((row.place, messages.Armed.APPLIED) for row in part.rows)
        return again

    def _by_shard(self, rows: list[_Row]) -> list[tuple[messages.ShardId, list[_Row]]]:
        return [
            (shard, part)
            for shard, listed in itertools.groupby(sorted(rows), _shard_of)
            for part in _slices(list(listed), _PART)
        ]

    async def _part(
        self,
        shard: messages.ShardId,
        rows: list[_Row],
        shared: _Shared,
        epoch: messages.Epoch,
    ) -> _Part:
        stored = [shared.texts(row.arming.definition) for row in rows]
        distinct = {
            text
            for of_row in {id(one): one for one in stored}.values()
            for text in (of_row.namespace, of_row.target, of_row.rule)
            if text is not None
        }
        numbers = await self._intern(shard, sorted(distinct), epoch)
        built = _Script(self._shard(shard), self._buckets)
        for bucket, listed in itertools.groupby(zip(rows, stored, strict=True), _bucket_of):
            built.add(bucket, list(listed), numbers, shared)
        arguments = scripting.Arguments(
            layout=sharding.layout_of(shard),
            epoch=epoch,
            incarnation=self._interned.incarnation(shard),
            numbers=list(numbers.values()),
        )
        return _Part(shard, rows, *built.call(arguments))


class _Script:
    """The call of ``fill`` for some rows of one shard."""

    def __init__(self, names: keys.ShardKeys, buckets: int) -> None:
        self._names = names
        self._number_of_buckets = buckets
        self._buckets: dict[int, tuple[list[bytes], list[_Row]]] = {}
        self._lanes: dict[int, list[bytes | str]] = {}
        self._blobs: dict[str, bytes] = {}

    def add(
        self,
        bucket: int,
        rows: Sequence[tuple[_Row, _Stored]],
        numbers: dict[bytes, int],
        shared: _Shared,
    ) -> None:
        """The rows of one bucket."""
        values: list[bytes] = []
        for row, texts in rows:
            known, due_us = row.arming.definition, row.arming.due_us
            lane = numbers[texts.namespace]
            record = definitions.pack(
                known,
                namespace=lane,
                target=numbers[texts.target],
                rule=None if texts.rule is None else numbers[texts.rule],
            )
            values += (row.id, record)
            chains = self._lanes.setdefault(lane, [])
            if due_us is not None:
                chains += (str(due_us), row.id + record[_VERSION])
            if known.target not in self._blobs:
                self._blobs[known.target] = shared.blob(known.target, row.blob)
        self._buckets[bucket] = values, [row for row, _ in rows]

    def call(self, arguments: scripting.Arguments) -> tuple[scripting.Call, dict[int, _Row]]:
        """The call, and whose id stands where in its ARGV."""
        names = self._names
        used = [names.meta, names.heads, names.blobs, names.wake, names.interned]
        sealed = [value.encode() if isinstance(value, str) else value
                  for pair in self._blobs.items() for value in pair]  # fmt: skip
        arguments.put("blobs", arguments.run(sealed))
        row_at: dict[int, _Row] = {}
        buckets = []
        for place, (values, rows) in self._buckets.items():
            used.append(names.bucket_at(place, self._number_of_buckets))
            first, last = arguments.run(values)
            buckets.append((len(used), first, last))
            row_at.update(zip(range(first, last, 2), rows, strict=True))
        lanes = []
        for lane, chains in self._lanes.items():
            used.append(names.lane(lane))
            lanes.append((str(lane), len(used), *arguments.run(chains)))
        arguments.put("buckets", buckets)
        arguments.put("lanes", lanes)
        return arguments.call("fill", used), row_at


def _slices(items: list[ItemT], length: int) -> Iterator[list[ItemT]]:
    for first in range(0, len(items), length):
        yield items[first : first + length]
