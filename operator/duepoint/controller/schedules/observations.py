"""Observations of Schedules, turned into tasks for the reconcile queue.

A list, the watch and other services offer observations, in any order and as often as they like;
here is decided of each whether it is news. After a deletion an observation of the same uid is an
old one, and an older generation never replaces a newer, unless a complete list says so that began
after the deletion, or after the newer one was stored: then the objects were restored. What is known
to be applied costs a dictionary look-up.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict

import msgspec

from duepoint.controller import observed
from duepoint.controller.observed import Observed
from duepoint.controller.schedules import largeobjects
from duepoint.controller.schedules.reconcile import Reconcile
from duepoint.controller.status import published
from duepoint.controller.status.reporter import Reporter
from duepoint.controller.statusconditions import Report
from duepoint.controller.term import TermContext
from duepoint.controller.workqueue import WorkQueue
from duepoint.delayqueue.definitions import codec

#: Uids remembered as deleted; a list that began before a deletion ends long before this many.
_TOMBSTONES = 100_000
#: A change that is no edit is mostly a status that we write: its answer has come by then.
_RESTATED_SECONDS = 1.0


class Task(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One look at a Schedule.

    Attributes:
        is_unread: its text is not kept: it is read when it is its turn.
        size: bytes of its texts when they were last read; 0 where they were not.
        is_absent: the queue was found to hold nothing of the uid, or is expected to.
        is_alone: it was looked at together with others, and needs a look of its own.
        went_back: a complete list shows that the objects were restored to this state.
        replaces: with that, the fingerprint of what the queue held before the list began.
    """

    seen: Observed
    since_us: int
    is_unread: bool = False
    size: int = 0
    is_absent: bool = False
    is_alone: bool = False
    went_back: bool = False
    replaces: bytes = b""

    @property
    def is_large(self) -> bool:
        """It is known to be large."""
        return self.size >= observed.LARGE_BYTES


