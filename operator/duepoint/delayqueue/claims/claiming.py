"""Taking due points under a lease: claim, extend, release, count crashes.

A claim is one round trip and brings the records of its schedules. A lease is measured on the
monotonic clock from before the request, so that a slow reply never lengthens it.
"""

from __future__ import annotations

import dataclasses
import math
import os
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from duepoint import errors, settings, telemetry
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import index, layouts, messages, sharding, wakeups
from duepoint.delayqueue.claims import chaincolumns
from duepoint.delayqueue.definitions import records
from duepoint.delayqueue.wire import nodes, scripting
from duepoint.schedules import points

#: Defaults of a claim: the length of its lease, and its most points.
LEASE_SECONDS = 10.0
BATCH = 500
#: Wait before claiming again from a shard that is away while others answer.
AWAY_SECONDS = 1.0
#: No lease ends later than this after the server's now.
_LATEST_US = 2 * settings.LONGEST_LEASE_SECONDS * 1_000_000
#: How far this machine's clock may be behind the server's before it delays a due.
CLOCK_TOLERANCE_US = 5_000
#: How long a standby worker leaves dues, and expired claims, to the preferred one; microseconds.
STANDBY_DUE_DELAY_US = (200_000, 500_000)
STANDBY_EXPIRY_DELAY_US = (0, 100_000)
#: Most calls to a shard in one claim: the second tells what became of its former server.
_ROUNDS = 2
_MOST_POINTS = 2_000  # two values each; unpack() carries 7,900
#: Wait before claiming again from a shard that is migrating to another node.
_MOVING_WAIT_SECONDS = 0.1
#: The shortest wait. After a shorter one the next claim would come too early again.
_LEAST_WAIT_SECONDS = 0.0002
#: Members shorter than this are of unknown format; ``Claim.lanes`` has them under their own bytes.
_ID_LENGTH = 8


log = structlog.get_logger(__name__)

#: The highest mark of a shard, and the monotonic instant of the last reply that had it.
_Mark = tuple[int, float]
_NO_MARK: _Mark = (0, -math.inf)


