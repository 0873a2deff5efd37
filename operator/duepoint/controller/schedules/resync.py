"""All objects compared with all definitions.

kopf tells neither when its list is complete nor what was deleted while it was away, so whenever
either may have happened this reads both sides itself. Definitions first, objects after: a
definition was made from an object, so one whose object is missing from a *later, complete* list is
a ghost. Objects go through the reconciler's one ordered path, where what was deleted meanwhile is
not undone. A list that failed or broke off shows nothing and removes nothing; one that misses more
than 30 % of the definitions, and more than 100, is believed only when a second complete list a
minute later says the same (a restored backup, a CRD deleted and made again).

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
from collections.abc import Callable, Mapping, Sequence

from duepoint import telemetry
from duepoint.clock import Clock
from duepoint.controller import sighting
from duepoint.controller.schedules.reconciler import Reconciler
from duepoint.delayqueue import messages, sharding
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.kube import port, schedules

SECOND_LOOK_SECONDS = 60.0
_MANY_SHARE = 0.30
_MANY = 100
_NAMESPACES_NAMED = 5

#: Told (uid, collision) of a definition that does not stand under its first id.
NoteCollision = Callable[[str, int], None]


class Resync:
    """Performs comparisons for the leader of one term.

    Args:
        namespaces: the namespaces that are looked after; empty = all. Definitions of others are
            removed.
        listed: set once every object has been offered.
    """

    def __init__(
        self,
        *,
        api: port.Api,
        queue: DelayQueue,
        reconciler: Reconciler,
        note_collision: NoteCollision,
        namespaces: tuple[str, ...],
        clock: Clock,
        listed: asyncio.Event,
    ) -> None:
        self._api = api
        self._queue = queue
        self._reconciler = reconciler
        self._note_collision = note_collision
        self._namespaces = namespaces
        self._clock = clock
        self._listed = listed

    async def run(self) -> None:
        """Compare once.

        Raises ApiError or QueueUnavailable where one side could not be read to its end; whatever
        was offered until then is right.
        """
        unwatched: list[messages.Known] = []
        held = await self._definitions(unwatched)
        listed = await self._list(held, self._reconciler.deletions())
        self._listed.set()
        absent = held.keys() - listed
        if _is_suspicious(len(absent), len(held)):
            absent = await self._absent_twice(absent, len(held))
        for uid in absent:
            self._reconciler.offer_absent(held[uid].namespace, held[uid].name, uid)
        if unwatched:
            await self._remove_unwatched(unwatched, len(held) + len(unwatched))
        telemetry.logger.info(
            "resync done", objects=len(listed), definitions=len(held), removed=len(absent)
        )

    async def _absent_twice(self, absent: set[str], held: int) -> set[str]:
        telemetry.logger.warning(
            "many objects are missing; looking again before anything is removed",
            missing=len(absent),
            definitions=held,
            seconds=SECOND_LOOK_SECONDS,
        )
        await self._clock.sleep(SECOND_LOOK_SECONDS)
        return absent - await self._list({}, 0)

    async def _remove_unwatched(self, unwatched: Sequence[messages.Known], held: int) -> None:
        is_suspicious = _is_suspicious(len(unwatched), held)
        telemetry.logger.warning(
            "definitions of namespaces that are not watched are removed",
            count=len(unwatched),
            namespaces=sorted({known.namespace for known in unwatched})[:_NAMESPACES_NAMED],
            seconds=SECOND_LOOK_SECONDS if is_suspicious else 0,
        )
        if is_suspicious:
            await self._clock.sleep(SECOND_LOOK_SECONDS)
        for known in unwatched:
            if known.collision:
                self._note_collision(known.uid, known.collision)
            self._reconciler.offer_absent(known.namespace, known.name, known.uid)
        telemetry.unwatched_removed_total.inc(len(unwatched))

    async def _definitions(self, unwatched: list[messages.Known]) -> dict[str, messages.Known]:
        """By uid; those of other namespaces are put beside."""
        held: dict[str, messages.Known] = {}
        for shard in sharding.all_shards(self._queue.layouts.known()):
            async for chunk in self._queue.definitions.known(shard):
                for known in chunk:
                    if self._namespaces and known.namespace not in self._namespaces:
                        unwatched.append(known)
                        continue
                    held[known.uid] = known
                    if known.collision:
                        self._note_collision(known.uid, known.collision)
                await self._clock.sleep(0)  # let firing and statuses in between chunks
        return held

    async def _list(self, held: Mapping[str, messages.Known], deletions: int) -> set[str]:
        """Offer every object; the uids of all, complete or an error."""
        listed: set[str] = set()
        for namespace in self._namespaces or (None,):
            pages = self._api.list_pages(schedules.collection(namespace), schedules.Schedule)
            async for page in pages:
                for item in page.items:
                    seen = sighting.of_object(item)
                    listed.add(seen.uid)
                    known = held.get(seen.uid)
                    self._reconciler.offer_known(seen, known, deletions=deletions)
                await self._clock.sleep(0)  # let firing and statuses in between pages
        return listed


def _is_suspicious(absent: int, held: int) -> bool:
    return absent > _MANY and absent > held * _MANY_SHARE
