"""How the commands that look into the queue find it: the settings of the processes, and no others.

Each ``redis_*`` setting is a flag and an environment variable here as it is there, so what a worker
was given reaches the same server from a shell. Nothing else is needed to look: no key, no API
server. What goes wrong on the way is one line and exit code 2; an index that does not exist is
nothing to show. What is imported for it is imported when such a command runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any

import click

from duepoint import clock, settings
from duepoint.cli import output

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


def reaching(command: Callable[..., Any]) -> Callable[..., Any]:
    """The flags that say where the queue is, for ``run``."""
    for field in reversed(_FIELDS):
        text = f"{field.metadata['help']} [{settings.variable(field.name)}]"
        option = click.option(settings.flag(field.name), field.name, help=text, metavar="VALUE")
        command = option(command)
    return command


def run(
    given: dict[str, str | None], look: Callable[[DelayQueue], Coroutine[Any, Any, int]]
) -> None:
    """Look into the queue that the settings name; ``look`` says how many things it showed.

    Raises:
        errors.DuepointError: a setting is wrong, or the server cannot be used.
    """
    flags = {name: value for name, value in given.items() if value is not None}
    chosen = settings.from_environment(_Settings, flags)
    shown = asyncio.run(_look(chosen, look))
    if not shown:
        raise click.exceptions.Exit(output.NOTHING)


async def _look(chosen: Any, look: Callable[[DelayQueue], Coroutine[Any, Any, int]]) -> int:  # noqa: ANN401
    from duepoint import telemetry  # noqa: PLC0415 - only these commands pay for it
    from duepoint.delayqueue import errors as queue_errors  # noqa: PLC0415

    async with _opened(chosen) as queue:
        try:
            with telemetry.silence():
                await queue.layouts.read()
                return await look(queue)
        except queue_errors.Uninitialised as nothing:
            output.complain(str(nothing))
            return 0


@contextlib.asynccontextmanager
async def _opened(chosen: Any) -> AsyncIterator[DelayQueue]:  # noqa: ANN401
    from duepoint.delayqueue import delayqueue  # noqa: PLC0415 - only these commands pay for it

    queue = delayqueue.open_queue(chosen, clock.SystemClock(), _NO_KEY)
    try:
        yield queue
    finally:
        await queue.close()
