"""Reading the definitions of hundreds of claimed chains: one script, one reply, few objects.

The usual reading sends a command for each bucket, and each reply costs a client more than the
server. Here a script gathers them. What comes back is cached by content alone, as everywhere: a
record's bytes always mean the same, and the numbers in it are resolved anew.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, cast

import msgspec

from duepoint.delayqueue import messages, reading, scripting, sharding
from duepoint.schedules import briefs, points

#: Records whose briefs are remembered; a schedule that fires often is read once.
_REMEMBERED = 16_384
_VERSION_AT = 8
_NAMESPACE_BITS = 0xFFFC

#: Of namespace, rule and target.
_Numbers = tuple[int, int, int]


class Briefing(reading.Reading):
    """read_briefs."""

    def __init__(self, *args: Any, **named: Any) -> None:  # noqa: ANN401 - Core's own
        super().__init__(*args, **named)
        self._briefs: dict[bytes, briefs.Brief | None] = {}

    async def read_briefs(self, shard: messages.ShardId, chains: Sequence[bytes]) -> briefs.Briefs:
        """The newest definitions in short, for these chain members, in their order.

        None where there is none, where it is not armed or of another timing version, or not of
        the usual form: those are to be read as definitions. Raises like ``read_definitions``.
        """
        call, order = self._definitions_call(shard, chains)
        incarnation, records = await self._scripts.run(call)
        self._interned.see(shard, incarnation.decode())
        rows: list[briefs.Brief | None] = [None] * len(chains)
        for index, record in zip(order, records, strict=True):
            if record is not None and briefs.version(record) == chains[index][_VERSION_AT:]:
                rows[index] = self._brief(record)
        kinds = {cast("_Numbers", row.kind) for row in rows if row is not None}
        return await self._with_kinds(shard, rows, kinds)

    def _brief(self, record: bytes) -> briefs.Brief | None:
        try:
            return self._briefs[record]
        except KeyError:
            if len(self._briefs) >= _REMEMBERED:
                self._briefs.clear()
            found = self._briefs[record] = briefs.unpack(record)
            return found

    def _definitions_call(
        self, shard: messages.ShardId, chains: Sequence[bytes]
    ) -> tuple[scripting.Call, list[int]]:
        """The call, and which chain each id in it belongs to."""
        names = self._shard(shard)
        by_bucket = self._chains_by_bucket(shard, chains)
        arguments = scripting.Arguments(layout=sharding.layout_of(shard))
        ranges = [
            arguments.run([chains[index][:_VERSION_AT] for index in indexes])
            for indexes in by_bucket.values()
        ]
        arguments.put("ids", ranges)
        order = [index for indexes in by_bucket.values() for index in indexes]
        return arguments.call("definitions", [names.meta, *by_bucket]), order

    def _chains_by_bucket(
        self, shard: messages.ShardId, chains: Sequence[bytes]
    ) -> dict[str, list[int]]:
        """Indexes by bucket; the name of each bucket is made once."""
        names, buckets = self._shard(shard), self._buckets
        by_place: dict[tuple[int, int], list[int]] = {}
        for index, chain in enumerate(chains):
            number = int.from_bytes(chain[:_VERSION_AT], "big")
            place = number & _NAMESPACE_BITS, (number >> 16) % buckets
            listed = by_place.get(place)
            if listed is None:
                by_place[place] = [index]
            else:
                listed.append(index)
        return {
            names.bucket_of(points.ScheduleId(chains[indexes[0]][:_VERSION_AT]), buckets): indexes
            for indexes in by_place.values()
        }

    async def _with_kinds(
        self,
        shard: messages.ShardId,
        rows: list[briefs.Brief | None],
        kinds: set[_Numbers],
    ) -> briefs.Briefs:
        await self._learn_numbers(shard, {number for kind in kinds for number in kind})
        found: dict[Hashable, briefs.Kind] = {}
        for kind in kinds:
            namespace, rule, target = kind
            try:
                found[kind] = briefs.Kind(
                    self._text(shard, namespace).decode(),
                    reading.parsed_rule(self._text(shard, rule)),
                    self._text(shard, target).decode(),
                )
            except msgspec.DecodeError:
                continue  # told in the log when it is read as a definition
        return briefs.Briefs(rows, found)
