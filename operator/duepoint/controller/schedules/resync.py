"""The resync: compares all objects with all definitions, at the start, periodically and on demand.

A watch does not show what happened before it began. So each time the watch begins, the resync reads
both sides itself; the watch shows later changes.

It reads definitions first and objects after: a definition was made from an object, so one whose
object is missing from a *later, complete* list is an orphan and is removed. A failed or incomplete
list removes nothing. A list that lacks more than 30 % of the definitions, and more than 100, counts
only if a second complete list a minute later says the same (the cause may be a restored backup, or
a CRD deleted and created again).

The same order proves a restore of etcd: a list that is consistent (its first page has no resource
version) and began after a generation was read from the queue cannot show an older one, unless the
objects went back. A watch cannot prove that.

A Redis server that went back in time has a consistent but older state. Workers detect that, and
hand out no slots of a Schedule that was due by then. The resync stores those Schedules again, as
after a lost index: the chain continues after the watermark, and open slots get new points. A stream
in our own Redis went back together with its slots: there only the queue is right. This needs every
reported outcome; the first comparison of a term comes before those are read, so a second follows.

A definition in a namespace that is no longer watched (the operator was restarted with fewer
``watchNamespaces``) is an orphan, too: no list has its object. If there are many, the user has the
same minute to revert the setting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec

from duepoint import clock as clocks
from duepoint import faults, telemetry
from duepoint.controller import observed
from duepoint.controller.term import TermContext
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages, sharding
from duepoint.delayqueue.definitions import codec
from duepoint.faults import FaultPoint
from duepoint.kube import schedules
from duepoint.schedules import actions
from duepoint.schedules.definition import Definition

SECOND_LOOK_SECONDS = 60.0
_MANY_SHARE = 0.30
_MANY = 100

#: A worker that lost its connection reports its finished slots within this time, so that no slot
#: runs twice.
GRACE_SECONDS = 2.0
_DOUBT_AGAIN_SECONDS = 1.0
#: The longest time between two comparisons.
_EVERY_SECONDS = 600.0
#: The watch begins within a fraction of a second. If it does not, we arm Schedules without it.
_WATCH_SECONDS = 5.0


class Resync:
    """The service; one for each term of a leader.

    Attributes:
        asked: set while another comparison is requested.
        listed: set once every object has been offered, or the first try has failed.
        first_done: set once the first comparison is complete.
    """

    def __init__(self, term: TermContext) -> None:
        self._term = term
        self._store = term.services.store
        self._reconciler = term.services.reconciler
        self.asked = asyncio.Event()
        self.listed = asyncio.Event()
        self.first_done = asyncio.Event()

    def request(self) -> None:
        """Request a comparison: a change may have been missed. One in flight is repeated."""
        self.asked.set()

    async def run(self) -> None:
        """Compare until cancelled."""
        await clocks.wait_for(self.asked, _WATCH_SECONDS, self._term.clock)
        while True:
            self.asked.clear()
            await self._term.until_done("resync", self.compare, "objects cannot be compared")
            self.first_done.set()
            others = self._term.services
            others.sets.request()
            others.index.compared()
            others.runs.request()
            await clocks.wait_for(self.asked, _EVERY_SECONDS, self._term.clock)

    async def compare(self) -> None:
        """Compare all objects with all definitions once; remove orphans.

        Raises ApiError or QueueUnavailable if one side could not be read completely; objects
        offered until then stay valid.
        """
        try:
            await self._settle_doubts()
            definitions = await self._definitions()
            listed = await self._list(definitions)
            await faults.reach(FaultPoint.AFTER_SCHEDULES_LISTED)
        finally:
            self.listed.set()  # even after a failed try, or services would wait for ever
        absent = definitions.keys() - listed
        if len(absent) > max(_MANY, len(definitions) * _MANY_SHARE):
            telemetry.logger.warning(
                "many objects are missing; looking again before anything is removed",
                missing=len(absent),
                definitions=len(definitions),
                seconds=SECOND_LOOK_SECONDS,
            )
            await self._term.clock.sleep(SECOND_LOOK_SECONDS)
            absent -= await self._list(definitions)
        for known in (definitions[uid] for uid in absent):
            self._store.queue_removal(
                observed.Observed(namespace=known.namespace, name=known.name, uid=known.uid)
            )
        telemetry.logger.info(
            "resync done", objects=len(listed), definitions=len(definitions), removed=len(absent)
        )

    # -- a server that went back -----------------------------------------------------------------

    async def _settle_doubts(self) -> None:
        """Remove overdue Schedules from a queue that went back in time, and reconcile them again.

        This comes before the lists, which take seconds where there are many Schedules. A Schedule
        that is not stored again by then is absent from them.
        """
        others, fallbacks = self._term.services, self._term.queue.fallbacks
        if not (doubts := await fallbacks.doubts()):
            return
        if not self.first_done.is_set():
            self.request()  # outcomes are read only after the first comparison
            return
        await others.jobs.listed.wait()
        back_us = max(doubt.back_us for doubt in doubts)
        others.jobs.late.record_lost_claims(back_us)
        # Workers may still report slots that they have finished.
        grace = GRACE_SECONDS - (self._term.clock.now_us() - back_us) / 1e6
        if grace > 0:
            await self._term.clock.sleep(min(grace, GRACE_SECONDS))
        doubts = await fallbacks.doubts()
        await others.outcomes.catch_up()
        for doubt in doubts:
            overdue = [one async for one in fallbacks.overdue(doubt)]
            telemetry.logger.warning(
                "Redis went back in time; overdue Schedules are stored again",
                shard=doubt.shard,
                schedules=len(overdue),
            )
            for one in overdue:
                if not await self._is_own_stream(one, doubt.shard):
                    await self._term.queue.writer.remove(
                        one.id, one.uid, one.namespace, self._term.epoch
                    )
                    self._store.reconcile_again(one.namespace, one.name, one.uid, one.generation)
            if not await fallbacks.end(doubt, self._term.epoch):
                await self._term.clock.sleep(_DOUBT_AGAIN_SECONDS)
                self.request()  # workers found more meanwhile

    async def _is_own_stream(self, known: Definition, shard: messages.ShardId) -> bool:
        """Whether its target is a stream in our own Redis."""
        try:
            blob = await self._term.queue.definitions.blob(known.namespace, known.target, shard)
            target = actions.decode(blob).target
        except (queue_errors.BlobMissing, queue_errors.BlobForged, msgspec.MsgspecError):
            return False  # a worker reports what is wrong with it
        return isinstance(target, actions.StreamAction) and target.connection is None

    async def _definitions(self) -> dict[str, codec.StoredIdentity]:
        """Read the definitions in the queue, by uid."""
        stored: dict[str, codec.StoredIdentity] = {}
        for shard in sharding.all_shards(self._term.queue.layouts.known()):
            async for chunk in self._term.queue.definitions.schedules(shard):
                for known in chunk:
                    stored[known.uid] = known
                await self._term.clock.sleep(0)  # let firing and status writes run between chunks
        return stored

    async def _list(self, definitions: Mapping[str, codec.StoredIdentity]) -> set[str]:
        """Offer every object to the store; return all uids, or raise if the list is incomplete."""
        listed: set[str] = set()
        self._store.begin_list()
        for namespace in self._term.namespaces or (None,):
            pages = self._term.api.list_pages(schedules.collection(namespace), schedules.Schedule)
            async for page in pages:
                shown = [observed.of_object(item) for item in page.items]
                listed.update(seen.uid for seen in shown)
                absent = [seen for seen in shown if seen.uid not in definitions]
                stored = await self._reconciler.store_absent(absent) if absent else frozenset()
                for seen in shown:
                    if seen.uid not in stored:
                        self._store.offer_listed(seen, definitions.get(seen.uid))
                await self._term.clock.sleep(0)  # let firing and status writes run between pages
        return listed