@dataclass(eq=False)
class Claims:
    """Takes due points under a lease: claim, extend, release, count crashes."""

    index: index.Index
    layouts: layouts.Layouts
    server_clocks: wakeups.ServerClocks

    def __post_init__(self) -> None:
        self._is_outdated = False
        self._logged_damaged: set[messages.ShardId] = set()
        #: The highest mark of each shard; a lower one later shows that the shard lost writes.
        self._marks: dict[messages.ShardId, _Mark] = {}

    async def claim(
        self,
        shards: Sequence[messages.ShardId],
        *,
        worker: str,
        batch: int = BATCH,
        lease_seconds: float = LEASE_SECONDS,
        standby: Collection[messages.ShardId] = (),
        skip_suspects: bool = False,
    ) -> list[messages.Claimed]:
        """Claim from these shards in one round trip; one answer per shard, in their order.

        Shards in ``standby`` have another preferred worker: this one takes their dues only when
        200-500 ms late, their expired claims 0-100 ms late. With ``skip_suspects`` it skips points
        that have lost two owners, and the answer says so. If a shard fails, its answer says why;
        the error is raised only if all shards fail.
        """
        if self._is_outdated:
            self._is_outdated = False
            raise queue_errors.LayoutChanged("the index was resharded")
        answers: dict[messages.ShardId, messages.Claimed] = {}
        failed: dict[messages.ShardId, errors.DuepointError] = {}
        asked = list(shards)
        whereabouts: dict[messages.ShardId, dict[str, object]] = {}
        for _ in range(_ROUNDS):
            if not asked:
                break
            ids = [messages.ClaimId(os.urandom(12)) for _ in asked]
            started = self.index.clock.monotonic()
            replies = await self.index.scripts.run_many(
                [
                    self._claim_call(
                        shard,
                        id_,
                        worker=worker,
                        batch=batch,
                        lease_seconds=lease_seconds,
                        standby=shard in standby,
                        skip_suspects=skip_suspects,
                        former=whereabouts.get(shard, {}),
                    )
                    for shard, id_ in zip(asked, ids, strict=True)
                ]
            )
            others: dict[messages.ShardId, bytes] = {}
            for shard, id_, reply in zip(asked, ids, replies, strict=True):
                if isinstance(reply, errors.DuepointError):
                    self._put_off(shard, reply, answers, failed)
                elif reply[0] == b"other":
                    others[shard] = reply[1]
                else:
                    answers[shard] = self._answer(shard, id_, scripting.fields(reply), started)
            asked = list(others)
            whereabouts = await self.index.whereabouts(others)
        if failed and not answers:
            raise next(iter(failed.values()))
        # The claims that were made are returned first; the next call raises LayoutChanged.
        troubles = failed.values()
        self._is_outdated = any(
            isinstance(trouble, queue_errors.LayoutChanged) for trouble in troubles
        )
        return [answers.get(shard) or _retry_later(shard, failed.get(shard)) for shard in shards]

    def elsewhere(self, shards: Collection[messages.ShardId]) -> tuple[messages.ShardId, ...]:
        """Return the shards of servers that hold none of these; empty if there is one server."""
        by_meta = {
            self.index.shard(shard).meta: shard
            for shard in sharding.all_shards(self.index.known_layout())
        }
        homes = [
            [by_meta[meta] for meta in at]
            for at in self.index.servers.homes(tuple(by_meta)).values()
        ]
        return tuple(shard for home in homes if not {*home} & {*shards} for shard in home)

    def _put_off(
        self,
        shard: messages.ShardId,
        trouble: errors.DuepointError,
        answers: dict[messages.ShardId, messages.Claimed],
        failed: dict[messages.ShardId, errors.DuepointError],
    ) -> None:
        """Record the trouble of this one shard, so that it does not hold up the others."""
        if isinstance(trouble, queue_errors.ShardMoving):
            answers[shard] = _retry_later(shard, trouble, after_seconds=_MOVING_WAIT_SECONDS)
        elif not isinstance(trouble, (errors.Bug, queue_errors.Damaged)):
            failed[shard] = trouble
        else:  # the shard contains data that our scripts do not expect
            answers[shard] = _retry_later(shard)
            telemetry.unreadable_total.labels("shard").inc()
            if shard not in self._logged_damaged:
                self._logged_damaged.add(shard)
                log.error("shard cannot be claimed from", shard=shard, error=str(trouble))

    async def extend(self, claim: messages.Claim, lease_seconds: float) -> messages.Claim | None:
        """Return the claim with a later ``held_until``; None = lost. Never shortens a lease."""
        call = self._extend_call(claim, lease_seconds)
        started = self.index.clock.monotonic()
        reply = await self.layouts.unless_gone(claim.shard, self.index.scripts.run(call))
        if reply is None or reply[0] == b"lost":
            return None
        token, now = int(reply[1]), int(reply[2])
        return dataclasses.replace(
            claim, token_us=token, held_until=started + (token - now) / 1_000_000
        )

    def _extend_call(self, claim: messages.Claim, lease_seconds: float) -> scripting.ScriptCall:
        return self.index.call(
            "extend",
            claim.shard,
            *map(self.index.shard(claim.shard).lane, claim.by_lane),
            id=claim.id,
            lease=_us(lease_seconds),
            latest=_LATEST_US,
        )

    async def release(self, claim: messages.Claim, members: Collection[bytes] | None = None) -> int:
        """Give these members back (None = all still held), due at once; return how many.

        They keep the time of their first claim (``Claim.first_us``), and this does not count as a
        lost owner (``reclaimed``).
        """
        names = self.index.shard(claim.shard)
        call = self.index.call(
            "release",
            claim.shard,
            *map(names.lane, claim.by_lane),
            id=claim.id,
            all=members is None,
            lanes=list(claim.by_lane),
            given=os.urandom(12),
        )
        call.put(members=call.run(members or ()))
        reply = await self.layouts.unless_gone(claim.shard, self.index.scripts.run(call))
        return 0 if reply is None else int(reply[0])

    async def count_crash(self, claim: messages.Claim) -> bool:
        """Count this worker, which has nothing else in hand, as lost to the claim's one point.

        Returns False if the claim is lost. Enough lost owners make a point poison
        (``Claim.alone``); a settlement of the point resets the count.
        """
        call = self._extend_call(claim, 0)
        call.put(point=_only_point(claim))
        reply = await self.layouts.unless_gone(claim.shard, self.index.scripts.run(call))
        return reply is not None and reply[0] != b"lost"

    async def survive(self, claim: messages.Claim) -> None:
        """Take back the crash counted against the claim's one point: this worker is alive."""
        crashes = self.index.shard(claim.shard).crashes
        await self.index.read("take back a crash", ("HDEL", crashes, _only_point(claim)))

    def _claim_call(
        self,
        shard: messages.ShardId,
        claim_id: messages.ClaimId,
        *,
        worker: str,
        batch: int,
        lease_seconds: float,
        standby: bool,
        skip_suspects: bool,
        former: Mapping[str, object],
    ) -> scripting.ScriptCall:
        mark, marked_at = self._marks.get(shard, _NO_MARK)
        call = self.index.call(
            "claim",
            shard,
            id=claim_id,
            worker=worker,
            lease=_us(lease_seconds),
            latest=_LATEST_US,
            cap=self.index.clock.now_us() + CLOCK_TOLERANCE_US,
            batch=min(batch, _MOST_POINTS),
            buckets=self.index.buckets,
            due_delay=_between(STANDBY_DUE_DELAY_US) if standby else 0,
            expiry_delay=_between(STANDBY_EXPIRY_DELAY_US) if standby else 0,
            skip_suspects=skip_suspects,
            mark=mark,
            **({"mark_age": _us(self.index.clock.monotonic() - marked_at)} if mark else {}),
            **former,
            ran=self.index.shard(shard).ran,
        )
        call.values.append(nodes.RUN_ID)  # of the server that it is sent to
        return call

    def _answer(
        self,
        shard: messages.ShardId,
        claim_id: messages.ClaimId,
        said: Mapping[bytes, Any],
        started: float,
    ) -> messages.Claimed:
        self._logged_damaged.discard(shard)
        server_us = int(said[b"time"])
        # A busy event loop reads the answer late: subtract the time since from the wait.
        round_trip = self.index.clock.monotonic() - started
        passed = min(self.server_clocks.of(shard).age_seconds(server_us), round_trip)
        claim = None
        if b"token" in said:
            mark, token_us = int(said[b"mark"]), int(said[b"token"])
            if mark >= self._marks.get(shard, _NO_MARK)[0]:
                self._marks[shard] = mark, self.index.clock.monotonic()
            claim = messages.Claim(
                id=claim_id,
                shard=shard,
                reclaimed=said[b"attempts"],
                alone=said[b"alone"],
                first_us=int(said[b"first"]),
                now_us=int(said[b"cap"]),
                token_us=token_us,
                held_until=started + (token_us - server_us) / 1_000_000,
                **_records(said[b"occurrences"]),
                **_points(said[b"lanes"]),
            )
        return messages.Claimed(
            shard=shard,
            claim=claim,
            wait_seconds=_seconds(said[b"wait"], passed),
            more=said.get(b"more", 0),
            has_suspects=bool(said[b"left_alone"]),
        )


