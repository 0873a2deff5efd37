"""What a sweep found wrong, and how it is put right.

Findings go to one fenced script, a few hundred at a time, which looks at each again before it
writes. A chain that is gone, or claimed under a claim that does not exist, is armed where
``due_of`` says, never "now" (the slots since would be lost), and not before a slot that is an
occurrence already (it would run twice): a chain stands for the first slot that was not handed over.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

import msgspec

from duepoint import settings
from duepoint.delayqueue import index, messages
from duepoint.delayqueue.definitions import reading
from duepoint.schedules import definition as definitions
from duepoint.schedules import points

DueOf = Callable[[definitions.Definition], int | None]
Dues = dict[points.ScheduleId, tuple[definitions.Definition, int | None]]

#: Findings of one kind for one call of the script: some 5 us of the server's time each.
_MENDED_TOGETHER = 250
#: Definitions whose chains' dues are worked out between two turns of the event loop.
_DUES_TOGETHER = 250


@dataclass(slots=True)
class Findings:
    """What one step wants mended: (lane, id, member[, due[, score]]); claim ids."""

    lanes: set[int] = field(default_factory=set)
    arm: list[tuple[int, bytes, bytes, int]] = field(default_factory=list)
    drop: list[tuple[int, bytes, bytes]] = field(default_factory=list)
    add: list[tuple[int, bytes]] = field(default_factory=list)
    forget: list[tuple[int, bytes]] = field(default_factory=list)
    free: list[tuple[int, bytes, bytes, int, float]] = field(default_factory=list)
    records: list[bytes] = field(default_factory=list)
    looked_at: int = 0
    unarmed: list[points.ScheduleId] = field(default_factory=list)

    def in_parts(self) -> Iterator[Findings]:
        """The same for several calls of the script; at least one, which looks at heads, too."""
        yield Findings(
            lanes=self.lanes,
            records=self.records,
            **{kind: getattr(self, kind)[:_MENDED_TOGETHER] for kind in _KINDS},
        )
        longest = max(len(getattr(self, kind)) for kind in _KINDS)
        for first in range(_MENDED_TOGETHER, longest, _MENDED_TOGETHER):
            last = first + _MENDED_TOGETHER
            some = Findings(**{kind: getattr(self, kind)[first:last] for kind in _KINDS})
            some.lanes = {row[0] for row in some.arm} | {row[0] for row in some.drop}
            some.lanes |= {row[0] for row in some.free}
            yield some


_KINDS = ("arm", "drop", "add", "forget", "free")


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What one step of the sweep looked at and mended.

    Attributes:
        cursor: where to go on, or None when the shard is done.
        looked_at: definitions and points seen in this step.
        armed: chains that were missing and stand now.
        dropped: points without a definition, or of an old timing version, that are gone now.
        mended: heads, occurrence records and claims put right.
        unarmed: definitions that should have a chain, for which no due was given.
    """

    cursor: str | None
    looked_at: int = 0
    armed: int = 0
    dropped: int = 0
    mended: int = 0
    unarmed: tuple[points.ScheduleId, ...] = ()


@dataclass(eq=False)
class Mending:
    """Writes what a sweep found."""

    index: index.Index
    reader: reading.DefinitionReader

    async def chain_dues(
        self, shard: messages.ShardId, ids: Collection[points.ScheduleId], due_of: DueOf | None
    ) -> Dues:
        """Definitions, and where their chains belong: after what was handed over already."""
        dues: Dues = {}
        listed = list(ids)
        for first in range(0, len(listed), _DUES_TOGETHER):
            some = listed[first : first + _DUES_TOGETHER]
            dues.update(await self._some_dues(shard, some, due_of))
        return dues

    async def _some_dues(
        self, shard: messages.ShardId, ids: Collection[points.ScheduleId], due_of: DueOf | None
    ) -> Dues:
        resolved = await self.reader.read_definitions(shard, ids)
        if due_of is None or not resolved:
            return {schedule_id: (known, None) for schedule_id, known in resolved.items()}
        names = self.index.shard(shard)
        found = iter(
            await self.index.read(
                "sweep chains",
                *(
                    ("ZRANGE", names.occ, b"[" + head + b"\xff" * 8, b"[" + head,
                     "BYLEX", "REV", "LIMIT", 0, 1)
                    for known in resolved.values()
                    for head in _timed_heads(known)
                ),
            )
        )  # fmt: skip
        dues = {}
        for schedule_id, known in resolved.items():
            newest = [member for _ in _timed_heads(known) for member in next(found)]
            after_us = max(map(points.slot_of, newest), default=0)
            later = msgspec.structs.replace(known, not_before_us=max(known.not_before_us, after_us))
            dues[schedule_id] = known, due_of(later)
        return dues

    async def mend(
        self, shard: messages.ShardId, findings: Findings, epoch: messages.Epoch
    ) -> Swept:
        """What was put right; the caller adds where the sweep goes on."""
        armed = dropped = mended = 0
        for some in findings.in_parts():
            of_some = await self._mend_some(shard, some, epoch)
            if wanted := of_some[3]:
                together = Findings(lanes={int(lane) for lane in wanted})
                mended += (await self._mend_some(shard, together, epoch))[2]
            armed += of_some[0]
            dropped += of_some[1]
            mended += of_some[2]
        return Swept(
            cursor=None,
            looked_at=findings.looked_at,
            armed=armed,
            dropped=dropped,
            mended=mended,
            unarmed=tuple(findings.unarmed),
        )

    async def _mend_some(
        self, shard: messages.ShardId, findings: Findings, epoch: messages.Epoch
    ) -> tuple[int, int, int, list[bytes]]:
        names = self.index.shard(shard)
        call = self.index.call(
            "sweep",
            shard,
            epoch=epoch,
            latest=int(2 * settings.LONGEST_LEASE_SECONDS * 1_000_000),
            ran=names.ran,
        )

        def lane_key(lane: int) -> int:
            return call.key(names.lane(lane))

        def place(lane: int, schedule_id: bytes, member: bytes) -> tuple[int, int, int, int]:
            bucket = names.bucket_of(points.ScheduleId(schedule_id), self.index.buckets)
            at = call.position(schedule_id)
            return lane_key(lane), call.key(bucket), at, call.position(member)

        call.put(
            lanes=[{"lane": str(lane), "key": lane_key(lane)} for lane in sorted(findings.lanes)],
            arm=[(*place(lane, i, chain), due) for lane, i, chain, due in findings.arm],
            drop=[place(lane, i, member) for lane, i, member in findings.drop],
            free=[(*place(lane, i, m), due, score) for lane, i, m, due, score in findings.free],
            records=[call.position(claim_id) for claim_id in findings.records],
            add=[(lane_key(lane), call.position(member)) for lane, member in findings.add],
            forget=[(lane_key(lane), call.position(member)) for lane, member in findings.forget],
        )
        armed, dropped, mended, wanted = await self.index.scripts.run(call)
        return armed, dropped, mended, wanted


def _timed_heads(known: definitions.Definition) -> list[bytes]:
    """How the members begin that stand for slots which the chain handed over."""
    head = known.id + known.timing_version
    kinds = (points.PointKind.RETRY, points.PointKind.PLANNED, points.PointKind.QUEUED)
    return [head + bytes([kind]) for kind in kinds]
