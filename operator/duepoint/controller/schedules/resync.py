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

A definition of a namespace that is not looked after any more (the operator was restarted with
fewer ``watchNamespaces``) is a ghost without any list: the index is of this installation alone, and
nothing would ever edit, delete or report it again. Where there are many, an operator gets the same
minute to take the setting back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from duepoint import clock as clocks
from duepoint import errors, faults, services, telemetry
from duepoint.controller import observed
from duepoint.controller.schedules.reconcile import Reconciler
from duepoint.controller.schedules.store import Store
from duepoint.controller.term import TermContext
from duepoint.delayqueue import sharding
from duepoint.delayqueue.definitions import codec
from duepoint.faults import FaultPoint
from duepoint.kube import errors as kube_errors
from duepoint.kube import schedules

SECOND_LOOK_SECONDS = 60.0
_MANY_SHARE = 0.30
_MANY = 100
_NAMESPACES_NAMED = 5

#: From one comparison to the next.
_EVERY_SECONDS = 600.0
#: The watch begins within a part of a second. Where it cannot, Schedules are armed all the same.
_WATCH_SECONDS = 5.0


class Resync:
    """The service; one for each term of a leader.

    Attributes:
        listed: set once every object has been offered, or could not be.
        first_done: set once the first comparison has been complete.
        done: number of complete ones.
    """

    def __init__(self, term: TermContext, *, store: Store, reconciler: Reconciler) -> None:
        self._term = term
        self._store = store
        self._reconciler = reconciler
        self._asked = asyncio.Event()
        self.listed = asyncio.Event()
        self.first_done = asyncio.Event()
        self.done = 0

    def request(self) -> None:
        """Compare, as something may have been missed; once more where a comparison is under way."""
        self._asked.set()

    async def run(self) -> None:
        """Compare until cancelled."""
        await clocks.wait_for(self._asked, _WATCH_SECONDS, self._term.clock)
        while True:
            self._asked.clear()
            await self._until_complete()
            await clocks.wait_for(self._asked, _EVERY_SECONDS, self._term.clock)

    async def _until_complete(self) -> None:
        # Not a key of a work queue: those who wait for the list learn of each try that failed.
        pauses = services.backoff(first_seconds=0.5, most_seconds=15.0)
        while True:
            try:
                await self.compare()
            except (errors.TryLater, kube_errors.ApiError) as trouble:
                self.listed.set()
                if self._term.health.unwell("resync", str(trouble)):
                    telemetry.logger.warning("objects cannot be compared", error=str(trouble))
                await self._term.clock.sleep(next(pauses))
                continue
            self._term.health.well("resync")
            self.done += 1
            self.first_done.set()
            others = self._term.services
            others.sets.request()
            others.sweeper.compared()
            others.runs.request()
            return

    async def compare(self) -> None:
        """Compare once.

        Raises ApiError or QueueUnavailable where one side could not be read to its end; what
        was offered until then is right.
        """
        unwatched: list[codec.StoredIdentity] = []
        held = await self._definitions(unwatched)
        listed = await self._list(held, self._store.deletions)
        await faults.reach(FaultPoint.AFTER_SCHEDULES_LISTED)
        self.listed.set()
        absent = held.keys() - listed
        if _is_suspicious(len(absent), len(held)):
            telemetry.logger.warning(
                "many objects are missing; looking again before anything is removed",
                missing=len(absent),
                definitions=len(held),
                seconds=SECOND_LOOK_SECONDS,
            )
            await self._term.clock.sleep(SECOND_LOOK_SECONDS)
            absent -= await self._list(held, self._store.deletions)
        for uid in absent:
            self._remove(held[uid])
        if unwatched:
            await self._remove_unwatched(unwatched, len(held) + len(unwatched))
        telemetry.logger.info(
            "resync done", objects=len(listed), definitions=len(held), removed=len(absent)
        )

    async def _remove_unwatched(self, unwatched: Sequence[codec.StoredIdentity], held: int) -> None:
        is_suspicious = _is_suspicious(len(unwatched), held)
        telemetry.logger.warning(
            "definitions of namespaces that are not watched are removed",
            count=len(unwatched),
            namespaces=sorted({known.namespace for known in unwatched})[:_NAMESPACES_NAMED],
            seconds=SECOND_LOOK_SECONDS if is_suspicious else 0,
        )
        if is_suspicious:
            await self._term.clock.sleep(SECOND_LOOK_SECONDS)
        for known in unwatched:
            self._remove(known)

    def _remove(self, known: codec.StoredIdentity) -> None:
        """The queue has a Schedule that has no object."""
        self._store.bury(observed.of_name(known.namespace, known.name, known.uid, deleted=True))

    async def _definitions(
        self, unwatched: list[codec.StoredIdentity]
    ) -> dict[str, codec.StoredIdentity]:
        """By uid; those of other namespaces are put beside."""
        held: dict[str, codec.StoredIdentity] = {}
        for shard in sharding.all_shards(self._term.queue.layouts.known()):
            async for chunk in self._term.queue.definitions.known(shard):
                for known in chunk:
                    if known.collision:
                        self._reconciler.collisions[known.uid] = known.collision
                    if self._term.namespaces and known.namespace not in self._term.namespaces:
                        unwatched.append(known)
                    else:
                        held[known.uid] = known
                await self._term.clock.sleep(0)  # let firing and statuses in between chunks
        return held

    async def _list(self, held: Mapping[str, codec.StoredIdentity], deletions: int) -> set[str]:
        """Offer every object; the uids of all, complete or an error."""
        listed: set[str] = set()
        for namespace in self._term.namespaces or (None,):
            pages = self._term.api.list_pages(schedules.collection(namespace), schedules.Schedule)
            async for page in pages:
                shown = [observed.of_object(item) for item in page.items]
                listed.update(seen.uid for seen in shown)
                absent = [seen for seen in shown if seen.uid not in held]
                stored = await self._reconciler.store_absent(absent) if absent else frozenset()
                for seen in shown:
                    if seen.uid not in stored:
                        self._store.offer_known(seen, held.get(seen.uid), deletions=deletions)
                await self._term.clock.sleep(0)  # let firing and statuses in between pages
        return listed


def _is_suspicious(absent: int, held: int) -> bool:
    return absent > _MANY and absent > held * _MANY_SHARE
