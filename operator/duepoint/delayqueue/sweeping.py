"""Looking whether the index still agrees with itself, step by step, and mending it.

Each step reads a bounded piece without a script, compares here, and hands what looks wrong to one
fenced script that looks again before it writes. A shard is swept in three passes, told by the
cursor: ``d<n>`` definitions (an armed one without a chain), ``p<lane>:<scan>`` points (chains and
occurrences without a definition, and occurrences missing from ``occ``), ``o<member>`` the
occurrences' own list; heads and lapsed leases go along with every step of a lane. Definitions
without a chain because they are suspended or completed are right as they are.

A chain that is gone, or claimed under a claim that does not exist, is armed where ``due_of`` says,
never "now" (the slots since would be lost), and not before a slot that is an occurrence already
(it would run twice): a chain stands for the first slot that was not handed over.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from duepoint.delayqueue import core, keys, messages, port, reading, scripting, sharding
from duepoint.schedules import definition as definitions
from duepoint.schedules import points

_BUCKETS_PER_STEP = 32
_SCAN_COUNT = 500
_OCCURRENCES_PER_STEP = 500
_ID_LENGTH = 8
_CLAIM_ID_LENGTH = 12
_RECORDS_PER_STEP = 100

DueOf = Callable[[definitions.Definition], int | None]


@dataclass(slots=True)
class _Findings:
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


class Sweeping(reading.Reading, core.Core):
    """sweep, stats."""

    async def sweep(
        self,
        shard: messages.ShardId,
        cursor: str | None,
        epoch: messages.Epoch,
        *,
        due_of: DueOf | None = None,
    ) -> messages.Swept:
        if sharding.layout_of(shard) != self._known_layout().number:
            return messages.Swept(cursor=None)  # it is being emptied; what it lacks has moved on
        namespaces = await self.namespaces(shard)
        at = cursor or "d0"
        if at.startswith("d"):
            findings, following = await self._sweep_definitions(
                shard, int(at[1:]), namespaces, due_of
            )
        elif at.startswith("p"):
            findings, following = await self._sweep_points(shard, at[1:], namespaces, due_of)
        else:
            findings, following = await self._sweep_occurrences(shard, at[1:], namespaces)
        armed, dropped, mended, wanted = await self._mend(shard, findings, epoch)
        if wanted:
            together = _Findings(lanes={int(lane) for lane in wanted})
            mended += (await self._mend(shard, together, epoch))[2]
        return messages.Swept(
            cursor=following,
            looked_at=findings.looked_at,
            armed=armed,
            dropped=dropped,
            mended=mended,
            unarmed=tuple(findings.unarmed),
        )

    async def stats(self) -> list[messages.ShardStats]:
        return [
            await self._shard_stats(shard) for shard in sharding.all_shards(self._known_layout())
        ]

    # -- definitions ----------------------------------------------------------------------------

    async def _sweep_definitions(
        self,
        shard: messages.ShardId,
        first: int,
        namespaces: dict[int, str],
        due_of: DueOf | None,
    ) -> tuple[_Findings, str | None]:
        names = self._shard(shard)
        populations = sorted({keys.population_of(name) for name in namespaces.values()})
        buckets = [
            names.bucket(population, number)
            for population in populations
            for number in range(self._buckets)
        ]
        findings = _Findings()
        chunk = buckets[first : first + _BUCKETS_PER_STEP]
        if chunk:
            replies = await self._read("sweep definitions", *(("HGETALL", b) for b in chunk))
            packed = reading.unpacked(
                (points.ScheduleId(k), v) for reply in replies for k, v in reply.items()
            )
            findings.looked_at = len(packed)
            await self._find_unarmed(shard, packed, findings, due_of)
        if not first:
            await self._find_records(shard, findings)
        following = first + _BUCKETS_PER_STEP
        if following < len(buckets):
            return findings, f"d{following}"
        return findings, _next_lane(namespaces, after=-1)

    async def _find_unarmed(
        self,
        shard: messages.ShardId,
        packed: dict[points.ScheduleId, definitions.Packed],
        findings: _Findings,
        due_of: DueOf | None,
    ) -> None:
        armed = {i: p for i, p in packed.items() if p.state is definitions.State.ARMED}
        names = self._shard(shard)
        scores = await self._read(
            "sweep chains",
            *(("ZSCORE", names.lane(p.namespace), i + p.timing_version) for i, p in armed.items()),
        )
        lost = [i for i, score in zip(armed, scores, strict=True) if score is None]
        if not lost:
            return
        dues = await self._chain_dues(shard, lost, due_of)
        for schedule_id, (definition, due) in dues.items():
            if due is None:
                findings.unarmed.append(schedule_id)
                continue
            lane = armed[schedule_id].namespace
            chain = schedule_id + definition.timing_version
            findings.arm.append((lane, schedule_id, chain, due))
            findings.lanes.add(lane)

    async def _chain_dues(
        self, shard: messages.ShardId, ids: Collection[points.ScheduleId], due_of: DueOf | None
    ) -> dict[points.ScheduleId, tuple[definitions.Definition, int | None]]:
        """Definitions, and where their chains belong: after what was handed over already."""
        resolved = await self.read_definitions(shard, ids)
        if due_of is None or not resolved:
            return {schedule_id: (known, None) for schedule_id, known in resolved.items()}
        names = self._shard(shard)
        found = iter(
            await self._read(
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
            after_us = max((_slot_us(member) for member in newest), default=0)
            later = dataclasses.replace(known, not_before_us=max(known.not_before_us, after_us))
            dues[schedule_id] = known, due_of(later)
        return dues

    async def _find_records(self, shard: messages.ShardId, findings: _Findings) -> None:
        """Records of claims that are no more; there are as many records as claims, a few."""
        names = self._shard(shard)
        ids: set[bytes] = set()
        cursor = 0
        while True:
            ((cursor, fields),) = await self._read(
                "sweep claims", ("HSCAN", names.leases, cursor, "COUNT", _SCAN_COUNT)
            )
            ids.update(field[:_CLAIM_ID_LENGTH] for field in fields if field)
            if int(cursor) == 0:
                break
        if ids:
            (scores,) = await self._read("sweep claims", ("ZMSCORE", names.claims, *ids))
            gone = [id_ for id_, score in zip(ids, scores, strict=True) if score is None]
            findings.records += gone[:_RECORDS_PER_STEP]

    # -- points ---------------------------------------------------------------------------------

    async def _sweep_points(
        self,
        shard: messages.ShardId,
        at: str,
        namespaces: dict[int, str],
        due_of: DueOf | None,
    ) -> tuple[_Findings, str | None]:
        lane_text, scan = at.split(":")
        lane = int(lane_text)
        names = self._shard(shard)
        ((following, found),) = await self._read(
            "sweep points", ("ZSCAN", names.lane(lane), scan, "COUNT", _SCAN_COUNT)
        )
        scores = {member: float(score) for member, score in found if member}
        members = [member for member in scores if points.parse_member(member, 0)]
        findings = _Findings(lanes={lane}, looked_at=len(scores))
        await self._find_strays(shard, lane, members, findings)
        await self._find_orphans(shard, lane, scores, findings, due_of)
        if int(following):
            return findings, f"p{lane}:{int(following)}"
        return findings, _next_lane(namespaces, after=lane)

    async def _find_strays(
        self,
        shard: messages.ShardId,
        lane: int,
        members: list[bytes],
        findings: _Findings,
    ) -> None:
        if not members:
            return
        names = self._shard(shard)
        ids = [points.ScheduleId(member[:_ID_LENGTH]) for member in members]
        records = await self._read(
            "sweep points", *(("HGET", names.bucket_of(i, self._buckets), i) for i in ids)
        )
        listed = await self._read("sweep points", ("ZMSCORE", names.occ, *members))
        for member, schedule_id, record, in_occ in zip(
            members, ids, records, listed[0], strict=True
        ):
            is_chain = len(member) == points.CHAIN_LENGTH
            version = definitions.VERSION_OFFSET
            if record is None or (
                is_chain and schedule_id + record[version : version + 4] != member
            ):
                findings.drop.append((lane, schedule_id, member))
            elif not is_chain and in_occ is None:
                findings.add.append((lane, member))

    async def _find_orphans(
        self,
        shard: messages.ShardId,
        lane: int,
        scores: dict[bytes, float],
        findings: _Findings,
        due_of: DueOf | None,
    ) -> None:
        """Points in the claimed band whose claim does not exist."""
        limit = points.DUE_LIMIT_US
        bands = {score for score in scores.values() if score >= limit}
        ends = sorted(band for band in bands if math.isfinite(band))
        names = self._shard(shard)
        counts = await self._read(
            "sweep claims",
            *(("ZCOUNT", names.claims, int(end - limit), int(end - limit)) for end in ends),
        )
        orphaned = bands.difference(end for end, count in zip(ends, counts, strict=True) if count)
        dropped = {member for _, _, member in findings.drop}
        orphans = {m: s for m, s in scores.items() if s in orphaned and m not in dropped}
        chains = {m for m in orphans if len(m) == points.CHAIN_LENGTH}
        ids = {points.ScheduleId(member[:_ID_LENGTH]) for member in chains}
        dues = await self._chain_dues(shard, ids, due_of) if ids else {}
        for member, score in orphans.items():
            schedule_id = points.ScheduleId(member[:_ID_LENGTH])
            if member not in chains:
                due: int | None = _slot_us(member)
            elif schedule_id not in dues:
                continue  # its definition cannot be read: the resync writes it anew
            else:
                due = dues[schedule_id][1]
            if due is None:
                findings.unarmed.append(schedule_id)
            else:
                findings.free.append((lane, schedule_id, member, due, score))

    # -- occurrences ----------------------------------------------------------------------------

    async def _sweep_occurrences(
        self, shard: messages.ShardId, at: str, namespaces: dict[int, str]
    ) -> tuple[_Findings, str | None]:
        names = self._shard(shard)
        begin = b"(" + bytes.fromhex(at)
        (members,) = await self._read(
            "sweep occurrences",
            ("ZRANGE", names.occ, begin, "+", "BYLEX", "LIMIT", 0, _OCCURRENCES_PER_STEP),
        )
        findings = _Findings(looked_at=len(members))
        lanes = sorted(namespaces)
        scores = await self._read(
            "sweep occurrences",
            *(("ZMSCORE", names.lane(lane), *members) for lane in lanes if members),
        )
        for index, member in enumerate(members):
            if lanes and all(of_lane[index] is None for of_lane in scores):
                findings.forget.append((lanes[0], member))
        if len(members) < _OCCURRENCES_PER_STEP:
            return findings, None
        return findings, f"o{members[-1].hex()}"

    # -- mending --------------------------------------------------------------------------------

    async def _mend(
        self, shard: messages.ShardId, findings: _Findings, epoch: messages.Epoch
    ) -> tuple[int, int, int, list[bytes]]:
        names = self._shard(shard)
        used = [
            names.meta, names.heads, names.claims, names.leases, names.occ, names.occrec,
            names.wake,
        ]  # fmt: skip
        position: dict[str, int] = {}

        def key(name: str) -> int:
            if name not in position:
                used.append(name)
                position[name] = len(used)
            return position[name]

        def bucket(schedule_id: bytes) -> int:
            return key(names.bucket_of(points.ScheduleId(schedule_id), self._buckets))

        arguments = scripting.Arguments(
            layout=sharding.layout_of(shard),
            epoch=epoch,
            latest=int(2 * port.LONGEST_LEASE_SECONDS * 1_000_000),
            lanes=[{"lane": str(n), "key": key(names.lane(n))} for n in sorted(findings.lanes)],
        )
        put = arguments.position
        arguments.put(
            "arm",
            [
                (key(names.lane(lane)), bucket(i), put(i), put(chain), due)
                for lane, i, chain, due in findings.arm
            ],
        )
        arguments.put(
            "drop",
            [
                (key(names.lane(lane)), bucket(i), put(i), put(member))
                for lane, i, member in findings.drop
            ],
        )
        arguments.put(
            "free",
            [
                (key(names.lane(lane)), bucket(i), put(i), put(member), due, score)
                for lane, i, member, due, score in findings.free
            ],
        )
        arguments.put("records", [put(claim_id) for claim_id in findings.records])
        for name, found in (("add", findings.add), ("forget", findings.forget)):
            arguments.put(name, [(key(names.lane(lane)), put(member)) for lane, member in found])
        armed, dropped, mended, wanted = await self._scripts.run(arguments.call("sweep", used))
        return armed, dropped, mended, wanted

    async def _shard_stats(self, shard: messages.ShardId) -> messages.ShardStats:
        names = self._shard(shard)
        lanes = [names.lane(lane) for lane in await self.namespaces(shard)]
        limit = points.DUE_LIMIT_US
        time, claims, outcomes, dead, head, *counts = await self._read(
            "read the statistics",
            ("TIME",),
            ("ZCARD", names.claims),
            ("XLEN", names.runs),
            ("XLEN", names.dead),
            ("ZRANGE", names.heads, 0, 0, "WITHSCORES"),
            *(("ZCOUNT", lane, "-inf", "(+inf") for lane in lanes),
            *(("ZCOUNT", lane, limit, "(+inf") for lane in lanes),
        )
        now = _time_us(time)
        due = await self._read(
            "read the statistics", *(("ZCOUNT", lane, "-inf", now) for lane in lanes)
        )
        return messages.ShardStats(
            shard=shard,
            points=sum(counts[: len(lanes)]),
            due=sum(due),
            claimed=sum(counts[len(lanes) :]),
            claims=max(0, claims - 1),  # the sentinel
            outcomes=outcomes,
            dead=dead,
            lag_us=_lag(head, now),
        )


def _timed_heads(known: definitions.Definition) -> list[bytes]:
    """How the members begin that stand for slots which the chain handed over."""
    head = known.id + known.timing_version
    kinds = (points.PointKind.RETRY, points.PointKind.PLANNED, points.PointKind.QUEUED)
    return [head + bytes([kind]) for kind in kinds]


def _slot_us(member: bytes) -> int:
    """The slot of an occurrence; 0 of a stranger, which is due at once and buried."""
    point = points.parse_member(member, 0)
    return 0 if point is None else point.slot_us


def _next_lane(namespaces: Iterable[int], *, after: int) -> str:
    """The cursor of the lane that follows, or of the pass that follows the last lane."""
    following = min((lane for lane in namespaces if lane > after), default=None)
    return "o" if following is None else f"p{following}:0"


def _time_us(reply: Any) -> int:  # noqa: ANN401 - as the library parses TIME
    return int(reply[0]) * 1_000_000 + int(reply[1])


def _lag(head: list[Any], now_us: int) -> int:
    pairs = (
        head if head and isinstance(head[0], tuple | list) else [tuple(head[:2])] if head else []
    )
    for member, score in pairs:
        if member:
            return max(0, now_us - int(float(score)))
    return 0
