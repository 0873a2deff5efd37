"""A cache of actions by the digest of their content, which is the target in a definition.

A digest names its content for ever, so an entry is never stale. The cache is bounded by memory,
with a share for each namespace (``shares.BytesCache``). An attempt waits with an ``outline`` and
reads the action when it begins, so waiting attempts stay small, however large their actions are.
Reading verifies that an operator with our key wrote the blob, for this namespace.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Iterable

import msgspec

from duepoint import errors, shares
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages
from duepoint.delayqueue.definitions import records
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.schedules import actions
from duepoint.worker.plan import ActionUnreadable, Attempt, Outline, Outlines

#: Size of the whole cache. An action with a usual template takes some tens of kilobytes.
MOST_BYTES = 48 * 1024 * 1024
#: Most reads at a time: each may take a megabyte while it is unpacked.
_READS = 4


class ActionCache:
    """Reads actions, and keeps them as long as there is room."""

    def __init__(self, queue: DelayQueue, *, most_bytes: int = MOST_BYTES) -> None:
        self._queue = queue
        self._entries: shares.BytesCache[str, actions.Action] = shares.BytesCache(most_bytes)
        self._reads = asyncio.Semaphore(_READS)

    async def outlines(
        self, shard: messages.ShardId, wanted: Iterable[tuple[str, str]]
    ) -> Outlines:
        """Return the outlines of these actions; reads those that are not cached."""
        found: dict[tuple[str, str], Outline] = {}
        missing: list[tuple[str, str]] = []
        for key in wanted:
            cached = self._entries.get(*key)
            if cached is None:
                missing.append(key)
            else:
                found[key] = outline(cached)
        if missing:
            actions_read = await asyncio.gather(*(self.get(shard, *key) for key in missing))
            for key, action in zip(missing, actions_read, strict=True):
                found[key] = action if isinstance(action, ActionUnreadable) else outline(action)
        return found

    async def of(
        self, shard: messages.ShardId, attempt: Attempt
    ) -> actions.Action | ActionUnreadable:
        """Return the action of an attempt, with the payload of its ScheduleRun or member if any.

        A payload has a keyed hash beside it: a user who can write to Redis but lacks the
        installation's key must not be able to choose the payload of a Job or a receiver.
        """
        definition, record = attempt.definition, attempt.record
        action = await self.get(shard, definition.namespace, definition.target)
        payload = record.payload or definition.payload
        if isinstance(action, ActionUnreadable) or not payload:
            return action
        signed = self._queue.signed_blobs
        if record.payload:
            content = records.signed_content(record, definition.uid, attempt.slot_us, payload)
            mac = signed.digest(definition.namespace, content).encode()
            stored_mac = record.signature.encode()
        else:
            mac = signed.payload_mac(definition.namespace, definition.uid, definition.name, payload)
            stored_mac = definition.payload_mac
        if not hmac.compare_digest(mac, stored_mac):
            return ActionUnreadable(
                "the payload of the ScheduleRun was not written by our operator"
                if record.payload
                else "the payload of the member was not stored by our API or operator"
            )
        return msgspec.structs.replace(action, payload=msgspec.Raw(payload))

    async def get(
        self, shard: messages.ShardId, namespace: str, digest: str
    ) -> actions.Action | ActionUnreadable:
        """Return the action; reads it unless it is cached."""
        if (cached := self._entries.get(namespace, digest)) is not None:
            return cached
        async with self._reads:
            if (cached := self._entries.get(namespace, digest)) is not None:
                return cached  # another attempt has read it while this one waited
            return await self._read(shard, namespace, digest)

    async def _read(
        self, shard: messages.ShardId, namespace: str, digest: str
    ) -> actions.Action | ActionUnreadable:
        try:
            blob = await self._queue.definitions.blob(namespace, digest, shard)
            action = actions.decode(blob)
        except queue_errors.BlobMissing:
            message = "the target is not in the queue; the operator stores it again"
        except queue_errors.BlobForged:
            message = (
                "the stored target is not sealed with this worker's blob key; give the operator and"
                " all workers the same one and restart them, or find out who else writes to Redis"
            )
        except msgspec.DecodeError:
            message = "the stored target cannot be read by this version"
        except (errors.TryLater, errors.WorldChanged) as error:
            message = str(error)
        else:
            self._entries.put(namespace, digest, action, actions.memory_bytes(len(blob)))
            return action
        return ActionUnreadable(message)


def outline(action: actions.Action) -> actions.Action:
    """Return the part of an action that decides how an attempt waits and how long it may run."""
    match action.target:
        case actions.JobAction(template=template):
            is_large = len(template) > actions.LARGE_BYTES
            return actions.Action(target=actions.JobAction(is_large=is_large))
        case actions.WebhookAction(timeout_seconds=seconds, retry=retry):
            return actions.Action(
                target=actions.WebhookAction(timeout_seconds=seconds, retry=retry)
            )
        case actions.StreamAction(connection=None):  # the plan already composes its entry
            return action
        case _:
            return actions.Action(target=action.target)
