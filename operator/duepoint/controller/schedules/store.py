"""What a term knows of each Schedule, and the queue of those to be reconciled.

A list, the watch and other services show states of objects, in any order and as often as they like;
here is decided of each whether it is news. After a deletion a state of the same uid is an old one,
and an older generation never replaces a newer, unless a complete list says so that began after the
deletion, or after the newer one was stored: then the objects were restored. What is known to be
applied costs a dictionary look-up.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import msgspec

from duepoint.controller import observed
from duepoint.controller.observed import Observed
from duepoint.controller.status import published
from duepoint.controller.status.reporter import Reporter
from duepoint.controller.term import TermContext
from duepoint.controller.workqueue import WorkQueue
from duepoint.delayqueue.definitions import codec

#: Uids remembered as deleted; a list that began before a deletion ends long before this many.
_TOMBSTONES = 100_000
#: A change that is no edit is mostly a status that we write: its answer has come by then.
_RESTATED_SECONDS = 1.0
_MOST_WAIT_SECONDS = 60.0


class Task(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A Schedule to be reconciled.

    Attributes:
        seen: the object; without its texts where it is read when it is its turn.
        since_us: when this generation was first seen.
        went_back: a complete list shows that the objects were restored to this state.
        replaces: with that, the fingerprint of what the queue held before the list began.
    """

    seen: Observed
    since_us: int
    went_back: bool = False
    replaces: bytes = b""


class Store:
    """The service; one for each term of a leader.

    Args:
        fingerprint: of what a definition of an object would be made from.

    Attributes:
        tasks: by uid.
    """

    def __init__(
        self, term: TermContext, *, fingerprint: Callable[[Observed], bytes], reporter: Reporter
    ) -> None:
        self._fingerprint = fingerprint
        self._reporter = reporter
        self._clock = term.clock
        self.tasks: WorkQueue[Task] = WorkQueue(
            term.clock,
            "schedule not applied",
            lane=lambda task: task.seen.namespace,
            most_seconds=_MOST_WAIT_SECONDS,
        )
        self._applied: dict[str, int] = {}
        self._deleted: OrderedDict[str, None] = OrderedDict()
        #: Applied or deleted since the newest list began, which may show an older state of these.
        self._since_list: set[str] = set()

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
        elif self._applied.get(uid, -1) < change.generation:
            self._put(change)
        elif self._reporter.states.version(uid) < change.version:
            self._put(change, after=_RESTATED_SECONDS)

    def offer(self, seen: Observed, *, went_back: bool = False, replaces: bytes = b"") -> None:
        """This state of an object was read."""
        if seen.uid in self._deleted:
            return
        if seen.deleted:
            self.bury(seen)
            return
        self._reporter.adopt(seen)
        if self._applied.get(seen.uid, -1) < seen.generation:
            self._put(seen, went_back=went_back, replaces=replaces)

    def _put(
        self, seen: Observed, *, went_back: bool = False, replaces: bytes = b"", after: float = 0.0
    ) -> None:
        """Have it reconciled, unless a newer state waits already; a large one is read then."""
        waiting = self.tasks.newest(seen.uid)
        if waiting is not None and not went_back and waiting.seen.generation >= seen.generation:
            return
        if seen.size >= observed.LARGE_BYTES:
            seen = seen.without_texts()
        now_us = self._clock.now_us()
        task = Task(seen=seen, since_us=now_us, went_back=went_back, replaces=replaces)
        self.tasks.put(seen.uid, task, after=after)

    def begin_list(self) -> None:
        """A complete, consistent list of all objects begins: it shows all that is known by now."""
        self._since_list.clear()

    def offer_known(self, seen: Observed, known: codec.StoredIdentity | None) -> None:
        """As ``offer`` of such a list, with what the queue held before it began.

        What is in order needs no look any more. What the list shows of an older state than the
        queue held, or than was applied, or of a uid that was deleted before it began, was restored.

        Args:
            seen: the object.
            known: what the queue held of it; None = nothing.
        """
        uid, is_news = seen.uid, seen.uid in self._since_list
        came_back = not seen.deleted and uid in self._deleted and not is_news
        if came_back:
            del self._deleted[uid]
        applied = self._applied.get(uid, -1)
        is_behind = not is_news and applied > seen.generation
        if known is not None:
            is_behind = known.generation > seen.generation
        went_back = is_behind and not seen.deleted and uid not in self._deleted
        if known is None or known.generation < seen.generation:
            # Armed since the definitions were read, or lost by a server that went back: looking
            # again tells. A list that is older than what was applied says nothing.
            if went_back or applied == seen.generation:
                self._applied.pop(uid, None)
        elif went_back:
            self._applied.pop(uid, None)
        elif known.generation == seen.generation and not seen.deleted:
            self._note_stored(seen, known)
        self.offer(
            seen,
            went_back=went_back or came_back,
            replaces=known.fingerprint if known is not None and went_back else b"",
        )

    def _note_stored(self, seen: Observed, known: codec.StoredIdentity) -> None:
        """The queue holds this generation: in order, if its content is the same."""
        if known.fingerprint != self._fingerprint(seen):
            if self._applied.get(seen.uid) == seen.generation:
                del self._applied[seen.uid]
        elif published.has_accepted(seen.status, seen.generation):
            self._applied[seen.uid] = max(self._applied.get(seen.uid, -1), seen.generation)

    def look_again(self, namespace: str, name: str, uid: str, generation: int) -> None:
        """What was found of this generation after it was armed may be different now."""
        if uid not in self._deleted and self._applied.get(uid, -1) <= generation:
            self._applied.pop(uid, None)
            self._put(Observed(namespace=namespace, name=name, uid=uid, generation=generation))

    def hurry(self, uid: str) -> None:
        """Look now, where a look is waited for."""
        if (waiting := self.tasks.newest(uid)) is not None:
            self.tasks.put(uid, waiting)

    def bury(self, seen: Observed) -> None:
        """The object is gone: what the queue holds of it is to be removed.

        It may have been removed before, by a deletion that a server which went back has lost.
        """
        self._deleted[seen.uid] = None
        self._since_list.add(seen.uid)
        if len(self._deleted) > _TOMBSTONES:
            self._deleted.popitem(last=False)
        self._applied.pop(seen.uid, None)
        self.tasks.put(seen.uid, Task(seen=seen, since_us=self._clock.now_us()))

    # -- what the reconciler asks and reports ------------------------------------------------------

    def is_deleted(self, uid: str) -> bool:
        """Whether the object is known to be gone."""
        return uid in self._deleted

    def is_known(self, seen: Observed) -> bool:
        """Whether this generation was applied, and this version or a newer one was read."""
        return self.has_applied(seen) and self._reporter.states.version(seen.uid) >= seen.version

    def may_store(self, seen: Observed) -> bool:
        """Whether the object exists, and no newer generation of it was applied in this term."""
        is_deleted = seen.deleted or seen.uid in self._deleted
        return not is_deleted and self._applied.get(seen.uid, -1) <= seen.generation

    def has_applied(self, seen: Observed) -> bool:
        """Whether this generation, or a newer one, was applied in this term."""
        return self._applied.get(seen.uid, -1) >= seen.generation

    def record_applied(self, seen: Observed) -> None:
        """This generation was applied: it is accepted or refused."""
        self._applied[seen.uid] = max(self._applied.get(seen.uid, -1), seen.generation)
        self._since_list.add(seen.uid)
