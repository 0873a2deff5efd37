"""What waits on a server that went back: which shards, which points, and what the comparison says.

The scripts set aside what was due before a server turned out to hold an older state (``claim``) and
apply what the leader's comparison says (``compared``); here is the reading in between. Points are
read in full before any of them changes, and handed out in parts that one script can carry.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from duepoint.delayqueue import errors, index, messages, sharding
from duepoint.delayqueue.claims import settling
from duepoint.delayqueue.definitions import reading, records
from duepoint.delayqueue.wire import nodes
from duepoint.schedules import definition as definitions
from duepoint.schedules import points

#: Points in one part: one script compares so many in two or three milliseconds.
PART = 500
_PAGE = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspectShard:
    """A shard of a server that went back.

    Attributes:
        back_us: what was due until then waits; 0 = nothing more comes to what is held already.
    """

    shard: messages.ShardId
    back_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPoint:
    """A point that waits to be compared.

    Attributes:
        lane: the queue's own, pass it back.
        record: None where it cannot be read: it is for a worker to bury.
        definition: None where there is none (any more).
    """

    lane: int | str
    point: points.DuePoint
    record: messages.OccurrenceRecord | None
    definition: definitions.Definition | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PointComparison:
    """What the comparison of some held points of a shard says.

    Attributes:
        gone: those that have ended.
        due: those that are due now, each with the record that it goes on with (None: its own).
        chains: chains that waited as a whole, with the instants at which they are due.
        started: schedules with maxRuns, and how many of their runs have started at least.
        added: occurrences that the server has lost, each beside a held point of its schedule.
    """

    gone: list[HeldPoint] = field(default_factory=list)
    due: list[tuple[HeldPoint, messages.OccurrenceRecord | None]] = field(default_factory=list)
    chains: list[tuple[HeldPoint, int]] = field(default_factory=list)
    started: list[tuple[points.ScheduleId, int]] = field(default_factory=list)
    added: list[tuple[HeldPoint, messages.Occurrence]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.gone) + len(self.due) + len(self.chains) + len(self.added)


@dataclass(eq=False)
class SuspectPoints:
    """Points that wait for a comparison after their server went back."""

    index: index.Index
    reader: reading.DefinitionReader

    async def shards(self, *, every: bool = False) -> tuple[SuspectShard, ...]:
        """The shards of a server that went back, or that still hold what waited for that.

        Claims and this find out and mark a shard; what was due by then is held from there on. A
        shard that does not answer is left out: it is looked at again, with the others of its
        server.

        Args:
            every: raise QueueUnavailable where a shard does not answer.
        """
        layout = self.index.known_layout()
        shards = sharding.all_shards(layout)
        calls = []
        for shard in shards:
            call = self.index.call(
                "suspect",
                shard,
                **self.index.confirmed_time(),
                ran=self.index.shard(shard).ran,
            )
            call.values.append(nodes.RUN_ID)
            calls.append(call)
        found = []
        for shard, reply in zip(shards, await self.index.scripts.run_many(calls), strict=True):
            if isinstance(reply, Exception):
                if every and not isinstance(reply, errors.LayoutChanged):
                    raise reply
                continue
            back_us, is_held = int(reply[0]), bool(reply[1])
            if back_us or is_held:
                found.append(SuspectShard(shard=shard, back_us=back_us))
        return tuple(found)

    async def set_aside(self, suspect: SuspectShard, epoch: messages.Epoch) -> int:
        """Slots that wait for others wait to be compared, too; how many were set aside now.

        A claim sets aside what it finds due. A slot that waits for others may be due long after the
        suspicion has ended, and have been called up before its server went back.
        """
        if not suspect.back_us:
            return 0
        names, changed = self.index.shard(suspect.shard), 0
        lanes = {text: lane for lane, text in (await self.reader.namespaces(suspect.shard)).items()}
        async for part in self._queued(suspect):
            known = await self.reader.read_definitions(
                suspect.shard, {point.schedule_id for point in part}
            )
            by_lane: dict[int, list[bytes]] = {}
            for point in part:
                definition = known.get(point.schedule_id)
                lane = None if definition is None else lanes.get(definition.namespace)
                if lane is not None:
                    by_lane.setdefault(lane, []).append(point.member)
            call = self.index.call(
                "setaside",
                suspect.shard,
                *map(names.lane, by_lane),
                epoch=epoch,
                lanes=[str(lane) for lane in by_lane],
            )
            call.put(members=[call.run(listed) for listed in by_lane.values()])
            (count,) = await self.index.scripts.run(call)
            changed += int(count)
        return changed

    async def _queued(self, suspect: SuspectShard) -> AsyncIterator[list[points.DuePoint]]:
        """Slots up to ``back`` that wait for others, in parts; their dues are not read."""
        names, begin = self.index.shard(suspect.shard), b"-"
        while True:
            page_of = ("ZRANGE", names.occ, begin, "+", "BYLEX", "LIMIT", 0, _PAGE)
            (page,) = await self.index.read("read what waits", page_of)
            parsed = [points.parse_member(member, 0) for member in page]
            found = [
                point
                for point in parsed
                if point is not None
                and point.kind is points.PointKind.QUEUED
                and point.slot_us <= suspect.back_us
            ]
            for first in range(0, len(found), PART):
                yield found[first : first + PART]
            if len(page) < _PAGE:
                return
            begin = b"(" + page[-1]

    async def held(self, shard: messages.ShardId) -> AsyncIterator[Sequence[HeldPoint]]:
        """Every point of a shard that waits to be compared, in parts."""
        names = self.index.shard(shard)
        held: list[tuple[int, points.DuePoint]] = []
        for lane in await self.reader.namespaces(shard):
            for first in itertools.count(0, _PAGE):
                band = (points.HELD_US, points.HELD_US, "BYSCORE", "LIMIT", first, _PAGE)
                (page,) = await self.index.read(
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
    ) -> list[HeldPoint]:
        members = [point.member for _, point in held]
        (stored,) = await self.index.read(
            "read what waits", ("HMGET", self.index.shard(shard).occrec, *members)
        )
        known = await self.reader.read_definitions(shard, {point.schedule_id for _, point in held})
        return [
            HeldPoint(
                lane=lane,
                point=point,
                record=_record(packed),
                definition=known.get(point.schedule_id),
            )
            for (lane, point), packed in zip(held, stored, strict=True)
        ]

    async def apply(
        self,
        shard: messages.ShardId,
        compared: PointComparison,
        epoch: messages.Epoch,
        *,
        outcomes: bytes = b"",
    ) -> int:
        """What the comparison says of one part is true; how many points changed by it.

        Args:
            outcomes: news of slots that have ended, packed; for the reader of ``runs``.
        """
        names = self.index.shard(shard)
        call = self.index.call(
            "compared",
            shard,
            epoch=epoch,
            cap=self.index.clock.now_us(),
            **settling.outcome_bounds(self.index.known_layout().shards),
        )
        lanes: set[int | str] = set()

        def place(held: HeldPoint, member: bytes) -> tuple[int, int]:
            lanes.add(held.lane)
            return call.key(names.lane(int(held.lane))), call.position(member)

        def packed(record: messages.OccurrenceRecord | None) -> int:
            return 0 if record is None else call.position(records.pack(record))

        call.put(
            gone=[place(held, held.point.member) for held in compared.gone],
            due=[
                (*place(held, held.point.member), packed(record)) for held, record in compared.due
            ],
            added=[
                (*place(held, lost.point.member), packed(lost.record))
                for held, lost in compared.added
            ],
            chains=[(*place(held, held.point.member), at_us) for held, at_us in compared.chains],
            started=[
                (call.key(names.bucket_of(i, self.index.buckets)), call.position(i), count)
                for i, count in compared.started
            ],
        )
        keyed = [{"lane": str(lane), "key": call.key(names.lane(int(lane)))} for lane in lanes]
        call.put(lanes=keyed, outcomes=call.run(filter(None, [outcomes])))
        (changed,) = await self.index.scripts.run(call)
        return int(changed)

    async def end(self, suspect: SuspectShard, epoch: messages.Epoch) -> str:
        """Clear the mark of a shard: empty text; else what is left: due, held or claimed."""
        names = self.index.shard(suspect.shard)
        lanes = list(await self.reader.namespaces(suspect.shard))
        call = self.index.call(
            "trust",
            suspect.shard,
            *map(names.lane, lanes),
            epoch=epoch,
            back=str(suspect.back_us),
            lanes=[str(lane) for lane in lanes],
        )
        said: bytes = await self.index.scripts.run(call)
        return "" if said == b"ended" else said.decode()


def _record(packed: Any) -> messages.OccurrenceRecord | None:  # noqa: ANN401 - bytes or nothing
    try:
        return records.unpack(packed or b"")
    except records.UnknownFormat:
        return None
