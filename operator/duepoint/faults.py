"""Fault points: named places between two effects, where tests stop, delay or fail a process.

A crash matters when one effect has happened and the next has not: a Job exists but its slot is not
settled, or a definition is stored but no status says so. Each of these places is a ``FaultPoint``,
and code that passes it awaits ``reach``. Without a hook, as always in production, that returns at
once.

No setting, variable or argument of Duepoint installs a hook. Only Python code in the process can,
and no code of the product does. Tests install theirs (``tests.support.faultplan``), also in a
separate process (``tests.support.faultyprocess``). Pure.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable


class FaultPoint(enum.StrEnum):
    """Where a fault may be injected: ``BEFORE`` the request for an effect, ``AFTER`` its answer."""

    # -- the operator ----------------------------------------------------------------------------
    BEFORE_LEASE_WRITE = enum.auto()
    AFTER_LEASE_WRITE = enum.auto()
    AFTER_INDEX_OPENED = enum.auto()
    AFTER_SCHEDULES_LISTED = enum.auto()
    BEFORE_STATUS_WRITE = enum.auto()
    AFTER_STATUS_WRITE = enum.auto()
    BEFORE_JOB_DELETED = enum.auto()
    AFTER_JOB_DELETED = enum.auto()

    # -- a worker --------------------------------------------------------------------------------
    AFTER_CLAIM = enum.auto()
    AFTER_PLAN = enum.auto()
    BEFORE_ATTEMPT = enum.auto()
    AFTER_ATTEMPT = enum.auto()
    BEFORE_SETTLEMENT = enum.auto()
    AFTER_SETTLEMENT = enum.auto()
    BEFORE_EXTENSION = enum.auto()

    # -- the client of the queue -----------------------------------------------------------------
    AFTER_QUEUE_GREETING = enum.auto()
    BEFORE_COMMANDS = enum.auto()
    AFTER_COMMANDS_SENT = enum.auto()
    AFTER_REPLIES = enum.auto()
    BEFORE_SCRIPTS_LOADED = enum.auto()
    BEFORE_SUBSCRIPTION = enum.auto()
    AFTER_SUBSCRIPTION = enum.auto()
    BEFORE_CLUSTER_MAP = enum.auto()
    BEFORE_BATCH_IMPORTED = enum.auto()
    AFTER_BATCH_IMPORTED = enum.auto()

    # -- requests: to the API server, to receivers -----------------------------------------------
    BEFORE_API_REQUEST = enum.auto()
    AFTER_API_RESPONSE = enum.auto()
    AFTER_LIST_PAGE = enum.auto()
    AFTER_WATCH_OPENED = enum.auto()
    AFTER_WATCH_EVENT = enum.auto()
    AFTER_TOKEN_READ = enum.auto()
    BEFORE_JOB_COMPARED = enum.auto()
    BEFORE_HTTP_CONNECTION = enum.auto()
    BEFORE_HTTP_REQUEST = enum.auto()
    AFTER_HTTP_RESPONSE = enum.auto()

    # -- the HTTP API ----------------------------------------------------------------------------
    AFTER_CALLER_KNOWN = enum.auto()
    AFTER_RIGHTS_CHECKED = enum.auto()
    AFTER_KEY_RECORDED = enum.auto()
    BEFORE_MEMBERS_STORED = enum.auto()
    AFTER_MEMBERS_STORED = enum.auto()
    AFTER_ANSWER_RECORDED = enum.auto()


#: Called at each point; it may raise, wait, or end the process.
Hook = Callable[[FaultPoint], Awaitable[None]]

_hook: Hook | None = None


def install(hook: Hook | None) -> None:
    """Call ``hook`` at every point from now on; None removes it. For tests."""
    global _hook  # noqa: PLW0603 - one for the process
    _hook = hook


async def reach(point: FaultPoint) -> None:
    """Pass a fault point; does nothing unless a test has installed a hook."""
    if _hook is not None:
        await _hook(point)
