"""What a ScheduleRun wants otherwise than its Schedule, applied to one attempt.

The payload travels in the occurrence's record, beside a keyed hash of it: whoever can write to
Redis but lacks the installation's key must not be able to say what a Job or a receiver is given.
Which concurrency policy counts is read from the record where policies are judged. Pure.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable

import msgspec

from duepoint.delayqueue.definitions import records
from duepoint.schedules import actions
from duepoint.worker.actioncache import ActionUnreadable
from duepoint.worker.plan import Attempt

#: The keyed hash of some bytes for a namespace: the queue's ``digest``.
Digest = Callable[[str, bytes], str]


def with_payload(
    action: actions.Action, attempt: Attempt, digest: Digest
) -> actions.Action | ActionUnreadable:
    """The action with the payload of the attempt's record, if our operator wrote that."""
    record, known = attempt.record, attempt.definition
    sealed = records.sealed(record, known.uid, attempt.slot_us, record.payload)
    if not hmac.compare_digest(digest(known.namespace, sealed), record.seal):
        return ActionUnreadable("the payload of the ScheduleRun was not written by our operator")
    return msgspec.structs.replace(action, payload=msgspec.Raw(record.payload))
