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
import bisect
import collections
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar, cast

import msgspec

from duepoint import errors
from duepoint.delayqueue import keys, messages, sharding
from duepoint.delayqueue.definitions import arming, interning, records, seal
from duepoint.delayqueue.wire import scripting
from duepoint.schedules import definition as definitions
from duepoint.schedules import points
from duepoint.schedules import rule as rules

#: Schedules and open slots of one script: some 5 us of the server's time each, and unpack() carries
#: 7,900 values. One schedule is never divided, and has a few hundred open slots at most.
_PART = 250
#: Parts of one round trip: a few milliseconds of the server's time, between others' commands.
_PARTS_TOGETHER = 8
#: Tries with other numbers, and without those that were found standing, before the rest goes by
#: ``upsert``.
_ROUNDS = 3
_UPSERTS_TOGETHER = 64

_VERSION = slice(definitions.VERSION_OFFSET, definitions.VERSION_OFFSET + 4)

#: As the first two arguments of ``upsert``.
Wanted = tuple[messages.Arming, bytes]
ItemT = TypeVar("ItemT")


class _Row(msgspec.Struct, frozen=True, gc=False):
    """One schedule to be written; ``place`` is where the caller has it."""

    place: int
    id: points.ScheduleId
    arming: messages.Arming
    kind: _Kind


class _Bucket(NamedTuple):
    """Rows whose definitions lie in one bucket, as ``keys.place_of`` numbers them."""

    shard: messages.ShardId
    bucket: int
    rows: list[_Row]


