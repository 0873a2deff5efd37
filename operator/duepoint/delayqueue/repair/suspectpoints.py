"""What waits on a server that went back: which shards, which points, and what the comparison says.

The scripts set aside what was due before a server turned out to hold an older state (``claim``) and
apply what the leader's comparison says (``compared``); here is the reading in between. Points are
read in full before any of them changes, and handed out in parts that one script can carry.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Sequence
from typing import Any

from duepoint.delayqueue import index, messages, sharding
from duepoint.delayqueue.definitions import reading, records
from duepoint.delayqueue.wire import scripting
from duepoint.schedules import points

#: Points in one part: one script compares so many in two or three milliseconds.
PART = 500
_PAGE = 5_000
_HELD = b"held"


class SuspectPoints:
    """Points that wait for a comparison after their server went back."""

    def __init__(
        self,
        *,
        index: index.Index,
        reader: reading.Reader,
    ) -> None:
        self._index = index
        self._reader = reader

    async def shards(self) -> tuple[messages.Doubted, ...]:
        """The shards of a server that went back, or that still hold what waited for that.

        A claim finds out and marks its shard; what was due by then is held from there on.
        """
        shards = sharding.all_shards(self._index.known_layout())
        named = [self._index.shard(shard) for shard in shards]
        replies = await self._index.servers.exchange(
            [
                *(("HMGET", names.meta, "back", "state") for names in named),
                *(("ZSCORE", names.claims, _HELD) for names in named),
            ]
        )
        found = []
        for shard, meta, held in zip(shards, replies, replies[len(shards) :], strict=False):
            if isinstance(meta, Exception) or isinstance(held, Exception):
                continue  # it is looked at again, with the others of its server
            back, state = meta
            if (back or held is not None) and state != b"closed":
                back_us = int(back) if back and back.isdigit() else 0
                found.append(messages.Doubted(shard=shard, back_us=back_us))
        return tuple(found)

    async def held(self, shard: messages.ShardId) -> AsyncIterator[Sequence[messages.HeldPoint]]:
        """Every point of a shard that waits to be compared, in parts."""
        names = self._index.shard(shard)
        held: list[tuple[int, points.DuePoint]] = []
        for lane in await self._reader.namespaces(shard):
            for first in itertools.count(0, _PAGE):
                band = (points.HELD_US, points.HELD_US, "BYSCORE", "LIMIT", first, _PAGE)
                (page,) = await self._index.read(
                    "read what waits", ("ZRANGE", names.lane(lane), *band)
                )
                parsed = (points.parse_member(member, points.HELD_US) for member in page)
                held += [(lane, point) for point in parsed if point is not None]
                if len(page) < _PAGE:
                    break
        for first in range(0, len(held), PART):
            yield await self._held_described(shard, held[first : first + PART])

    async def _held_described(
        self, shard: messages.ShardId, held: Sequence[tuple[int, points.DuePoint]]
    ) -> list[messages.HeldPoint]:
        members = [point.member for _, point in held]
        (stored,) = await self._index.read(
            "read what waits", ("HMGET", self._index.shard(shard).occrec, *members)
        )
        known = await self._reader.read_definitions(shard, {point.schedule_id for _, point in held})
        return [
            messages.HeldPoint(
                lane=lane,
                point=point,
                record=_record(packed),
                definition=known.get(point.schedule_id),
            )
            for (lane, point), packed in zip(held, stored, strict=True)
        ]

    async def apply(
        self, shard: messages.ShardId, compared: messages.Compared, epoch: messages.Epoch
    ) -> int:
        """What the comparison says of one part is true; how many points changed by it."""
        names = self._index.shard(shard)
        arguments = scripting.Arguments(layout=sharding.layout_of(shard), epoch=epoch)
        keys = [names.meta, names.heads, names.occ, names.occrec, names.wake]
        moved = [*(one for one, _ in compared.due), *(one for one, _ in compared.chains)]
        moved += [one for one, _ in compared.added]
        key_of: dict[int | str, int] = {}
        for one in (*compared.gone, *moved):
            if one.lane not in key_of:
                keys.append(names.lane(int(one.lane)))
                key_of[one.lane] = len(keys)
        arguments.put("lanes", [{"lane": str(lane), "key": key} for lane, key in key_of.items()])

        def place(one: messages.HeldPoint) -> tuple[int, int]:
            return key_of[one.lane], arguments.position(one.point.member)

        arguments.put("gone", [place(one) for one in compared.gone])
        due = []
        for one, record in compared.due:
            packed = 0 if record is None else arguments.position(records.pack(record))
            due.append((*place(one), packed))
        arguments.put("due", due)
        added = []
        for one, lost in compared.added:
            at = arguments.position(lost.point.member)
            packed = arguments.position(records.pack(lost.record))
            added.append((key_of[one.lane], at, packed))
        arguments.put("added", added)
        arguments.put("chains", [(*place(one), at_us) for one, at_us in compared.chains])
        started = []
        for schedule_id, count in compared.started:
            keys.append(names.bucket_of(schedule_id, self._index.buckets))
            started.append((len(keys), arguments.position(schedule_id), count))
        arguments.put("started", started)
        (changed,) = await self._index.scripts.run(arguments.call("compared", keys))
        return int(changed)

    async def end(self, doubted: messages.Doubted, epoch: messages.Epoch) -> str:
        """Nothing is in doubt any more: empty text; else what is left: due, held or claimed."""
        names = self._index.shard(doubted.shard)
        lanes = list(await self._reader.namespaces(doubted.shard))
        arguments = scripting.Arguments(
            layout=sharding.layout_of(doubted.shard),
            epoch=epoch,
            back=str(doubted.back_us),
            lanes=[str(lane) for lane in lanes],
        )
        keys = [names.meta, names.claims, names.leases, *(names.lane(lane) for lane in lanes)]
        said: bytes = await self._index.scripts.run(arguments.call("trust", keys))
        return "" if said == b"ended" else said.decode()


def _record(packed: Any) -> messages.OccurrenceRecord | None:  # noqa: ANN401 - bytes or nothing
    try:
        return records.unpack(packed or b"")
    except records.UnknownFormat:
        return None
