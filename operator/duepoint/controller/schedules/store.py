"""The store of observed Schedules: decides which versions are new, and queues them to reconcile.

Lists, the watch and other services offer versions of objects, in any order and repeatedly. The
store drops versions of a deleted uid, and an older generation never replaces a newer one. The
exception is a complete list that began after the deletion, or after the newer generation was
stored: then the objects were restored. A version that is already applied costs one dictionary
look-up.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict

import msgspec

from duepoint import errors
from duepoint.controller.observed import Observed
from duepoint.controller.status import published
from duepoint.controller.term import TermContext
from duepoint.controller.workqueue import WorkQueue
from duepoint.delayqueue.definitions import codec
from duepoint.expressions import timezones
from duepoint.schedules import definition as definitions

#: The most deleted uids that are remembered; a list ends long before this many deletions.
_TOMBSTONES = 100_000
_MOST_WAIT_SECONDS = 60.0


class Task(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A Schedule to be reconciled.

    Attributes:
        seen: the object; without spec and status if the reconciler must read it.
        since_us: when this generation was first seen.
        went_back: whether a complete list shows that the objects were restored to this state.
    """

    seen: Observed
    since_us: int
    went_back: bool = False


class Store:
    """The service; one for each term of a leader.

    Attributes:
        tasks: the work queue, by uid.
    """

    def __init__(self, term: TermContext) -> None:
        self._reporter = term.services.reporter
        key = b"fingerprint %d" % term.has_own_streams
        self._key = term.queue.signed_blobs.digest("", key)
        self._clock = term.clock
        self.tasks: WorkQueue[Task] = WorkQueue(
            term.clock,
            "schedule not applied",
            lane=lambda task: task.seen.namespace,
            most_seconds=_MOST_WAIT_SECONDS,
        )
        self._applied: dict[str, int] = {}
        self._deleted: OrderedDict[str, None] = OrderedDict()
        #: Uids applied or deleted since the newest list began: it may show older versions of them.
        self._since_list: set[str] = set()

    def observe(self, change: Observed) -> None:
        """Handle a version of an object that the watch shows, without its spec and status.

        An applied generation costs only two look-ups, because most changes are our own status
        writes. Any other version is queued to be read.
        """
        uid = change.uid
        if uid in self._deleted:
            return
        if change.deleted:
            self.queue_removal(change)
        elif self._applied.get(uid, -1) < change.generation:
            self._put(change)

    def offer(self, seen: Observed, *, went_back: bool = False) -> None:
        """Handle a version of an object that was read."""
        if seen.uid in self._deleted:
            return
        if seen.deleted:
            self.queue_removal(seen)
            return
        self._reporter.adopt(seen)
        if self._applied.get(seen.uid, -1) < seen.generation:
            self._put(seen, went_back=went_back)

    def _put(self, seen: Observed, *, went_back: bool = False) -> None:
        """Queue a version, unless a newer one waits already; a large object is read again later."""
        waiting = self.tasks.newest(seen.uid)
        if waiting is not None and not went_back and waiting.seen.generation >= seen.generation:
            return
        if seen.is_large:
            seen = seen.without_texts()
        now_us = self._clock.now_us()
        task = Task(seen=seen, since_us=now_us, went_back=went_back)
        self.tasks.put(seen.uid, task)

    def begin_list(self) -> None:
        """Record that a complete, consistent list begins: it will show every change seen so far."""
        self._since_list.clear()

    def offer_listed(self, seen: Observed, known: codec.StoredIdentity | None) -> None:
        """Offer an object from a complete list, with the definition stored before that list began.

        An object that matches its definition is not reconciled. An object was restored if the list
        shows an older generation than was stored or applied, or a uid deleted before it began.

        Args:
            seen: the object.
            known: the definition that the queue had; None = none.
        """
        uid, is_news = seen.uid, seen.uid in self._since_list
        came_back = not seen.deleted and uid in self._deleted and not is_news
        if came_back:
            del self._deleted[uid]
        applied = self._applied.get(uid, -1)
        stored = applied if known is None else known.generation
        is_gone = seen.deleted or uid in self._deleted
        went_back = stored > seen.generation and not (is_news or is_gone)
        is_missing = known is None or known.generation < seen.generation
        if went_back or (is_missing and applied == seen.generation):
            # It was armed after we read the definitions, or lost by a server that went back:
            # reconciling it again tells. A list older than the applied version proves nothing.
            self._applied.pop(uid, None)
        elif known is not None and stored == seen.generation and not seen.deleted:
            self._note_stored(seen, known)
        self.offer(seen, went_back=went_back or came_back)

    def _note_stored(self, seen: Observed, known: codec.StoredIdentity) -> None:
        """Record a stored generation as applied, if its fingerprint is the same."""
        if known.fingerprint != self.fingerprint(seen):
            if self._applied.get(seen.uid) == seen.generation:
                del self._applied[seen.uid]
        elif published.read(seen.status).has_accepted(seen.generation):
            self._applied[seen.uid] = max(self._applied.get(seen.uid, -1), seen.generation)

    def reconcile_again(self, namespace: str, name: str, uid: str, generation: int) -> None:
        """Reconcile this generation again: its verdict may have changed after it was armed."""
        if uid not in self._deleted and self._applied.get(uid, -1) <= generation:
            self._applied.pop(uid, None)
            self._put(Observed(namespace=namespace, name=name, uid=uid, generation=generation))

    def queue_removal(self, seen: Observed) -> None:
        """Queue the removal of an object that is gone.

        It may have been removed before: a server that went back has lost that removal.
        """
        self._deleted[seen.uid] = None
        self._since_list.add(seen.uid)
        if len(self._deleted) > _TOMBSTONES:
            self._deleted.popitem(last=False)
        self._applied.pop(seen.uid, None)
        gone = msgspec.structs.replace(seen, deleted=True)  # a list may still have shown it
        self.tasks.put(seen.uid, Task(seen=gone, since_us=self._clock.now_us()))

    # -- the interface for the reconciler ----------------------------------------------------------

    def fingerprint(self, seen: Observed) -> bytes:
        """Return the fingerprint of the inputs that this object's definition is made from."""
        return fingerprint(seen.spec, self._key)

    def is_deleted(self, uid: str) -> bool:
        """Whether the object is known to be gone."""
        return uid in self._deleted

    def may_store(self, seen: Observed) -> bool:
        """Whether the object exists, and no newer generation of it was applied in this term."""
        is_deleted = seen.deleted or seen.uid in self._deleted
        return not is_deleted and self._applied.get(seen.uid, -1) <= seen.generation

    def has_applied(self, seen: Observed) -> bool:
        """Whether this generation, or a newer one, was applied in this term."""
        return self._applied.get(seen.uid, -1) >= seen.generation

    def record_applied(self, seen: Observed) -> None:
        """Record that this generation was applied: it is accepted or refused."""
        self._applied[seen.uid] = max(self._applied.get(seen.uid, -1), seen.generation)
        self._since_list.add(seen.uid)


