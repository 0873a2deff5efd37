"""From settings to a queue: the one place that knows which of them say how to reach Redis.

The processes and the commands that only look both come here, so that what reaches the server for
one reaches it for the other. Does not connect.
"""

from __future__ import annotations

from duepoint import clock as clocks
from duepoint import settings
from duepoint.delayqueue import delayqueue


def open_queue(
    chosen: settings.Settings, clock: clocks.Clock, blob_key: bytes
) -> delayqueue.DelayQueue:
    """The delay queue of an installation; only the ``redis_*`` settings are looked at."""
    return delayqueue.DelayQueue(
        chosen.redis_url,
        blob_key=blob_key,
        password_file=chosen.redis_password_file,
        clock=clock,
    )
