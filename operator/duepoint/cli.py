"""The ``duepoint`` command.

Every setting of a process is a flag of its subcommand and an environment variable; there are no
other sources. A wrong setting ends the command with code 2 and one line that names it. Subcommands
import what they run only when they run it, so that ``duepoint --help`` needs neither a cluster's
libraries nor their start-up time.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable
from typing import Any

import typer

from duepoint import __version__, errors, settings

EXIT_BAD_INPUT = 2

commands = typer.Typer(
    name="duepoint",
    help="Schedules for Kubernetes that are never early, never lost and never doubled.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@commands.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


def _process(kind: type[settings.Settings], start: Callable[[dict[str, str]], None]) -> Any:  # noqa: ANN401 - typer reads the signature
    """A subcommand with one flag per setting of ``kind``."""

    def command(**given: str | None) -> None:
        start({name: value for name, value in given.items() if value is not None})

    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [_parameter(field) for field in dataclasses.fields(kind)]
    )
    command.__doc__ = start.__doc__
    return command


def _parameter(field: dataclasses.Field[Any]) -> inspect.Parameter:
    text = f"{field.metadata['help']} [{settings.variable(field.name)}]"
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=typer.Option(None, settings.flag(field.name), help=text, metavar="VALUE"),
        annotation=str | None,
    )


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


commands.command("operator")(_process(settings.OperatorSettings, _run_operator))
commands.command("worker")(_process(settings.WorkerSettings, _run_worker))


def main() -> None:
    """Entry point; never shows a traceback for a wrong setting."""
    try:
        commands()
    except errors.InvalidSetting as error:
        print(f"duepoint: {error}", file=sys.stderr)  # noqa: T201 - the one line for people
        sys.exit(EXIT_BAD_INPUT)