def _only_point(claim: messages.Claim) -> bytes:
    """Return the key under which the shard counts owners lost to the claim's point: member, due."""
    known = [(point.member, point.due_us) for point in claim.points]
    ((member, due),) = known or claim.unknown_members
    return member + str(int(due)).encode()


def _points(listed: list[Any]) -> dict[str, Any]:
    """Return fields of ``Claim`` out of {lane, entry, {member, due, ...}, {record, ...}, ...}."""
    found = dict(zip(map(bytes.decode, listed[::4]), listed[2::4], strict=True))
    by_lane = {lane: each[::2] for lane, each in found.items()}
    lanes: dict[bytes, str] = {}
    stored: dict[bytes, bytes | None] = {}
    for (lane, members), here in zip(by_lane.items(), listed[3::4], strict=True):
        ids = [member[:_ID_LENGTH] for member in members]
        lanes.update(dict.fromkeys(ids, lane))
        stored.update(zip(ids, here, strict=True))
    claimed: dict[str, Any] = {
        "lanes": lanes,
        "by_lane": by_lane,
        "stored": stored,
        "entries": dict(zip(found, listed[1::4], strict=True)),
    }
    if (chains := chaincolumns.from_lanes(found)) is not None:
        return {"points": chains, **claimed}
    known: list[points.DuePoint] = []
    unknown_members: list[tuple[bytes, float]] = []
    for each in found.values():
        for member, score in zip(each[::2], each[1::2], strict=True):
            due = float(score)
            point = points.parse_member(member, int(due)) if due >= 0 else None
            if point is None:
                unknown_members.append((member, due))
            else:
                known.append(point)
    if unknown_members:
        telemetry.unreadable_total.labels("member").inc(len(unknown_members))
    known.sort(key=lambda point: point.due_us)
    return {"points": tuple(known), "unknown_members": tuple(unknown_members), **claimed}


def _records(occurrences: list[bytes]) -> dict[str, Any]:
    """Return the records of a reply {member, record, ...}, and the members of unreadable ones."""
    found: dict[bytes, messages.OccurrenceRecord] = {}
    unreadable: set[bytes] = set()
    for member, record in zip(occurrences[::2], occurrences[1::2], strict=True):
        try:
            found[member] = records.unpack(record)
        except records.UnknownFormat:
            unreadable.add(member)
    if unreadable:
        telemetry.unreadable_total.labels("record").inc(len(unreadable))
    return {"records": found, "unreadable": frozenset(unreadable)}


def _retry_later(
    shard: messages.ShardId,
    trouble: errors.DuepointError | None = None,
    *,
    after_seconds: float = AWAY_SECONDS,
) -> messages.Claimed:
    return messages.Claimed(
        shard=shard,
        claim=None,
        wait_seconds=after_seconds,
        trouble=trouble if isinstance(trouble, errors.TryLater) else None,
    )


def _seconds(wait_us: bytes | int, passed_seconds: float) -> float | None:
    """Return what is left of a wait, above 0; None if there is nothing to wait for."""
    wait = int(wait_us)
    return None if wait < 0 else max(wait / 1_000_000 - passed_seconds, _LEAST_WAIT_SECONDS)


def _us(seconds: float) -> int:
    return int(seconds * 1_000_000)


def _between(bounds: Iterable[int]) -> int:
    low, high = bounds
    return random.randint(low, high)  # noqa: S311 - spreads load
