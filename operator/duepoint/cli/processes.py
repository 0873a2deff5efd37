"""``duepoint operator`` and ``duepoint worker``.

Every setting of a process is a flag of its subcommand and an environment variable; there are no
other sources. A wrong setting ends the command with code 2 and one line that names it. What the
processes are made of is imported when one of them runs, so that ``--help`` needs neither a
cluster's libraries nor their start-up time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import click

from duepoint import settings


def _process(
    name: str, kind: type[settings.Settings], start: Callable[[dict[str, str]], None]
) -> click.Command:
    """A subcommand with one flag per setting of ``kind``."""

    def command(**given: str | None) -> None:
        start({name: value for name, value in given.items() if value is not None})

    flags = [_flag(field) for field in dataclasses.fields(kind)]
    return click.Command(name, callback=command, params=[*flags], help=start.__doc__)


def _flag(field: dataclasses.Field[Any]) -> click.Option:
    text = f"{field.metadata['help']} [{settings.variable(field.name)}]"
    return click.Option([settings.flag(field.name), field.name], help=text, metavar="VALUE")


def _run_operator(flags: dict[str, str]) -> None:
    """Reconcile Schedules into the queue; one replica is active, the others stand by."""
    chosen = settings.from_environment(settings.OperatorSettings, flags)
    from duepoint import app  # noqa: PLC0415 - only a process pays for its libraries

    app.run_operator(chosen)


def _run_worker(flags: dict[str, str]) -> None:
    """Claim due points and fire their targets; every replica is active."""
    chosen = settings.from_environment(settings.WorkerSettings, flags)
    from duepoint import app  # noqa: PLC0415 - only a process pays for its libraries

    app.run_worker(chosen)


operator = _process("operator", settings.OperatorSettings, _run_operator)
worker = _process("worker", settings.WorkerSettings, _run_worker)
