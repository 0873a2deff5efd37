"""Looking whether the index still agrees with itself, step by step, and mending it.

Each step reads a bounded piece without a script, compares here, and hands what looks wrong to one
fenced script that looks again before it writes. A shard is swept in three passes, told by the
cursor: ``d<n>`` definitions (an armed one without a chain), ``p<lane>:<scan>`` points (chains and
occurrences without a definition, and occurrences missing from ``occ``), ``o<member>`` the
occurrences' own list; heads, lapsed leases and freed claims go along with every step of a lane.
Definitions without a chain because they are suspended or completed are right as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from duepoint.delayqueue import core, keys, messages, port, reading, scripting, sharding
from duepoint.schedules import definition as definitions
from duepoint.schedules import points

_BUCKETS_PER_STEP = 32
_SCAN_COUNT = 500
_OCCURRENCES_PER_STEP = 500
_ID_LENGTH = 8


@dataclass(slots=True)
class _Findings:
    """What one step wants mended: (lane, id, member[, due])."""

    lanes: set[int] = field(default_factory=set)
    arm: list[tuple[int, bytes, bytes, int]] = field(default_factory=list)
    drop: list[tuple[int, bytes, bytes]] = field(default_factory=list)
    add: list[tuple[int, bytes]] = field(default_factory=list)
    forget: list[tuple[int, bytes]] = field(default_factory=list)
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
        due_of: Callable[[definitions.Definition], int | None] | None = None,
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
            findings, following = await self._sweep_points(shard, at[1:], namespaces)
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
        due_of: Callable[[definitions.Definition], int | None] | None,
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
        following = first + _BUCKETS_PER_STEP
        if following < len(buckets):
            return findings, f"d{following}"
        return findings, _next_lane(namespaces, after=-1)

    async def _find_unarmed(
        self,
        shard: messages.ShardId,
        packed: dict[points.ScheduleId, definitions.Packed],
        findings: _Findings,
        due_of: Callable[[definitions.Definition], int | None] | None,
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
        resolved = await self.read_definitions(shard, lost)
        for schedule_id, definition in resolved.items():
            due = due_of(definition) if due_of else None
            if due is None:
                findings.unarmed.append(schedule_id)
                continue
            lane = armed[schedule_id].namespace
            chain = schedule_id + definition.timing_version
            findings.arm.append((lane, schedule_id, chain, due))
            findings.lanes.add(lane)

    # -- points ---------------------------------------------------------------------------------

    async def _sweep_points(
        self, shard: messages.ShardId, at: str, namespaces: dict[int, str]
    ) -> tuple[_Findings, str | None]:
        lane_text, scan = at.split(":")
        lane = int(lane_text)
        names = self._shard(shard)
        ((following, found),) = await self._read(
            "sweep points", ("ZSCAN", names.lane(lane), scan, "COUNT", _SCAN_COUNT)
        )
        members = [member for member, _ in found if len(member) >= points.CHAIN_LENGTH]
        findings = _Findings(lanes={lane}, looked_at=len(members))
        await self._find_strays(shard, lane, members, findings)
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
