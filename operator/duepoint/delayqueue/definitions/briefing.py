"""Reading the definitions of hundreds of claimed chains: one script, one reply, no object for each.

The usual reading sends a command for each bucket, and each reply costs a client more than the
server. Here a script gathers them. Records are not remembered, because taking one apart costs less
than looking for it in a cache; what is remembered are names of buckets and kinds.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import struct
from collections.abc import Hashable, Sequence
from typing import cast

import msgspec

from duepoint.delayqueue import index, messages, sharding
from duepoint.delayqueue.definitions import codec, interning, reading
from duepoint.delayqueue.wire import scripting
from duepoint.schedules import points

#: Names of buckets that are remembered, of all shards together, and kinds of each shard.
_REMEMBERED = 65_536
_REMEMBERED_KINDS = 4_096
_VERSION_AT = 8
_NAMESPACE_BITS = 0xFFFC
_BUCKET_BITS = 48
#: The id of a chain as a number, and its timing version.
_MEMBER = struct.Struct(">Q4s")

#: A shard, and where in it a bucket is: the bits of an id that choose it.
_Place = tuple[messages.ShardId, int]


class Briefing:
    """Reads the definitions of many claimed chains in short."""

    def __init__(
        self,
        *,
        index: index.Index,
        reader: reading.Reader,
        interned: interning.Interned,
    ) -> None:
        self._index = index
        self._reader = reader
        self._interned = interned
        self._named_buckets: dict[_Place, str] = {}

    async def read_columns(self, shard: messages.ShardId, chains: Sequence[bytes]) -> codec.Columns:
        """The newest definitions in short, for these chain members.

        Without those where there is none, where it is not armed or of another timing version, or
        not of the usual form: those are to be read as definitions. Raises like
        ``read_definitions``.
        """
        numbers, versions = zip(*_MEMBER.iter_unpack(b"".join(chains)), strict=True)
        by_place = _by_place(numbers, self._index.buckets)
        incarnation, found = await self._index.scripts.run(
            self._columns_call(shard, chains, by_place)
        )
        self._interned.see(shard, incarnation.decode())
        order = list(itertools.chain.from_iterable(by_place.values()))
        columns = codec.columns(
            list(itertools.chain.from_iterable(found)), [versions[index] for index in order]
        )
        if len(columns.indexes) < len(order):
            order = [order[row] for row in columns.indexes]
        return columns._replace(
            indexes=order,
            kind_of=await self._kinds(shard, set(cast("Sequence[bytes]", columns.kinds))),
        )

    def _columns_call(
        self,
        shard: messages.ShardId,
        chains: Sequence[bytes],
        by_place: dict[int, list[int]],
    ) -> scripting.Call:
        """The members of a bucket go as one value: a script costs both sides by its arguments."""
        arguments = scripting.Arguments(layout=sharding.layout_of(shard))
        arguments.run(
            [b"".join([chains[index] for index in indexes]) for indexes in by_place.values()]
        )
        buckets = [
            self._bucket_name((shard, place), chains[indexes[0]])
            for place, indexes in by_place.items()
        ]
        return arguments.call("definitions", [self._index.shard(shard).meta, *buckets])

    def _bucket_name(self, place: _Place, chain: bytes) -> str:
        name = self._named_buckets.get(place)
        if name is None:
            if len(self._named_buckets) >= _REMEMBERED:
                self._named_buckets.clear()
            known = points.ScheduleId(chain[:_VERSION_AT])
            name = self._index.shard(place[0]).bucket_of(known, self._index.buckets)
            self._named_buckets[place] = name
        return name

    async def _kinds(
        self, shard: messages.ShardId, kinds: set[bytes]
    ) -> dict[Hashable, codec.Kind]:
        known: dict[bytes, codec.Kind | None] = self._interned.derived(shard)
        listed = {kind: known[kind] for kind in kinds if kind in known}
        if len(listed) < len(kinds):
            learned = await self._read_kinds(shard, kinds - listed.keys())
            if len(known) >= _REMEMBERED_KINDS:
                known.clear()
            known.update(learned)
            listed.update(learned)
        return {kind: one for kind, one in listed.items() if one is not None}

    async def _read_kinds(
        self, shard: messages.ShardId, kinds: set[bytes]
    ) -> dict[bytes, codec.Kind | None]:
        """None = one that cannot be read; that is told in the log when it is read whole."""
        numbers_of = {kind: codec.kind_numbers(kind) for kind in kinds}
        await self._reader.learn_numbers(
            shard, set(itertools.chain.from_iterable(numbers_of.values()))
        )
        read: dict[bytes, codec.Kind | None] = dict.fromkeys(kinds)
        for kind, (namespace, target, rule) in numbers_of.items():
            with contextlib.suppress(msgspec.DecodeError, *reading.TEXT_TROUBLES):
                read[kind] = codec.Kind(
                    self._reader.text(shard, namespace).decode(),
                    reading.parsed_rule(self._reader.text(shard, rule)),
                    self._reader.text(shard, target).decode(),
                )
        return read


def _by_place(numbers: Sequence[int], buckets: int) -> dict[int, list[int]]:
    """Rows by bucket, the buckets of one namespace side by side."""
    by_place: collections.defaultdict[int, list[int]] = collections.defaultdict(list)
    places = [
        (number & _NAMESPACE_BITS) << _BUCKET_BITS | (number >> 16) % buckets for number in numbers
    ]
    for row, place in enumerate(places):
        by_place[place].append(row)
    return dict(sorted(by_place.items()))
