"""``duepoint operator``, ``duepoint worker`` and ``duepoint api``.

Every setting of a process is a flag of its subcommand and an environment variable; there are no
other sources. A wrong setting ends the command with code 2 and one line that names it. What the
processes are made of is imported when one of them runs, so that ``--help`` needs neither a
cluster's libraries nor their start-up time.
"""

from __future__ import annotations

import dataclasses

import click

from duepoint import settings
from duepoint.cli import options


@click.command()
@options.of_settings(dataclasses.fields(settings.OperatorSettings))
def operator(**given: str | None) -> None:
    """Reconcile Schedules into the queue; one replica is active, the others stand by."""
    chosen = settings.from_environment(settings.OperatorSettings, given)
    from duepoint import app  # noqa: PLC0415 - only a process pays for its libraries

    app.run_operator(chosen)


@click.command()
@options.of_settings(dataclasses.fields(settings.WorkerSettings))
def worker(**given: str | None) -> None:
    """Claim due points and fire their targets; every replica is active."""
    chosen = settings.from_environment(settings.WorkerSettings, given)
    from duepoint import app  # noqa: PLC0415 - only a process pays for its libraries

    app.run_worker(chosen)


@click.command()
@options.of_settings(dataclasses.fields(settings.ApiSettings))
def api(**given: str | None) -> None:
    """Serve the HTTP API of ScheduleSets' members; every replica is active."""
    chosen = settings.from_environment(settings.ApiSettings, given)
    from duepoint import app  # noqa: PLC0415 - only a process pays for its libraries

    app.run_api(chosen)
