"""From settings to a queue: the one place that knows which of them say how to reach Redis.

The processes and the commands that only look both come here, so that what reaches the server for
one reaches it for the other. Does not connect.
"""

from __future__ import annotations

from duepoint import clock as clocks
from duepoint import settings
from duepoint.delayqueue import delayqueue, keys
from duepoint.delayqueue import quotas as quotas_
from duepoint.delayqueue.wire import connecting


def open_queue(
    chosen: settings.Settings,
    clock: clocks.Clock,
    blob_key: bytes,
    *,
    buckets: int = keys.BUCKETS,
    quotas: quotas_.Quotas = quotas_.USUAL,
) -> delayqueue.DelayQueue:
    """The delay queue of an installation; only the ``redis_*`` settings are looked at."""
    return delayqueue.connect(
        chosen.redis_url,
        blob_key=blob_key,
        prefix=keys.prefix_of(chosen.redis_prefix),
        server=server_of(chosen),
        clock=clock,
        buckets=buckets,
        quotas=quotas,
    )


def server_of(chosen: settings.Settings) -> connecting.Server:
    """How to connect, by the ``redis_*`` settings."""
    return connecting.Server(
        url=chosen.redis_url,
        username=chosen.redis_username,
        password_file=chosen.redis_password_file,
        tls=connecting.Tls(
            ca_file=chosen.redis_ca_file,
            cert_file=chosen.redis_cert_file,
            key_file=chosen.redis_key_file,
            server_name=chosen.redis_server_name,
        ),
        sentinel_username=chosen.redis_sentinel_username,
        sentinel_password_file=chosen.redis_sentinel_password_file,
    )