class Observations:
    """What this term knows of each Schedule, and the tasks that follow.

    Attributes:
        tasks: by uid, for the reconcile queue.
        large: the places and the bytes of large objects.
        deletions: how many were seen so far: a list that begins now shows none of them.
    """

    def __init__(self, term: TermContext, *, reconcile: Reconcile, reporter: Reporter) -> None:
        self._reconcile = reconcile
        self._reporter = reporter
        self._clock = term.clock
        self.tasks: WorkQueue[Task] = WorkQueue(
            term.clock, "schedule not applied", fits=self.is_new
        )
        self.large = largeobjects.LargeObjects()
        self._applied: dict[str, int] = {}
        self._deleted: OrderedDict[str, int] = OrderedDict()
        self.deletions = 0
        #: Generations below the applied one, shown by the last complete list.
        self._behind: dict[str, int] = {}
        #: Changes that are no edits, by uid; most of them are status writes of our own.
        self._restated: dict[str, Observed] = {}
        self._any_restated = asyncio.Event()

    def observe(self, change: Observed) -> None:
        """The watch shows this version of an object, without its texts.

        A version or a generation that is known costs two look-ups and no more; so a watch may begin
        with everything that there is. Any other is read when it is its turn.
        """
        uid = change.uid
        if uid in self._deleted:
            return
        if change.deleted:
            self.bury(change)
            return
        waiting = self.tasks.newest(uid)
        if waiting is not None and waiting.seen.generation >= change.generation:
            return
        if self._applied.get(uid, -1) < change.generation:
            now_us = self._clock.now_us()
            self.tasks.put(uid, Task(seen=change, since_us=now_us, is_unread=True))
        elif self._reporter.states.version(uid) < change.version:
            self._restated[uid] = change
            self._any_restated.set()

    async def run(self) -> None:
        """Until cancelled, have read what others wrote, once our own writes have been answered."""
        while True:
            await self._any_restated.wait()
            await self._clock.sleep(_RESTATED_SECONDS)
            self._any_restated.clear()
            changes, self._restated = self._restated, {}
            for uid, change in changes.items():
                is_known = self._reporter.states.version(uid) >= change.version
                if not (is_known or uid in self._deleted or self.tasks.newest(uid) is not None):
                    now_us = self._clock.now_us()
                    self.tasks.put(uid, Task(seen=change, since_us=now_us, is_unread=True))

    def offer(self, seen: Observed) -> None:
        """This state of an object was seen.

        One without an answer in its status is taken for new: where it is not, the queue refuses.
        """
        self._offer(seen, is_absent=is_unanswered(seen))

    def _offer(
        self,
        seen: Observed,
        *,
        is_absent: bool,
        went_back: bool = False,
        replaces: bytes = b"",
    ) -> None:
        if seen.uid in self._deleted:
            return
        if seen.deleted:
            self.bury(seen)
            return
        self._reporter.adopt(seen)
        if self._applied.get(seen.uid, -1) >= seen.generation:
            return
        waiting = self.tasks.newest(seen.uid)
        if went_back or waiting is None or waiting.seen.generation < seen.generation:
            task = Task(
                seen=seen,
                since_us=self._clock.now_us(),
                is_absent=is_absent,
                went_back=went_back,
                replaces=replaces,
            )
            self.tasks.put(seen.uid, self._as_it_waits(task))

    def _as_it_waits(self, task: Task) -> Task:
        """With its text where that is small, or few large ones wait."""
        seen = task.seen
        if self.large.may_wait(seen.uid, seen.size):
            return msgspec.structs.replace(task, size=seen.size)
        return msgspec.structs.replace(
            task, seen=seen.without_texts(), is_unread=True, size=seen.size
        )

    def offer_known(
        self, seen: Observed, known: codec.StoredIdentity | None, *, deletions: int = 0
    ) -> None:
        """As ``offer`` of a complete, consistent list, with what the queue held before it began.

        What is in order needs no look any more. What the list shows of an older state than the
        queue held before it began, or of a uid that was deleted before it began, was restored.

        Args:
            seen: the object.
            known: what the queue held of it; None = nothing.
            deletions: ``self.deletions`` before the list began.
        """
        came_back = not seen.deleted and self._deleted.get(seen.uid, deletions) < deletions
        if came_back:
            del self._deleted[seen.uid]
        went_back = known is None and self._is_behind_again(seen)
        if known is None or known.generation < seen.generation:
            # Armed since the definitions were read, or lost by a server that went back: looking
            # again tells. A list that is older than what was applied says nothing.
            if went_back or self._applied.get(seen.uid) == seen.generation:
                self._applied.pop(seen.uid, None)
        elif known.generation > seen.generation:
            went_back = not seen.deleted and seen.uid not in self._deleted
            if went_back:
                self._applied.pop(seen.uid, None)
        elif known.generation == seen.generation and not seen.deleted:
            self._note_stored(seen, known)
        self._offer(
            seen,
            is_absent=known is None,
            went_back=went_back or came_back,
            replaces=known.fingerprint if known is not None and went_back else b"",
        )

    def _note_stored(self, seen: Observed, known: codec.StoredIdentity) -> None:
        """The queue holds this generation: in order, if its content is the same."""
        if known.fingerprint != self._reconcile.fingerprint(seen):
            if self._applied.get(seen.uid) == seen.generation:
                del self._applied[seen.uid]
        elif published.has_accepted(seen.status, seen.generation):
            self._applied[seen.uid] = max(self._applied.get(seen.uid, -1), seen.generation)

    def _is_behind_again(self, seen: Observed) -> bool:
        """Whether a second list shows the same generation, below one that was applied."""
        behind = self._behind.pop(seen.uid, None)
        if self._applied.get(seen.uid, -1) <= seen.generation:
            return False
        if behind != seen.generation:
            self._behind[seen.uid] = seen.generation
        return behind == seen.generation

    def offer_absent(self, namespace: str, name: str, uid: str) -> None:
        """A complete list shows that the object is gone, and the queue has it.

        It may have been removed before, by a deletion that a server which went back has lost.
        """
        self.bury(observed.of_name(namespace, name, uid, deleted=True))

    def refuse(self, namespace: str, name: str, uid: str, refusal: Report) -> None:
        """This generation is refused after it was armed: it leaves the queue until an edit."""
        generation = refusal.generation
        self._reconcile.refuse(uid, refusal)
        waiting = self.tasks.newest(uid)
        is_old = waiting is not None and waiting.seen.generation >= generation
        if is_old or uid in self._deleted or self._applied.get(uid, -1) > generation:
            return
        self._applied.pop(uid, None)
        seen = observed.of_name(namespace, name, uid, generation=generation)
        self.tasks.put(uid, Task(seen=seen, since_us=self._clock.now_us()))

    def prove(self, uid: str, generation: int) -> None:
        """A Job of this generation was created: no dry run needs to say that it can be."""
        self._reconcile.prove(uid, generation)
        waiting = self.tasks.newest(uid)
        if waiting is not None:
            self.tasks.put(uid, waiting)

    # -- what the reconcile queue asks and reports -------------------------------------------------

    def bury(self, seen: Observed) -> None:
        """The object is gone: what the queue holds of it is to be removed."""
        self._deleted[seen.uid] = self.deletions
        self.deletions += 1
        if len(self._deleted) > _TOMBSTONES:
            self._deleted.popitem(last=False)
        self._applied.pop(seen.uid, None)
        self.large.forget(seen.uid)
        self.tasks.put(seen.uid, Task(seen=seen, since_us=self._clock.now_us()))

    def is_new(self, task: Task) -> bool:
        """The queue holds nothing of it, it is thought, and this term has armed nothing since."""
        if task.is_alone or task.went_back or task.is_large:
            return False  # hundreds of large ones would be decoded at once
        is_new = task.is_absent or (task.is_unread and task.seen.generation == 1)
        return is_new and not task.seen.deleted and task.seen.uid not in self._applied

    def look_alone(self, task: Task) -> None:
        """Right after this, unless a newer state has been seen meanwhile."""
        if self.tasks.newest(task.seen.uid) is None:
            task = msgspec.structs.replace(task, is_alone=True)
            self.tasks.put(task.seen.uid, self._as_it_waits(task))

    def is_deleted(self, uid: str) -> bool:
        """Whether the object is known to be gone."""
        return uid in self._deleted

    def has_applied(self, seen: Observed) -> bool:
        """Whether this generation, or a newer one, was applied in this term."""
        return self._applied.get(seen.uid, -1) >= seen.generation

    def has_applied_any(self, uid: str) -> bool:
        """Whether any generation was applied in this term."""
        return uid in self._applied

    def record_applied(self, seen: Observed) -> None:
        """This generation was applied: it is accepted or refused."""
        self._applied[seen.uid] = max(self._applied.get(seen.uid, -1), seen.generation)


def is_unanswered(seen: Observed) -> bool:
    """Whether it is as it was made: nothing of it can be in the queue."""
    return seen.generation == 1 and published.observed_generation(seen.status) < 1
