"""All objects compared with all definitions: at once, on a rhythm, and where a change may be lost.

A watch says nothing of what happened while there was none. So each time the watch begins, this
reads both sides itself; what changes later is in the watch.

Definitions first, objects after: a definition was made from an object, so one whose object is
missing from a *later, complete* list is a ghost. A list that failed or broke off shows nothing and
removes nothing; one that misses more than 30 % of the definitions, and more than 100, is believed
only when a second complete list a minute later says the same (a restored backup, a CRD deleted and
made again).

The same order proves a restore of etcd: a list that is consistent (its first page carries no
resource version) and began after a generation was read from the queue cannot show an older one,
unless the objects went back. A watch cannot prove that.

A server that went back in time holds a true state, but an older one. Workers find that out, and
hand out nothing there of a Schedule that was due by then. What the objects show of those Schedules
is put again as after a loss of the whole index: a chain goes on behind the watermark, and open
slots get their points again. A stream in our own Redis went back together with its slots: there the
queue alone is right. A look at that needs every outcome that was reported; the first comparison of
a term comes before those are read, and is followed by another one.

A definition of a namespace that is not looked after any more (the operator was restarted with
fewer ``watchNamespaces``) is such a ghost, too: no list has its object. Where there are many, an
operator gets the same minute to take the setting back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from duepoint import clock as clocks
from duepoint import faults, telemetry
from duepoint.controller import observed
from duepoint.controller.schedules.reconcile import Reconciler
from duepoint.controller.schedules.store import Store
from duepoint.controller.term import TermContext
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages, sharding
from duepoint.delayqueue.definitions import codec
from duepoint.delayqueue.repair.fallbacks import Doubt
from duepoint.faults import FaultPoint
from duepoint.kube import schedules
from duepoint.schedules import actions
from duepoint.schedules.definition import Definition

SECOND_LOOK_SECONDS = 60.0
_MANY_SHARE = 0.30
_MANY = 100
_NAMESPACES_NAMED = 5

#: A worker that was cut off in the middle tells within this what it had done, and it is not done
#: again.
GRACE_SECONDS = 2.0
_DOUBT_AGAIN_SECONDS = 1.0
#: From one comparison to the next.
_EVERY_SECONDS = 600.0
#: The watch begins within a part of a second. Where it cannot, Schedules are armed all the same.
_WATCH_SECONDS = 5.0


class Resync:
    """The service; one for each term of a leader.

    Attributes:
        asked: set while another comparison is wanted.
        listed: set once every object has been offered, or could not be.
        first_done: set once the first comparison has been complete.
        done: number of complete ones.
    """

    def __init__(self, term: TermContext, *, store: Store, reconciler: Reconciler) -> None:
        self._term = term
        self._store = store
        self._reconciler = reconciler
        self.asked = asyncio.Event()
        self.listed = asyncio.Event()
        self.first_done = asyncio.Event()
        self.done = 0

    def request(self) -> None:
        """Compare, as something may have been missed; once more where a comparison is under way."""
        self.asked.set()

    async def run(self) -> None:
        """Compare until cancelled."""
        await clocks.wait_for(self.asked, _WATCH_SECONDS, self._term.clock)
        while True:
            self.asked.clear()
            await self._term.until_done("resync", self._attempt, "objects cannot be compared")
            self.done += 1
            self.first_done.set()
            others = self._term.services
            others.sets.request()
            others.sweeper.compared()
            others.runs.request()
            await clocks.wait_for(self.asked, _EVERY_SECONDS, self._term.clock)

    async def _attempt(self) -> None:
        try:
            await self.compare()
        finally:
            self.listed.set()  # those who wait for the list learn of a try that failed, too

    async def compare(self) -> None:
        """Compare once.

        Raises ApiError or QueueUnavailable where one side could not be read to its end; what
        was offered until then is right.
        """
        doubts = await self._doubts()
        held = await self._definitions()
        overdue = await self._overdue(doubts)
        listed = await self._list(held, overdue)
        await faults.reach(FaultPoint.AFTER_SCHEDULES_LISTED)
        self.listed.set()
        absent = held.keys() - listed
        self._note_unwatched(held)
        if _is_suspicious(len(absent), len(held)):
            telemetry.logger.warning(
                "many objects are missing; looking again before anything is removed",
                missing=len(absent),
                definitions=len(held),
                seconds=SECOND_LOOK_SECONDS,
            )
            await self._term.clock.sleep(SECOND_LOOK_SECONDS)
            absent -= await self._list(held, {})
        for known in (held[uid] for uid in absent):
            gone = observed.Observed(
                namespace=known.namespace, name=known.name, uid=known.uid, deleted=True
            )
            self._store.bury(gone)
        for doubt in doubts:
            if not await self._term.queue.fallbacks.end(doubt, self._term.epoch):
                await self._term.clock.sleep(_DOUBT_AGAIN_SECONDS)
                self.request()  # more was found meanwhile
        telemetry.logger.info(
            "resync done", objects=len(listed), definitions=len(held), removed=len(absent)
        )

    # -- a server that went back -----------------------------------------------------------------

    async def _doubts(self) -> tuple[Doubt, ...]:
        """The shards in doubt, once workers had the time to tell what they had done."""
        fallbacks = self._term.queue.fallbacks
        if not (doubts := await fallbacks.doubts()):
            return ()
        if not self.first_done.is_set():
            self.request()  # no outcome was read yet
            return ()
        others = self._term.services
        await others.jobs.listed.wait()
        back_us = max(doubt.back_us for doubt in doubts)
        others.jobs.sync.late.record_lost_claims(back_us)
        grace = GRACE_SECONDS - (self._term.clock.now_us() - back_us) / 1e6
        if grace > 0:
            await self._term.clock.sleep(min(grace, GRACE_SECONDS))
        doubts = await fallbacks.doubts()
        await others.outcomes.catch_up()
        return doubts

    async def _overdue(self, doubts: Sequence[Doubt]) -> dict[str, Definition]:
        """Schedules that were due when their servers went back, by uid."""
        found: dict[str, Definition] = {}
        for doubt in doubts:
            known = [one async for one in self._term.queue.fallbacks.overdue(doubt)]
            for one in known:
                if not await self._is_own_stream(one, doubt.shard):
                    found[one.uid] = one
            telemetry.logger.warning(
                "Redis went back in time; what was due is put again",
                shard=doubt.shard,
                schedules=len(known),
            )
        return found

    async def _is_own_stream(self, known: Definition, shard: messages.ShardId) -> bool:
        """Whether its target is a stream on the very servers of the index."""
        try:
            blob = await self._term.queue.definitions.blob(known.namespace, known.target, shard)
            target = actions.decode(blob).target
        except (queue_errors.BlobMissing, queue_errors.BlobForged, msgspec.MsgspecError):
            return False  # a worker says what is wrong with it
        return isinstance(target, actions.StreamAction) and target.connection is None

    def _note_unwatched(self, held: Mapping[str, codec.StoredIdentity]) -> None:
        watched = self._term.namespaces
        others = [
            one.namespace for one in held.values() if watched and one.namespace not in watched
        ]
        if others:
            telemetry.logger.warning(
                "definitions of namespaces that are not watched are removed",
                count=len(others),
                namespaces=sorted(set(others))[:_NAMESPACES_NAMED],
            )

    async def _definitions(self) -> dict[str, codec.StoredIdentity]:
        """What the queue holds, by uid."""
        held: dict[str, codec.StoredIdentity] = {}
        for shard in sharding.all_shards(self._term.queue.layouts.known()):
            async for chunk in self._term.queue.definitions.known(shard):
                for known in chunk:
                    if known.collision:
                        self._reconciler.collisions[known.uid] = known.collision
                    held[known.uid] = known
                await self._term.clock.sleep(0)  # let firing and statuses in between chunks
        return held

    async def _list(
        self,
        held: Mapping[str, codec.StoredIdentity],
        overdue: Mapping[str, Definition],
    ) -> set[str]:
        """Offer every object; the uids of all, complete or an error."""
        listed: set[str] = set()
        self._store.begin_list()
        for namespace in self._term.namespaces or (None,):
            pages = self._term.api.list_pages(schedules.collection(namespace), schedules.Schedule)
            async for page in pages:
                shown = [observed.of_object(item) for item in page.items]
                listed.update(seen.uid for seen in shown)
                for seen in shown:
                    if (known := overdue.get(seen.uid)) is not None:  # it is put again
                        await self._term.queue.writer.remove(
                            known.id, known.uid, known.namespace, self._term.epoch
                        )
                absent = [seen for seen in shown if seen.uid in overdue or seen.uid not in held]
                stored = await self._reconciler.store_absent(absent) if absent else frozenset()
                for seen in shown:
                    if seen.uid not in stored:
                        before = None if seen.uid in overdue else held.get(seen.uid)
                        self._store.offer_known(seen, before)
                await self._term.clock.sleep(0)  # let firing and statuses in between pages
        return listed


def _is_suspicious(absent: int, held: int) -> bool:
    return absent > _MANY and absent > held * _MANY_SHARE
