"""``duepoint operator``, ``duepoint worker`` and ``duepoint api``.

Every setting of a process is a flag of its subcommand and an environment variable; there are no
other sources. A wrong setting ends the command with code 2 and one line that names it. The modules
of the processes are imported only when one of them runs, so that ``--help`` needs neither the
libraries for a cluster nor their start-up time.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from duepoint import settings
from duepoint.cli import options


def _process(name: str, kind: type[Any], sentence: str) -> click.Command:
    @click.command(
        name,
        hidden=True,
        help=f"{sentence}\n\nExample: duepoint {name} --redis-url redis://localhost:6379/0",
    )
    @options.of_settings(dataclasses.fields(kind))
    def command(**given: str | None) -> None:
        chosen = settings.from_environment(kind, given)
        from duepoint import app  # noqa: PLC0415 - only a process pays for its libraries

        getattr(app, f"run_{name}")(chosen)

    return command


operator = _process(
    "operator",
    settings.OperatorSettings,
    "Reconcile Schedules into the queue; one replica is active, the others stand by.",
)
worker = _process(
    "worker",
    settings.WorkerSettings,
    "Claim due points and fire their targets; every replica is active.",
)
api = _process(
    "api",
    settings.ApiSettings,
    "Serve the HTTP API of ScheduleSets' members; every replica is active.",
)
