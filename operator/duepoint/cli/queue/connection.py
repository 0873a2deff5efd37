"""Connects the commands that read the queue, with the same settings as the processes.

Each ``redis_*`` setting is a flag and an environment variable, as for a worker, so the settings of
a worker reach the same server from a shell. Reading needs nothing else: no key, no API server. Any
trouble on the way, also an index that does not exist, is one line and exit code 2; having nothing
to show is success. Modules for the queue are imported only when one of these commands runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any

import click

from duepoint import clock, errors, settings
from duepoint.cli import options

if TYPE_CHECKING:
    from duepoint.delayqueue.delayqueue import DelayQueue

_FIELDS = dataclasses.fields(settings.QueueSettings)
#: These commands do not open blobs, so they do not need the installation's key.
_NO_KEY = bytes(32)

NAMES = tuple(field.name for field in _FIELDS)
#: The flags for the connection to the queue.
reaching = options.of_settings(_FIELDS)

Look = Callable[..., Coroutine[Any, Any, int]]


def looking(look: Look) -> Callable[..., None]:
    """Turn a coroutine ``look(opened, **options)`` into a command."""

    @reaching
    @functools.wraps(look)
    def command(**given: Any) -> None:  # noqa: ANN401 - click's values
        where = {name: given.pop(name) for name in NAMES}

        async def run() -> None:
            async with opened(where) as queue:
                await look(queue, **given)

        asyncio.run(run())

    return command


@contextlib.asynccontextmanager
async def opened(where: dict[str, str | None]) -> AsyncIterator[DelayQueue]:
    """Open the queue and read its layout; raises errors.InvalidSetting if that fails."""
    chosen = _settings(where)
    from duepoint import telemetry  # noqa: PLC0415 - only these commands pay for it
    from duepoint.delayqueue import delayqueue  # noqa: PLC0415 - only these commands pay for it

    queue = delayqueue.open_queue(chosen, clock.SystemClock(), _NO_KEY)
    try:
        with telemetry.silence():
            await _read_layout(queue)
            yield queue
    finally:
        await queue.close()


def _settings(where: dict[str, str | None]) -> settings.QueueSettings:
    """Return the settings for the connection.

    Raises:
        errors.InvalidSetting: a setting is wrong; without a URL the message says how to get one.
    """
    try:
        return settings.from_environment(settings.QueueSettings, where)
    except errors.InvalidSetting as wrong:
        if wrong.name != settings.variable("redis_url"):
            raise
        message = f"{wrong.reason}, or run it where Redis is known: {_in_a_worker()}"
        if (command := click.get_current_context().parent) and command.info_name == "dlq":
            message += "; or write --server URL of the HTTP API, which needs no Redis"
        raise errors.InvalidSetting(wrong.name, message) from None


def _in_a_worker() -> str:
    """Return the command to run in a Pod that has the settings, by the chart's default names."""
    command = click.get_current_context().command_path.removeprefix("kubectl ")
    return f"kubectl exec -n duepoint-system deploy/duepoint-worker -- {command} ..."


async def _read_layout(queue: DelayQueue) -> None:
    """Read the layout, before anything else; the error of a silent server names its option."""
    try:
        await queue.layouts.read()
    except errors.QueueUnavailable as silent:
        if type(silent) is not errors.QueueUnavailable:
            raise  # the server answered, and says what is wrong
        message = (
            f"{silent}; is it the right one, and is it reachable from here? In a cluster it is"
            f" from a worker: {_in_a_worker()}"
        )
        raise errors.InvalidSetting("--redis-url", message) from silent
