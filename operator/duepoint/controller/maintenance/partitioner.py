"""The partitioner: reshards the index when a user requests another number of shards.

One service of a leader's term. It controls the order of the steps (announce, let the workers learn
of it, empty one former shard after the other, close them, end) but has no state of its own: it
reads that from the index, so a new leader continues where the last one stopped. It goes over a
shard in passes, because a slot that a worker has claimed can move only once it is settled, with a
pause after a pass without progress. Everything else continues: a schedule waits only for its own
batch or, if workers always have a claim on it, for these to end.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping

import msgspec

from duepoint import errors, telemetry
from duepoint.controller.term import TermContext
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages, resharding, sharding
from duepoint.delayqueue.messages import Layout
from duepoint.kube import schedules

_PAUSE_SECONDS = 0.2
#: After this many passes the schedules left were claimed each time. Each further pass then holds
#: their shard for this long, until the claims have ended.
_PATIENT_PASSES = 3
_HOLD_SECONDS = 2.0

_WORDS = {
    "points": "runs that a worker holds",
    "outcomes": "outcomes that are not in a status yet",
    "dead": "dead letters",
}


class Partitioner:
    """The service; one for each term of a leader."""

    #: Within this time every worker learns of the new shards, with its next heartbeat.
    notice_seconds = 12.0

    def __init__(self, term: TermContext) -> None:
        self._term = term
        self._asked = asyncio.Event()
        #: Schedules and members moved so far, and left; ``duepoint queue partition`` shows them.
        self._moved = self._left = 0

    def check_layout(self) -> None:
        """Check the layout that was just read for a requested or unfinished move."""
        if (
            self._term.queue.layouts.wanted_shards
            or self._term.queue.layouts.known().former is not None
        ):
            self._asked.set()

    async def run(self) -> None:
        """Carry out requested moves until cancelled; raises queue_errors.Fenced."""
        await self._term.repeat(
            "partition", self._move, "partitioning waits", asked=self._asked, every_seconds=None
        )

    async def _move(self) -> None:
        """Carry out a requested or unfinished move, if there is one."""
        try:
            layout = await self._term.queue.layouts.read()
            wanted = self._term.queue.layouts.wanted_shards
            if layout.former is None and sharding.is_possible(wanted):
                layout = await self._term.queue.resharding.announce(wanted, self._term.epoch)
                self._moved = 0
                telemetry.logger.info("partitioning begins", shards=layout.shards)
            if layout.former is not None:
                await self._continue(layout)
        except queue_errors.LayoutChanged as change:  # ends other services; here it is read again
            said = f"the index was resharded meanwhile: {change}"
            raise errors.QueueUnavailable(said) from change

    async def _continue(self, layout: messages.Layout) -> None:
        """Continue a move from where the last leader stopped, to its end."""
        assert layout.former is not None  # noqa: S101 - the caller has checked
        self._record(layout)
        # Create new shards that were emptied or never created before anything moves to them.
        await self._term.queue.membership.open(layout.shards, self._term.epoch)
        former = sharding.own_shards(layout.former)
        noted = await self._term.queue.resharding.progress()
        if noted.phase is resharding.Phase.ANNOUNCED:
            await self._term.clock.sleep(self.notice_seconds)
        self._moved, self._left = max(noted.moved, self._moved), 0
        for shard in former:
            if await self._term.queue.resharding.shard_state(shard) != "closed":
                self._left += await self._term.queue.resharding.count_definitions(shard)
        for shard in former:
            await self._empty(shard)
        await self._term.services.sets.count_all()  # before the shards with the counts are closed
        for shard in former:
            await self._close(shard)
        ended = await self._term.queue.resharding.end(self._term.epoch, moved=self._moved)
        telemetry.logger.info("partitioning done", shards=ended.shards, moved=self._moved)
        self._record(ended)

    def _record(self, layout: messages.Layout) -> None:
        """Note a layout on the Lease: before anything moves to it, and when it is reached."""
        self._term.services.sets.request()
        self._term.annotate(note_of(layout))

    async def _empty(self, shard: messages.ShardId) -> None:
        """Empty a shard in passes, until one leaves nothing out."""
        if await self._term.queue.resharding.shard_state(shard) == "closed":
            return
        for number in itertools.count():
            moved = left_out = 0
            hold = _HOLD_SECONDS if number >= _PATIENT_PASSES else 0.0
            steps = self._term.queue.mover.move_once(shard, self._term.epoch, hold_seconds=hold)
            began = self._term.clock.monotonic()
            async for step in steps:
                moved, left_out = moved + step.moved, left_out + step.left_out
                self._moved, self._left = self._moved + step.moved, max(0, self._left - step.moved)
                if step.damaged:
                    self._term.services.resync.request()
                if step.moved:
                    await self._report(resharding.Phase.MOVING)
                # Leave half of the time to the workers.
                await self._term.clock.sleep(self._term.clock.monotonic() - began)
                began = self._term.clock.monotonic()
            if not left_out:
                return
            await self._report(resharding.Phase.MOVING, "schedules that a worker holds")
            if not moved:
                await self._term.clock.sleep(_PAUSE_SECONDS)

    async def _close(self, shard: messages.ShardId) -> None:
        """Close a shard once no worker needs it; first move what has appeared meanwhile."""
        if await self._term.queue.resharding.shard_state(shard) == "closed":
            await self._term.queue.resharding.unlink_closed(shard)
            return
        while True:
            await self._empty(shard)
            reason = await self._term.queue.resharding.close(shard, self._term.epoch)
            if not reason:
                return
            await self._report(resharding.Phase.CLOSING, _WORDS[reason])
            await self._term.clock.sleep(_PAUSE_SECONDS)

    async def _report(self, phase: resharding.Phase, waiting: str = "") -> None:
        await self._term.queue.resharding.record_progress(
            self._term.epoch, phase=phase, moved=self._moved, left=self._left, waiting=waiting
        )


# -- the note on the Lease -----------------------------------------------------------------------
#
# An emptied Redis has lost its layout, and the settings may have changed by then. The note lets a
# rebuild use the former layout, so that workers, metrics and backups of the old shards still fit.
# An invalid note is ignored.

#: The annotation of the Lease with the layout of the index.
ANNOTATION = f"{schedules.GROUP}/queue-layout"


def note_of(layout: Layout) -> dict[str, str]:
    """Return the note: the layout as JSON, during a move with the former one."""
    return {ANNOTATION: msgspec.json.encode(layout).decode()}


def layout_of(notes: Mapping[str, str]) -> Layout | None:
    """Return the noted layout; None = there is no note."""
    try:
        found = msgspec.json.decode(notes.get(ANNOTATION, ""), type=Layout)
    except msgspec.DecodeError:
        return None
    shards = [part.shards for part in (found, found.former) if part is not None]
    return found if found.number > 0 and all(map(sharding.is_possible, shards)) else None