# -- fingerprints ------------------------------------------------------------------------------

#: Incremented whenever the same spec comes to mean other slots, or another action.
MEANING = 1

_decoder = msgspec.json.Decoder()
_encoder = msgspec.json.Encoder(order="deterministic")


def fingerprint(spec: bytes, key: str) -> bytes:
    """Return a hash, in four bytes, of everything that the definition of a spec is made from.

    An equal generation does not prove that the queue matches the object: with another blob key
    workers cannot read the action, with other zone data the slots differ, and after a restore of
    etcd the same generation, or a lower one, may have another spec. So the inputs are the spec as
    canonical JSON, the installation (``key`` stands for its blob key, and for whether it has
    streams in our Redis), the zone data, and the version of the meaning of specs. If it is equal,
    nothing is done. Different inputs collide once in 4 billion.
    """
    try:
        decoded = _decoder.decode(spec)
        canonical = _encoder.encode(decoded)
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
        decoded, canonical = None, spec  # the parser will report what is wrong with it
    zone = decoded.get("timeZone") if isinstance(decoded, dict) else None
    content = b"%b\n%b\n%b\n%d" % (canonical, _zone_data(zone).encode(), key.encode(), MEANING)
    return hashlib.blake2b(content, digest_size=definitions.FINGERPRINT_LENGTH).digest()


def _zone_data(zone: object) -> str:
    try:
        return timezones.data_of(zone) if zone and isinstance(zone, str) else ""
    except errors.InvalidExpression:
        return ""
