"""Actions by content: what a definition's target digest stands for.

A digest names its content for ever, so an entry is never stale; the least recently used ones go.
Reading checks that the blob was written by an operator that holds our key, for this namespace.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import msgspec

from duepoint import errors
from duepoint.delayqueue import messages
from duepoint.delayqueue.definitions import seal
from duepoint.delayqueue.port import Queue
from duepoint.schedules import actions

#: Entries kept; an action of a usual template is a few kilobytes.
CAPACITY = 4096


@dataclass(frozen=True, slots=True)
class ActionUnreadable:
    """The blob is missing, forged or of an unknown form; the message says which."""

    message: str


class ActionCache:
    """Reads each action once."""

    def __init__(self, queue: Queue, *, capacity: int = CAPACITY) -> None:
        self._queue = queue
        self._capacity = capacity
        self._entries: OrderedDict[tuple[str, str], actions.Action | ActionUnreadable] = (
            OrderedDict()
        )

    def known(self, namespace: str, digest: str) -> actions.Action | ActionUnreadable:
        """An action that was loaded before."""
        found = self._entries.get((namespace, digest))
        return ActionUnreadable("the target was not read in time") if found is None else found

    def is_at_hand(self, namespace: str, digest: str) -> bool:
        """Whether a load would find it known; if so, it counts as used just now."""
        key = (namespace, digest)
        found = self._entries.get(key)
        if found is None or isinstance(found, ActionUnreadable):
            return False
        self._entries.move_to_end(key)
        return True

    async def load(self, shard: messages.ShardId, namespace: str, digest: str) -> None:
        """Read it unless it is known; trouble is remembered only until the next load."""
        if self.is_at_hand(namespace, digest):
            return
        key = (namespace, digest)
        self._entries[key] = await self._read(shard, namespace, digest)
        self._entries.move_to_end(key)
        while len(self._entries) > self._capacity:
            self._entries.popitem(last=False)

    async def _read(
        self, shard: messages.ShardId, namespace: str, digest: str
    ) -> actions.Action | ActionUnreadable:
        try:
            return actions.decode(await self._queue.blob(namespace, digest, shard))
        except seal.BlobMissing:
            return ActionUnreadable("the target is not in the queue; the operator writes it again")
        except seal.BlobForged:
            return ActionUnreadable(
                "the stored target is not sealed with this worker's blob key; give the operator and"
                " all workers the same one and restart them, or find out who else writes to Redis"
            )
        except msgspec.DecodeError:
            return ActionUnreadable("the stored target cannot be read by this version")
        except (errors.TryLater, errors.WorldChanged) as trouble:
            return ActionUnreadable(str(trouble))
