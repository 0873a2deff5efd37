"""How the commands that look into the queue find it: the settings of the processes, and no others.

Each ``redis_*`` setting is a flag and an environment variable here as it is there, so what a worker
was given reaches the same server from a shell. Nothing else is needed to look: no key, no API
server. What goes wrong on the way is one line and exit code 2; an index that does not exist is
nothing to show. What is imported for it is imported when such a command runs.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import click

from duepoint import clock, settings
from duepoint.cli import options, output

if TYPE_CHECKING:
    from duepoint.delayqueue.delayqueue import DelayQueue

_FIELDS = [each for each in dataclasses.fields(settings.Settings) if each.name.startswith("redis_")]


def _same(field: dataclasses.Field[Any]) -> Any:  # noqa: ANN401 - dataclasses.field's own
    if field.default is dataclasses.MISSING:
        return dataclasses.field(metadata=field.metadata)
    return dataclasses.field(default=field.default, metadata=field.metadata)


#: Settings that say where the queue is, read as those of a process are.
_Settings: Any = dataclasses.make_dataclass(
    "QueueSettings",
    [(each.name, each.type, _same(each)) for each in _FIELDS],
    frozen=True,
    kw_only=True,
)
#: Blobs are not opened here, so nothing needs the installation's key.
_NO_KEY = bytes(32)


#: The flags that say where the queue is, for ``run``.
reaching = options.of_settings(_FIELDS)


def run(
    given: dict[str, str | None], look: Callable[[DelayQueue], Coroutine[Any, Any, int]]
) -> None:
    """Look into the queue that the settings name; ``look`` says how many things it showed.

    Raises:
        errors.DuepointError: a setting is wrong, or the server cannot be used.
    """
    chosen = settings.from_environment(_Settings, options.written(given))
    if not asyncio.run(_look(chosen, look)):
        raise click.exceptions.Exit(output.NOTHING)


async def _look(chosen: Any, look: Callable[[DelayQueue], Coroutine[Any, Any, int]]) -> int:  # noqa: ANN401
    from duepoint import telemetry  # noqa: PLC0415 - only these commands pay for it
    from duepoint.delayqueue import delayqueue  # noqa: PLC0415 - only these commands pay for it
    from duepoint.delayqueue import errors as queue_errors  # noqa: PLC0415

    queue = delayqueue.open_queue(chosen, clock.SystemClock(), _NO_KEY)
    try:
        with telemetry.silence():
            await queue.layouts.read()
            return await look(queue)
    except queue_errors.Uninitialised as nothing:
        output.complain(str(nothing))
        return 0
    finally:
        await queue.close()
