"""Compares what waits on a server that went back, so that it runs or ends.

Workers find out that a shard went back and set aside what was due by then; they go on with what is
due later, so only overdue slots depend on this. Each look takes every outcome that was reported so
far, reads what waits, says what has ended, and has the rest run; it looks again until no shard is
suspect. It begins with a term, because a former leader may have ended in the middle of it, once all
statuses and all Jobs are known.

What a held point stands for is not passed by a watermark while that point is in the queue; the
reporter learns when it is not any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator

import msgspec

from duepoint import errors, services, telemetry
from duepoint.controller import inventory
from duepoint.controller.maintenance import comparing
from duepoint.controller.status.reporter import Reporter
from duepoint.controller.term import TermContext
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages
from duepoint.delayqueue.repair import suspectpoints
from duepoint.runs import run
from duepoint.schedules import actions, points
from duepoint.schedules.definition import Definition
from duepoint.schedules.points import PointKind

PART = "fallback"
#: A worker that was cut off in the middle tells within this what it had done, and it is not done
#: again.
GRACE_SECONDS = 2.0


class Fallbacks:
    """The service; one for each term of a leader.

    Args:
        endings: what has become of slots.
        catch_up: returns when every outcome that was reported before has been folded.
        ready: awaited before the first look.
    """

    def __init__(
        self,
        term: TermContext,
        *,
        endings: comparing.Endings,
        reporter: Reporter,
        catch_up: Callable[[], Awaitable[None]],
        ready: Callable[[], Awaitable[object]],
    ) -> None:
        self._term = term
        self._endings = endings
        self._reporter = reporter
        self._catch_up = catch_up
        self._ready = ready
        self._streams: dict[tuple[str, str], bool] = {}
        self._asked = asyncio.Event()
        self._asked.set()

    def look(self) -> None:
        """A shard may be suspect."""
        self._asked.set()

    async def run(self) -> None:
        """Compare whenever there is something to; raises queue_errors.Fenced."""
        await self._ready()
        while True:
            await self._asked.wait()
            self._asked.clear()
            if await self._is_any_shard_suspect():
                await self._term.clock.sleep(GRACE_SECONDS)
            await self._until_nothing_waits()

    async def _is_any_shard_suspect(self) -> bool:
        try:
            return any(one.back_us for one in await self._suspect_shards())
        except (errors.TryLater, errors.WorldChanged):
            return False  # the look tells

    async def _suspect_shards(
        self, *, every: bool = False
    ) -> tuple[suspectpoints.SuspectShard, ...]:
        return await self._term.queue.suspect_points.shards(every=every)

    async def _until_nothing_waits(self) -> None:
        waits = _waits()
        while True:
            try:
                changed, left = await self._compare_once()
            except queue_errors.Fenced:
                raise
            except (errors.TryLater, errors.WorldChanged) as trouble:
                if self._term.health.unwell(PART, str(trouble)):
                    telemetry.logger.warning("what waits is not compared", error=str(trouble))
                await self._term.clock.sleep(next(waits))
                continue
            self._term.health.well(PART)
            telemetry.suspect_shards.set(left)
            if not left:
                return
            if changed:
                waits = _waits()
            await self._term.clock.sleep(next(waits))

    async def _compare_once(self) -> tuple[int, int]:
        """How many points changed, and how many shards are left to be looked at again."""
        suspects = await self._suspect_shards()
        known = self._reporter.holds()
        if not suspects and not known:
            return 0, 0
        if suspects:
            self._term.events.claims_lost(max(one.back_us for one in suspects))
        await self._catch_up()
        changed, left = 0, 0
        for one in suspects:
            changed += await self._term.queue.suspect_points.set_aside(one, self._term.epoch)
            changed += await self._compare_shard(one)
            left += bool(await self._term.queue.suspect_points.end(one, self._term.epoch))
        if known and not left:
            left = await self._end_holds(known)
        return changed, left

    async def _compare_shard(self, suspect: suspectpoints.SuspectShard) -> int:
        changed = 0
        async for part in self._term.queue.suspect_points.held(suspect.shard):
            known = [one.definition for one in part if one.definition is not None]
            held: frozenset[bytes] = frozenset()
            if any(one.point.kind is PointKind.CHAIN for one in part):
                stored = self._term.queue.occurrences.all_occurrences(suspect.shard)
                held = frozenset(
                    [one.schedule_id async for one in stored if one.kind is PointKind.HELD]
                )
            found = comparing.compare(
                part,
                self._endings,
                back_us=suspect.back_us,
                now_us=self._term.clock.now_us(),
                held=held,
                goes_back=await self._going_back(suspect.shard, known),
            )
            await self._leave_out_known(suspect.shard, found.compared)
            if found.compared:
                changed += await self._term.queue.suspect_points.apply(
                    suspect.shard,
                    found.compared,
                    self._term.epoch,
                    outcomes=run.pack(found.events),
                )
            _log(suspect.shard, found)
            await self._term.clock.sleep(0)  # let firing and statuses in between parts
        return changed

    async def _going_back(
        self, shard: messages.ShardId, known: Iterable[Definition]
    ) -> Callable[[Definition], bool]:
        """Whether a schedule's target is a stream on the very servers of the index."""
        for namespace, digest in {(one.namespace, one.target) for one in known}:
            if (namespace, digest) not in self._streams:
                try:
                    action = actions.decode(
                        await self._term.queue.definitions.blob(namespace, digest, shard)
                    )
                except (queue_errors.BlobMissing, queue_errors.BlobForged, msgspec.MsgspecError):
                    continue  # a worker says what is wrong with it
                target = action.target
                is_own = isinstance(target, actions.StreamAction) and target.connection is None
                self._streams[namespace, digest] = is_own
        return lambda one: self._streams.get((one.namespace, one.target), False)

    async def _leave_out_known(
        self, shard: messages.ShardId, compared: suspectpoints.PointComparison
    ) -> None:
        """Open slots whose points are in the queue need none again."""
        kept = []
        slots_of: dict[points.ScheduleId, set[int]] = {}
        for held, lost in compared.added:
            schedule_id = lost.point.schedule_id
            if schedule_id not in slots_of:
                slots_of[schedule_id] = {
                    one.slot_us
                    async for one in self._term.queue.occurrences.all_occurrences(
                        shard, of=schedule_id
                    )
                    if one.kind not in (points.RUN_KINDS | {PointKind.HELD})
                }
            if lost.point.slot_us not in slots_of[schedule_id]:
                kept.append((held, lost))
        compared.added[:] = kept

    async def _end_holds(self, known: dict[str, int]) -> int:
        """Of what no held point is left, watermarks are free; how many are not yet.

        A point that is gone because its server went back once more has ended nothing: the chain
        stands before its slots again.
        """
        found = inventory.occurrences(self._term.queue, {PointKind.HELD})
        held = {definition.uid async for _, _, definition in found}
        await self._catch_up()  # their outcomes were reported before they went
        if await self._suspect_shards(every=True):
            return len(known)
        self._reporter.end_holds({uid: count for uid, count in known.items() if uid not in held})
        return len(known.keys() & held)


def _log(shard: messages.ShardId, found: comparing.Comparisons) -> None:
    compared = found.compared
    telemetry.held_points_total.labels("ended").inc(len(compared.gone))
    telemetry.held_points_total.labels("due").inc(len(compared.due) + len(compared.chains))
    telemetry.held_points_total.labels("lost").inc(len(compared.added))
    telemetry.logger.warning(
        "Redis went back in time; what waited was compared",
        shard=shard,
        ended=len(compared.gone),
        due=len(compared.due) + len(compared.chains),
        lost=len(compared.added),
        waiting=found.waiting,
    )


def _waits() -> Iterator[float]:
    return services.backoff(first_seconds=0.1, most_seconds=5.0)
