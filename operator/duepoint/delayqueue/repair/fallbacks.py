"""Finds shards in doubt, whose server rolled back to an older state, and their overdue points.

Claims, and ``doubts``, find out that a server has rolled back. Points of Schedules that were due by
then may have run already, so they are not handed out; all other points fire. The leader reads the
overdue Schedules, removes and puts them again as after a loss of the whole index, and then ends the
doubt.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from duepoint.delayqueue import errors, index, messages, sharding
from duepoint.delayqueue.definitions import lanes, reading
from duepoint.delayqueue.definitions.occurrences import Occurrences
from duepoint.delayqueue.wire import nodes
from duepoint.schedules import definition as definitions
from duepoint.schedules import points

#: Definitions read at a time.
_PART = 500
_SCAN_COUNT = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """A shard of a server that rolled back, with points that the leader has not checked.

    Attributes:
        back_us: points of Schedules that are due by then are not handed out.
        found: when such points were last found, as the shard spells it.
    """

    shard: messages.ShardId
    back_us: int
    found: bytes


@dataclass(eq=False)
class Fallbacks:
    """Finds the shards in doubt, reads their overdue Schedules, and ends doubts."""

    index: index.Index
    reader: reading.DefinitionReader
    occurrences: Occurrences

    async def doubts(self, *, every: bool = False) -> tuple[Doubt, ...]:
        """Return the shards that are in doubt.

        A shard that does not answer is left out: a later call asks it again, with the others of its
        server.

        Args:
            every: raise QueueUnavailable if a shard does not answer.
        """
        replies: dict[messages.ShardId, Any] = {}
        asked = {
            shard: dict[str, object]() for shard in sharding.all_shards(self.index.known_layout())
        }
        while asked:
            some = await self._doubt(asked)
            replies |= some
            asked = await self.index.whereabouts(
                {
                    shard: reply[1]
                    for shard, reply in some.items()
                    if not isinstance(reply, Exception) and reply[0] == b"other"
                }
            )
        found = []
        for shard, reply in replies.items():
            if not isinstance(reply, Exception):
                back, doubt = reply
                if doubt:
                    found.append(Doubt(shard=shard, back_us=int(back), found=doubt))
            elif every and not isinstance(reply, errors.LayoutChanged):
                raise reply
        return tuple(found)

    async def _doubt(
        self, asked: Mapping[messages.ShardId, Mapping[str, object]]
    ) -> dict[messages.ShardId, Any]:
        calls = []
        for shard, former in asked.items():
            ran = self.index.shard(shard).ran
            now_us = self.index.clock.now_us()
            call = self.index.call("doubt", shard, cap=now_us, **former, ran=ran)
            call.values.append(nodes.RUN_ID)
            calls.append(call)
        return dict(zip(asked, await self.index.scripts.run_many(calls), strict=True))

    async def overdue(self, doubt: Doubt) -> AsyncIterator[definitions.Definition]:
        """Yield every Schedule with an overdue point that no claim holds.

        All points are read before the first Schedule is yielded: changes meanwhile hide none.
        """
        shard = doubt.shard
        ids: set[points.ScheduleId] = set()
        for lane in await self._lanes(shard):
            due = self._due_by(shard, lane, doubt.back_us)
            ids.update([points.ScheduleId(member[:8]) async for member in due])
        async for point, _ in self.occurrences.all_occurrences(shard):
            if point.kind is points.PointKind.QUEUED and point.slot_us <= doubt.back_us:
                ids.add(point.schedule_id)  # it may have been called up before its due
        ordered = sorted(ids)
        for first in range(0, len(ordered), _PART):
            known = await self.reader.read_definitions(shard, ordered[first : first + _PART])
            for definition in known.values():
                if definition.owner is None:
                    yield definition

    async def _due_by(
        self, shard: messages.ShardId, lane: str, back_us: int
    ) -> AsyncIterator[bytes]:
        """Yield the members of known format that are due by then."""
        cursor = 0
        while True:
            scan = ("ZSCAN", self.index.shard(shard).lane(lane), cursor, "COUNT", _SCAN_COUNT)
            ((cursor, found),) = await self.index.read("read overdue points", scan)
            for member, score in found:
                if float(score) <= back_us and points.parse_member(member, 0) is not None:
                    yield member
            if int(cursor) == 0:
                return

    async def end(self, doubt: Doubt, epoch: messages.Epoch) -> bool:
        """End the doubt; return False if more overdue points were found since it was read."""
        own = await self._lanes(doubt.shard)
        names = self.index.shard(doubt.shard)
        call = self.index.call(
            "doubt",
            doubt.shard,
            *map(names.lane, own),
            epoch=epoch,
            ended=doubt.found.decode(),
            lanes=own,
        )
        _, found = await self.index.scripts.run(call)
        return not found

    async def _lanes(self, shard: messages.ShardId) -> list[str]:
        """Return the lanes of Schedules."""
        return [lane for lane in await self.reader.lanes(shard) if not lanes.is_of_set(lane)]
