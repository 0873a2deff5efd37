"""Taking due points under a lease: claim, extend, release, count crashes.

A claim passes the lanes that were said to be due by the last reply (or by a wake-up); when the
server knows better it names them and is asked again at once. Validity is counted on the monotonic
clock from before the request, so that a slow reply never lengthens a lease. Definitions of the
points that were foreseen are read behind the claim in the same round trip: on one connection the
server answers in order, so they are as new as if they had been asked for after the reply.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
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
from duepoint.delayqueue.claims import chaincolumns, prefetch
from duepoint.delayqueue.definitions import reading, records
from duepoint.delayqueue.wire import nodes, scripting
from duepoint.schedules import points

#: Lease of a claim by default, and how many points one claim takes at most.
LEASE_SECONDS = 10.0
BATCH = 500
#: A shard that is away while others answer is looked at again after so long.
AWAY_SECONDS = 1.0
#: How far this machine's clock may be ahead of the server's before it delays a due.
CLOCK_TOLERANCE_US = 5_000
#: A worker that is not preferred leaves dues to the one that is for so long, in microseconds.
STANDBY_DUE_DELAY_US = (200_000, 500_000)
STANDBY_EXPIRY_DELAY_US = (0, 100_000)
#: Rounds of "name other lanes": two in practice, more while edits move the heads, and where claims
#: of deleted namespaces have run out, each of which takes one. What is left is looked at soon, once
#: the other shards have been answered for.
_ROUNDS = 4
_ROUNDS_WAIT_SECONDS = 0.005
_MOST_LANES = 64
_MOST_POINTS = 2_000  # two values each; unpack() carries 7,900
#: A shard that is only on its way to another node is looked at again after so long.
_MOVING_WAIT_SECONDS = 0.1
#: A look that came too early by less than this would come too early again.
_LEAST_WAIT_SECONDS = 0.0002
#: Shorter members than a schedule id are unknown; they are their own key among the lanes.
_ID_LENGTH = 8


log = structlog.get_logger(__name__)

#: The highest mark of a shard, and when a reply said so last.
_Mark = tuple[int, float]
_NO_MARK: _Mark = (0, -math.inf)

_Buckets = dict[str, list[points.ScheduleId]]


@dataclass(eq=False)
class Claims:
    """Takes due points under a lease: claim, extend, release, count crashes."""

    index: index.Index
    layouts: layouts.Layouts
    reader: reading.DefinitionReader
    prefetch: prefetch.Prefetch
    server_clocks: wakeups.ServerClocks

    def __post_init__(self) -> None:
        self._lanes: dict[messages.ShardId, list[bytes]] = {}
        self._is_outdated = False
        self._puzzling: set[messages.ShardId] = set()
        #: The highest mark of each shard; a shard whose mark is lower later went back.
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
        """Look at these shards in one round trip; one answer per shard, in their order.

        Shards in ``standby`` have another preferred worker: their dues are taken only when 200-500
        ms late, their expired claims 0-100 ms late. ``skip_suspects``: points that have lost two
        owners are skipped, and the answer says so. A shard that cannot be looked at says why in its
        answer, and is raised only where none of them can be.
        """
        if self._is_outdated:
            self._is_outdated = False
            raise queue_errors.LayoutChanged("the index was resharded")
        answers: dict[messages.ShardId, messages.Claimed] = {}
        failed: dict[messages.ShardId, errors.DuepointError] = {}
        asked = list(shards)
        until_us = self.index.clock.now_us() + CLOCK_TOLERANCE_US
        taken = {each: self.prefetch.take(each, until_us) for each in shards}
        expected = {
            shard: self.reader.by_bucket(shard, tuple(few))
            for shard, due in taken.items()
            if (few := due.few)
        }
        whereabouts: dict[messages.ShardId, dict[str, object]] = {}
        for _ in range(_ROUNDS):
            if not asked:
                break
            ids = [messages.ClaimId(os.urandom(12)) for _ in asked]
            foreseen = {shard: expected[shard] for shard in asked if shard in expected}
            started = self.index.clock.monotonic()
            replies = await self.index.scripts.run_many(
                [
                    *(
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
                    ),
                    *(
                        command
                        for shard, by_bucket in foreseen.items()
                        for command in self.reader.definition_commands(shard, by_bucket)
                    ),
                ]
            )
            known = self._definitions_behind(foreseen, replies[len(asked) :])
            again = []
            others: dict[messages.ShardId, bytes] = {}
            for shard, id_, reply in zip(asked, ids, replies, strict=False):
                if isinstance(reply, errors.DuepointError):
                    self._put_off(shard, reply, answers, failed)
                elif self._wants_to_be_asked_again(shard, reply, others):
                    again.append(shard)
                else:
                    answers[shard] = self._answer(shard, id_, reply, started, known.get(shard, {}))
            asked = again
            whereabouts |= await self.index.whereabouts(others)
        if failed and not answers:
            raise next(iter(failed.values()))
        for shard, due in taken.items():
            if (answer := answers.get(shard)) is not None and answer.claim is None:
                self.prefetch.give_back(shard, due)
        # Claims that were made are handed out first; the next look tells that a shard is no more.
        troubles = failed.values()
        self._is_outdated = any(
            isinstance(trouble, queue_errors.LayoutChanged) for trouble in troubles
        )
        soon = dict.fromkeys(asked, _ROUNDS_WAIT_SECONDS)
        return [
            answers.get(shard)
            or _look_again(shard, failed.get(shard), after_seconds=soon.get(shard, AWAY_SECONDS))
            for shard in shards
        ]

    def expected(self, shard: messages.ShardId) -> int:
        """About how many points a shard gives next; of retries fewer."""
        return self.prefetch.known(shard, self.index.clock.now_us() + CLOCK_TOLERANCE_US)

    def elsewhere(self, shards: Collection[messages.ShardId]) -> tuple[messages.ShardId, ...]:
        """The shards of servers that hold none of these; none where there is one server."""
        by_meta = {
            self.index.shard(shard).meta: shard
            for shard in sharding.all_shards(self.index.known_layout())
        }
        homes = [
            [by_meta[meta] for meta in at]
            for at in self.index.servers.homes(tuple(by_meta)).values()
        ]
        return tuple(shard for home in homes if not {*home} & {*shards} for shard in home)

    def _wants_to_be_asked_again(
        self, shard: messages.ShardId, reply: list[Any], others: dict[messages.ShardId, bytes]
    ) -> bool:
        """Whether nothing was claimed, for want of what is found out here."""
        match reply[0]:
            case b"lanes":
                self._lanes[shard] = reply[1]
            case b"other":
                others[shard] = reply[1]
            case _:
                return False
        return True

    def _put_off(
        self,
        shard: messages.ShardId,
        trouble: errors.DuepointError,
        answers: dict[messages.ShardId, messages.Claimed],
        failed: dict[messages.ShardId, errors.DuepointError],
    ) -> None:
        """What is the matter with this shard alone holds up no other one."""
        if isinstance(trouble, queue_errors.ShardMoving):
            answers[shard] = _look_again(shard, trouble, after_seconds=_MOVING_WAIT_SECONDS)
        elif not isinstance(trouble, (errors.Bug, queue_errors.Damaged)):
            failed[shard] = trouble
        else:  # something is in it that no script of ours expects
            answers[shard] = _look_again(shard)
            telemetry.unreadable_total.labels("shard").inc()
            if shard not in self._puzzling:
                self._puzzling.add(shard)
                log.error("shard cannot be claimed from", shard=shard, error=str(trouble))

    def _definitions_behind(
        self, foreseen: Mapping[messages.ShardId, _Buckets], replies: Sequence[Any]
    ) -> dict[messages.ShardId, messages.KnownDefinitions]:
        """What was read behind the claims; a shard created anew meanwhile is read as ever."""
        known: dict[messages.ShardId, messages.KnownDefinitions] = {}
        answers = iter(replies)
        for shard, by_bucket in foreseen.items():
            own = list(itertools.islice(answers, 1 + len(by_bucket)))
            with contextlib.suppress(errors.WorldChanged, errors.TryLater):
                known[shard] = self.reader.known_already(shard, by_bucket, own)
        return known

    async def extend(self, claim: messages.Claim, lease_seconds: float) -> messages.Claim | None:
        """The claim with a later ``held_until``; None = lost. Never shortens a lease."""
        names = self.index.shard(claim.shard)
        call = self.index.call(
            "extend",
            claim.shard,
            *map(names.lane, chaincolumns.lanes_of(claim)),
            id=claim.id,
            lease=_us(lease_seconds),
            latest=_us(2 * settings.LONGEST_LEASE_SECONDS),
        )
        started = self.index.clock.monotonic()
        reply = await self.layouts.unless_gone(claim.shard, self.index.scripts.run(call))
        if reply is None or reply[0] == b"lost":
            return None
        token, now = int(reply[1]), int(reply[2])
        return dataclasses.replace(
            claim, token_us=token, held_until=started + (token - now) / 1_000_000
        )

    async def release(self, claim: messages.Claim, members: Collection[bytes] | None = None) -> int:
        """These members (None = all still held) are there for others at once; how many.

        Occurrences are due again at their dues. Chains keep when they were claimed first, and have
        lost no owner (``Claim.first_us``, ``reclaimed``).
        """
        names = self.index.shard(claim.shard)
        lanes = chaincolumns.lanes_of(claim)
        call = self.index.call(
            "release",
            claim.shard,
            *map(names.lane, lanes),
            id=claim.id,
            all=members is None,
            lanes=[str(lane) for lane in lanes],
            given=os.urandom(12),
        )
        call.put(members=call.run(members or ()))
        reply = await self.layouts.unless_gone(claim.shard, self.index.scripts.run(call))
        return 0 if reply is None else int(reply[0])

    async def count_crash(self, claim: messages.Claim, by: int = 1) -> bool:
        """Count this worker, which has nothing else in hand, as lost to the claim's one point.

        With -1 take that back: it lives. False = the claim is lost. Enough such owners make a point
        poison (``Claim.alone``); whatever is settled of it begins anew.
        """
        known = [(point.member, point.due_us) for point in claim.points]
        ((member, due),) = known or claim.unknown_members
        point = member + str(int(due)).encode()
        call = self.index.call("crashed", claim.shard, id=claim.id, point=point, by=by)
        return bool(await self.layouts.unless_gone(claim.shard, self.index.scripts.run(call)))

    def expect_lane(self, shard: messages.ShardId, lane: int) -> None:
        """A wake-up said that this lane has the shard's head."""
        lanes = self._lanes.setdefault(shard, [])
        text = str(lane).encode()
        if text not in lanes:
            lanes.insert(0, text)
            del lanes[_MOST_LANES:]

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
        names = self.index.shard(shard)
        lanes = self._lanes.get(shard, [])
        mark, marked_at = self._marks.get(shard, _NO_MARK)
        call = self.index.call(
            "claim",
            shard,
            *(names.lane(int(lane)) for lane in lanes),
            id=claim_id,
            worker=worker,
            lease=_us(lease_seconds),
            cap=self.index.clock.now_us() + CLOCK_TOLERANCE_US,
            batch=min(batch, _MOST_POINTS),
            lanes=[lane.decode() for lane in lanes],
            due_delay=_between(STANDBY_DUE_DELAY_US) if standby else 0,
            expiry_delay=_between(STANDBY_EXPIRY_DELAY_US) if standby else 0,
            skip_suspects=skip_suspects,
            mark=mark,
            **({"mark_age": _us(self.index.clock.monotonic() - marked_at)} if mark else {}),
            **former,
            ran=names.ran,
        )
        call.values.append(nodes.RUN_ID)  # of the server that it is sent to
        return call

    def _answer(
        self,
        shard: messages.ShardId,
        claim_id: messages.ClaimId,
        reply: list[Any],
        started: float,
        known: messages.KnownDefinitions,
    ) -> messages.Claimed:
        self._puzzling.discard(shard)
        is_idle = reply[0] == b"idle"
        server_us = int(reply[4 if is_idle else 3])
        server_clock = self.server_clocks.of(shard)
        server_clock.note_answer(server_us, asked=started)
        # An answer is read when the loop gets to it: of a busy loop's time none is to wait for.
        round_trip = self.index.clock.monotonic() - started
        passed = min(server_clock.age_seconds(server_us), round_trip)
        if is_idle:
            self._lanes[shard] = _lanes_among(reply[2])
            self._expect(shard, reply[5])
            return messages.Claimed(
                shard=shard,
                claim=None,
                wait_seconds=_seconds(reply[1], passed),
                has_suspects=bool(reply[3]),
            )
        _, cap, token, now, attempts, alone, more, wait, found, occurrences, *others = reply
        lanes, left, first, mark, ahead = others
        self._expect(shard, ahead)
        if int(mark) >= self._marks.get(shard, _NO_MARK)[0]:
            self._marks[shard] = int(mark), self.index.clock.monotonic()
        self._lanes[shard] = _lanes_among(lanes)
        claim = messages.Claim(
            id=claim_id,
            shard=shard,
            reclaimed=attempts,
            alone=alone,
            first_us=int(first),
            now_us=int(cap),
            token_us=int(token),
            held_until=started + (int(token) - int(now)) / 1_000_000,
            definitions=known,
            **_records(occurrences),
            **_points(found),
        )
        return messages.Claimed(
            shard=shard,
            claim=claim,
            wait_seconds=_seconds(wait, passed),
            more=more,
            has_suspects=bool(left),
        )

    def _expect(self, shard: messages.ShardId, ahead: list[bytes]) -> None:
        """Chains of members that are due soon, and their dues."""
        for member, due in zip(ahead[::2], ahead[1::2], strict=True):
            if len(member) == points.CHAIN_LENGTH:
                self.prefetch.expect(shard, points.ScheduleId(member[:_ID_LENGTH]), int(float(due)))


