"""Puts Schedules again that were due when a server went back in time.

Workers find out that a shard went back, and hand out nothing of a Schedule there that was due by
then; all else fires. Each look takes every outcome that was reported so far, puts what is overdue
again (``overdue``), and ends the doubt about the shard; it looks again until no shard is in doubt.
It begins with a term, once all statuses and all Jobs are known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import msgspec

from duepoint import errors, services, telemetry
from duepoint.controller.maintenance import overdue
from duepoint.controller.status.reporter import Reporter
from duepoint.controller.term import TermContext
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages
from duepoint.delayqueue.repair.fallbacks import Doubt, Overdue, PutAgain
from duepoint.schedules import actions
from duepoint.schedules.definition import Definition

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
        endings: overdue.Endings,
        reporter: Reporter,
        catch_up: Callable[[], Awaitable[None]],
        ready: Callable[[], Awaitable[object]],
    ) -> None:
        self._term = term
        self._endings = endings
        self._reporter = reporter
        self._catch_up = catch_up
        self._ready = ready
        self._own_streams: dict[tuple[str, str], bool] = {}
        self._asked = asyncio.Event()
        self._asked.set()

    def look(self) -> None:
        """A shard may be in doubt."""
        self._asked.set()

    async def run(self) -> None:
        """Put again whenever there is something to; raises queue_errors.Fenced."""
        await self._ready()
        while True:
            await self._asked.wait()
            self._asked.clear()
            await self._until_no_doubt()

    async def _until_no_doubt(self) -> None:
        waits = _waits()
        while True:
            try:
                doubts = await self._doubts()
                unknown = await self._put_again(doubts)
            except queue_errors.Fenced:
                raise
            except (errors.TryLater, errors.WorldChanged) as trouble:
                if self._term.health.unwell(PART, str(trouble)):
                    telemetry.logger.warning("what is overdue is not put", error=str(trouble))
            else:
                self._term.health.well(PART)
                if not doubts:
                    return
                if not unknown:
                    waits = _waits()  # more was found meanwhile, or nothing is left
            await self._term.clock.sleep(next(waits))

    async def _doubts(self) -> tuple[Doubt, ...]:
        """The shards in doubt, once workers had the time to tell what they had done."""
        doubts = await self._term.queue.fallbacks.doubts()
        if doubts:
            back_us = max(doubt.back_us for doubt in doubts)
            self._term.services.jobs.history.late.record_lost_claims(back_us)
            grace = GRACE_SECONDS - (self._term.clock.now_us() - back_us) / 1e6
            if grace > 0:
                await self._term.clock.sleep(min(grace, GRACE_SECONDS))
                return await self._term.queue.fallbacks.doubts()
        return doubts

    async def _put_again(self, doubts: tuple[Doubt, ...]) -> int:
        """Of how many Schedules the end of some slot is not known."""
        if doubts:
            await self._catch_up()
        return sum([await self._put_shard(doubt) for doubt in doubts])

    async def _put_shard(self, doubt: Doubt) -> int:
        """The same for one shard, whose doubt ends where it is none."""
        fallbacks, epoch = self._term.queue.fallbacks, self._term.epoch
        found = changed = unknown = 0
        async for part in fallbacks.overdue(doubt):
            wanted = [await self._wanted(one, doubt) for one in part]
            changes = [one for one in wanted if one is not None and one.changes]
            if changes:
                changed += await fallbacks.put_again(doubt, changes, epoch)
            found += len(part)
            unknown += wanted.count(None)
            await self._term.clock.sleep(0)  # let firing and statuses in between parts
        telemetry.logger.warning(
            "Redis went back in time; what was due is put again",
            shard=doubt.shard,
            schedules=found,
            changed=changed,
            unknown=unknown,
        )
        if not unknown:
            await fallbacks.end(doubt, epoch)
        return unknown

    async def _wanted(self, one: Overdue, doubt: Doubt) -> PutAgain | None:
        definition = one.definition
        settled = self._endings.settled(definition, doubt.back_us)
        goes_back = await self._goes_back(definition, doubt.shard)
        wanted = overdue.put_again(one, settled, self._endings, goes_back=goes_back)
        if wanted is not None and wanted.due_us != one.chain_due_us:
            # What ended is told by no event: those are lost with the server.
            is_last = wanted.due_us is None
            self._reporter.settled_through(definition.uid, settled.through_us, completed=is_last)
        return wanted

    async def _goes_back(self, known: Definition, shard: messages.ShardId) -> bool:
        """Whether its target is a stream on the very servers of the index."""
        key = known.namespace, known.target
        if key not in self._own_streams:
            try:
                blob = await self._term.queue.definitions.blob(*key, shard)
                target = actions.decode(blob).target
            except (queue_errors.BlobMissing, queue_errors.BlobForged, msgspec.MsgspecError):
                return False  # a worker says what is wrong with it
            is_own = isinstance(target, actions.StreamAction) and target.connection is None
            self._own_streams[key] = is_own
        return self._own_streams[key]


def _waits() -> Iterator[float]:
    return services.backoff(first_seconds=0.1, most_seconds=5.0)