@dataclass(frozen=True, slots=True)
class _Part:
    """One call of the script, and whose ids stand where in its ARGV."""

    shard: messages.ShardId
    buckets: list[_Bucket]
    call: scripting.Call
    firsts: list[int]

    def rows(self) -> Iterator[_Row]:
        return itertools.chain.from_iterable(bucket.rows for bucket in self.buckets)

    def row_at(self, position: int) -> _Row:
        number = bisect.bisect_right(self.firsts, position) - 1
        return self.buckets[number].rows[(position - self.firsts[number]) // 2]


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


class _Numbers(NamedTuple):
    """The texts of a kind as a shard numbers them."""

    namespace: int
    target: int
    rule: int | None


class _Kinds:
    """The kinds of one call, each worked out once."""

    def __init__(self, sealed: seal.Seal) -> None:
        self._seal = sealed
        self._kinds: dict[tuple[str, str, int, bytes], _Kind] = {}
        self._blobs: dict[str, bytes] = {}

    def known(self, one: definitions.Definition, content: bytes) -> _Kind | None:
        return self._kinds.get((one.namespace, one.target, id(one.rule), content))

    def learn(self, one: definitions.Definition, content: bytes) -> _Kind:
        rule = one.rule
        is_inline = rule.is_private
        kind = self._kinds[one.namespace, one.target, id(rule), content] = _Kind(
            namespace=_entry(interning.Kind.NAMESPACE, one.namespace.encode()),
            target=_entry(interning.Kind.TARGET, one.target.encode()),
            rule=None if is_inline else _entry(interning.Kind.RULE, rules.text(rule)),
            digest=one.target,
            blob=self._sealed(one.target, content),
            made_from=rule,
        )
        return kind

    def _sealed(self, digest: str, content: bytes) -> bytes:
        packed = self._blobs.get(digest)
        if packed is None:
            packed = self._blobs[digest] = self._seal.pack(content)
        return packed


_entry = interning.entry


class Filling(arming.Arming):
    """upsert_many."""

    async def upsert_many(
        self, wanted: Sequence[Wanted], epoch: messages.Epoch
    ) -> list[messages.Armed]:
        answers: list[messages.Armed | None] = [None] * len(wanted)
        waiting = self._fillable(wanted)
        for _ in range(_ROUNDS):
            waiting = await self._fill(waiting, answers, epoch)
        left = [place for place, answer in enumerate(answers) if answer is None]
        for several in _slices(left, _UPSERTS_TOGETHER):
            told = await asyncio.gather(*(self.upsert(*wanted[place], epoch) for place in several))
            for place, answer in zip(several, told, strict=True):
                answers[place] = answer
        return cast("list[messages.Armed]", answers)

    def _fillable(self, wanted: Sequence[Wanted]) -> list[_Row]:
        """What may be new, no id twice; raises what ``upsert`` raises of one that cannot be."""
        rows: dict[points.ScheduleId, _Row] = {}
        kinds = _Kinds(self._seal)
        for place, (one, blob) in enumerate(wanted):
            known, due_us = one.definition, one.due_us
            kind = kinds.known(known, blob)
            if kind is None or not (due_us is None or 0 <= due_us < points.DUE_LIMIT_US):
                self._check(one, blob)
                kind = kinds.learn(known, blob)
            if not one.keep_chain:
                id_ = known.id
                if id_ not in rows:
                    rows[id_] = _Row(place, id_, one, kind)
        return list(rows.values()) if self._known_layout().former is None else []

    async def _fill(
        self,
        rows: Sequence[_Row],
        answers: list[messages.Armed | None],
        epoch: messages.Epoch,
    ) -> list[_Row]:
        """Write what is new; what is to be tried once more."""
        again: list[_Row] = []
        for several in _slices(self._parts(rows), _PARTS_TOGETHER):
            parts = [await self._part(buckets, epoch) for buckets in several]
            replies = await self._scripts.run_many_durably([part.call for part in parts])
            for part, reply in zip(parts, replies, strict=True):
                if isinstance(reply, scripting.LayoutChanged):
                    self._interned.forget(part.shard)  # made anew: its numbers are others
                    again += part.rows()
                elif isinstance(reply, errors.DuepointError):
                    raise reply
                elif reply:
                    standing = {part.row_at(position).place for position in reply}
                    again += [row for row in part.rows() if row.place not in standing]
                else:
                    for row in part.rows():
                        answers[row.place] = messages.Armed.APPLIED
        return again

    def _parts(self, rows: Iterable[_Row]) -> list[list[_Bucket]]:
        """The rows of each script, by bucket; all of a script are of one shard."""
        layout, buckets = self._known_layout(), self._buckets
        last_shard = layout.shards - 1
        found: collections.defaultdict[tuple[int, int], list[_Row]]
        found = collections.defaultdict(list)
        for row in rows:
            number = int.from_bytes(row.id, "big")
            found[number & last_shard, keys.place_of_number(number, buckets)].append(row)
        shards = sharding.own_shards(layout)
        return list(_in_parts(_Bucket(shards[shard], bucket, found[shard, bucket])
                              for shard, bucket in sorted(found)))  # fmt: skip

    async def _part(self, buckets: list[_Bucket], epoch: messages.Epoch) -> _Part:
        shard = buckets[0].shard
        kinds = {row.kind for bucket in buckets for row in bucket.rows}
        texts = set(itertools.chain.from_iterable(kind.texts() for kind in kinds))
        numbers = await self._intern(shard, sorted(texts), epoch)
        known = {
            kind: _Numbers(
                namespace=numbers[kind.namespace],
                target=numbers[kind.target],
                rule=None if kind.rule is None else numbers[kind.rule],
            )
            for kind in kinds
        }
        arguments = scripting.Arguments(
            layout=sharding.layout_of(shard),
            epoch=epoch,
            incarnation=self._interned.incarnation(shard),
            numbers=list(numbers.values()),
        )
        call, positions = self._fill_call(buckets, known, arguments)
        return _Part(shard, buckets, call, positions)

    def _fill_call(
        self,
        buckets: Sequence[_Bucket],
        known: Mapping[_Kind, _Numbers],
        arguments: scripting.Arguments,
    ) -> tuple[scripting.Call, list[int]]:
        """The call, and where the first id of each bucket stands in its ARGV."""
        names = self._shard(buckets[0].shard)
        used = [names.meta, names.heads, names.blobs, names.wake, names.interned]
        used += [names.occ, names.occrec]
        blobs = {kind.digest: kind.blob for kind in known}
        arguments.put("blobs", arguments.run(itertools.chain.from_iterable(blobs.items())))
        chains: collections.defaultdict[int, list[bytes | str]]
        chains = collections.defaultdict(list)
        open_: list[bytes] = []
        ranges = []
        for _, bucket, rows in buckets:
            used.append(names.bucket_at(bucket, self._buckets))
            ranges.append((len(used), *arguments.run(_records(rows, known, chains, open_))))
        arguments.put("buckets", ranges)
        lanes = []
        for lane, pairs in chains.items():
            used.append(names.lane(lane))
            lanes.append((str(lane), len(used), *arguments.run(pairs)))
        arguments.put("lanes", lanes)
        arguments.put("open", arguments.run(open_))
        return arguments.call("fill", used), [first for _, first, _ in ranges]


def _records(
    rows: Iterable[_Row],
    known: Mapping[_Kind, _Numbers],
    chains: Mapping[int, list[bytes | str]],
    open_: list[bytes],
) -> list[bytes]:
    """Id, record pairs of some rows.

    The due, member pairs of their points go to their lanes, the member, record pairs of their
    occurrences to ``open_``.
    """
    values: list[bytes] = []
    for row in rows:
        arming_, id_ = row.arming, row.id
        definition = arming_.definition
        lane, target, rule = known[row.kind]
        record = definitions.pack(definition, namespace=lane, target=target, rule=rule)
        values += (id_, record)
        of_lane = chains[lane]
        if arming_.due_us is not None:
            of_lane += (str(arming_.due_us), id_ + record[_VERSION])
        for one in arming_.open:
            of_lane += (str(one.point.due_us), one.point.member)
            open_ += (one.point.member, records.pack(one.record))
    return values


def _in_parts(buckets: Iterable[_Bucket]) -> Iterator[list[_Bucket]]:
    """Buckets in order, so many as one script may carry; larger ones are divided."""
    part: list[_Bucket] = []
    room = _PART
    for bucket in buckets:
        if part and bucket.shard != part[0].shard:
            yield part
            part, room = [], _PART
        rows = bucket.rows
        while rows:
            count, weight = _fitting(rows, room)
            if count:
                part.append(bucket._replace(rows=rows[:count]))
                rows = rows[count:]
                room -= weight
            if rows or room <= 0:
                yield part
                part, room = [], _PART
    if part:
        yield part


def _fitting(rows: Sequence[_Row], room: int) -> tuple[int, int]:
    """How many rows have room, and what they weigh; a row alone in its script always has."""
    weight = 0
    for count, row in enumerate(rows):
        heavier = weight + 1 + len(row.arming.open)
        if heavier > room and not (count == 0 and room == _PART):
            return count, weight
        weight = heavier
    return len(rows), weight


def _slices(items: list[ItemT], length: int) -> Iterator[list[ItemT]]:
    for first in range(0, len(items), length):
        yield items[first : first + length]