def _lanes_among(heads: list[bytes]) -> list[bytes]:
    """The heads that name lanes; others are removed by the script when they are due."""
    return [head for head in heads if head.isdigit()]


def _points(found_by_lane: list[Any]) -> dict[str, Any]:
    """Points, unknown_members and lanes of a reply {lane, {member, due, ...}, ...}."""
    if (chains := chaincolumns.from_lanes(found_by_lane)) is not None:
        return {
            "points": chains,
            "unknown_members": (),
            "lanes": chaincolumns.LanesOfChains(found_by_lane),
        }
    known: list[points.DuePoint] = []
    unknown_members: list[tuple[bytes, float]] = []
    lanes: dict[bytes, int] = {}
    for lane, found in zip(found_by_lane[::2], found_by_lane[1::2], strict=True):
        number = int(lane)
        for member, score in zip(found[::2], found[1::2], strict=True):
            due = float(score)
            lanes[member[:_ID_LENGTH]] = number
            point = points.parse_member(member, int(due)) if due >= 0 else None
            if point is None:
                unknown_members.append((member, due))
            else:
                known.append(point)
    if unknown_members:
        telemetry.unreadable_total.labels("member").inc(len(unknown_members))
    known.sort(key=lambda point: point.due_us)
    return {"points": tuple(known), "unknown_members": tuple(unknown_members), "lanes": lanes}


def _records(occurrences: list[bytes]) -> dict[str, Any]:
    """Records, and members of those that cannot be read, of a reply {member, record, ...}."""
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


def _look_again(
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
    """What is left of a wait, never nothing; None where there is nothing to wait for."""
    wait = int(wait_us)
    return None if wait < 0 else max(wait / 1_000_000 - passed_seconds, _LEAST_WAIT_SECONDS)


def _us(seconds: float) -> int:
    return int(seconds * 1_000_000)


def _between(bounds: Iterable[int]) -> int:
    low, high = bounds
    return random.randint(low, high)  # noqa: S311 - spreads load
