"""Fixtures every test may ask for; each comes from the module that describes it."""

from __future__ import annotations

import gc
import os
import signal

import pytest
import structlog

from tests.support import loops
from tests.support.controlplane import control_plane, kube_namespace
from tests.support.rediscluster import own_cluster, shared_cluster, shared_clusters
from tests.support.redisserver import key_prefix, own_server, redis_server, shared_servers, valkey

__all__ = [
    "control_plane",
    "key_prefix",
    "kube_namespace",
    "own_cluster",
    "own_server",
    "redis_server",
    "shared_cluster",
    "shared_clusters",
    "shared_servers",
    "valkey",
]

loops.end_connections_with_their_loop()

# A shell starts what is to run in the background with Ctrl-C ignored, and so would be the processes
# that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A shell that points `duepoint` at a development cluster is no part of any test.
for name in [name for name in os.environ if name.startswith("DUEPOINT_REDIS_")]:
    del os.environ[name]

# The collector walks thousands of collected tests again and again, a tenth of what the unit tests
# cost: it is asked more rarely, and no more after what is there for good.
gc.set_threshold(50_000, 20, 50)


def pytest_collection_finish(session: pytest.Session) -> None:
    _check_groups(session)
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """What tests left is looked through once; pytest, which does it five times, finds nothing."""
    gc.collect()
    gc.freeze()


def _check_groups(session: pytest.Session) -> None:
    """Tests of one group must run in one process: what they set up is there once in the cluster.

    pytest-xdist knows groups by what it appends to the ids of tests, and a version of pytest that
    it does not fit drops that silently.
    """
    if not getattr(session.config.option, "loadgroup", False):
        return
    for item in session.items:
        if item.get_closest_marker("xdist_group") and "@" not in item.nodeid:
            raise pytest.UsageError(f"{item.nodeid}: pytest-xdist ignores its group")


# A traceback with colours and every frame's variables takes 160 ms; the plain one says as much.
structlog.configure(
    processors=[
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
    ]
)
