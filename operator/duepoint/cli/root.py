"""The root command: finds the requested subcommand, and reports errors.

Defines the names of the subcommands, the exit codes, and how every output behaves. If the reader of
the output has gone away (``| head``), the command ends quietly. Characters that the terminal cannot
show are escaped. An error is one line on standard error. The module of a subcommand is imported
only when that subcommand runs.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from duepoint import __version__, errors
from duepoint.cli import options, output

#: For each subcommand its module below ``duepoint.cli``, with its name there.
_HOMES = {
    "run": "local.presenting:run",
    "next": "expression:next_slots",
    "explain": "expression:next_slots",
    "validate": "check.validate:validate",
    "simulate": "check.validate:simulate",
    "forecast": "forecast:forecast",
    "import": "cronjob.conversion:importing",
    "trigger": "scheduleruns:trigger",
    "backfill": "scheduleruns:backfill",
    "webhook": "webhook:webhook",
    "list": "schedules.commands:list_schedules",
    "describe": "schedules.commands:describe",
    "why": "schedules.why:why",
    "suspend": "schedules.commands:suspend",
    "resume": "schedules.commands:resume",
    "logs": "kubectl:logs",
    "dashboard": "kubectl:dashboard",
    "doctor": "doctor:doctor",
    "queue": "queue.queue:queue",
    "dlq": "queue.deadletters:dlq",
    "set": "sets:sets",
    "load": "load:load",
    # What the Pods of an installation run is not listed: people do not call it.
    "operator": "processes:operator",
    "worker": "processes:worker",
    "api": "processes:api",
}


class Commands(options.CommandGroup):
    """A group whose subcommands are imported only when they are needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(_HOMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _HOMES:
            return None
        module, _, name = _HOMES[cmd_name].partition(":")
        found = getattr(importlib.import_module(f"duepoint.cli.{module}"), name)
        assert isinstance(found, click.Command)  # noqa: S101 - the table above is ours
        return found

    def rows(self, ctx: click.Context) -> list[tuple[str, str]]:  # noqa: ARG002 - as the group's
        rows = []
        for name, home in _HOMES.items():
            module, _, function = home.partition(":")
            if words := _first_sentences(module).get(function):
                rows.append((name, words))
        return rows

    def main(self, args: Sequence[str] | None = None, *_: Any, **kept: Any) -> Any:  # noqa: ANN401 - click's signature
        """Run the command and end the process; only here do exceptions become exit codes."""
        given = list(sys.argv[1:] if args is None else args) or ["--help"]
        sys.exit(self._exit_code(given, kept.get("prog_name") or self.name or ""))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with _while_it_is_read():  # --help and --version are printed here
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's signature
        with _while_it_is_read():
            done = super().invoke(ctx)
            sys.stdout.flush()
        return done

    def _exit_code(self, args: list[str], program: str) -> int:
        output.escape_what_cannot_be_shown()
        try:
            code = super().main(args, prog_name=program, standalone_mode=False)
        except errors.DuepointError as error:
            return _refused(str(error), program)
        except click.ClickException as error:
            return _refused(options.of_click(error), program)
        except OSError as error:  # such as a disk that is full
            _write_no_more()
            return _refused(f"could not write the output: {error.strerror}", program)
        except (KeyboardInterrupt, click.Abort):
            return output.INTERRUPTED
        return code if isinstance(code, int) else 0


@click.group(
    cls=Commands, name="duepoint", context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, "--version", message="%(version)s", help="Print the version.")
def commands() -> None:
    """Schedules for Kubernetes that are never early and never lost.

    With a cluster: list, describe, why, suspend, resume, trigger, backfill, logs, dashboard and
    doctor. With Redis: queue; with the HTTP API: set and load; with either: dlq. The others need
    neither. The Pods of an installation run duepoint operator, worker and api.
    """


def main() -> None:
    """Run ``duepoint``; never shows a traceback for wrong input."""
    commands()


def plugin() -> None:
    """Run ``kubectl duepoint``, which is the same command."""
    commands(prog_name="kubectl duepoint")


@contextlib.contextmanager
def _while_it_is_read() -> Iterator[None]:
    """End quietly, with code 0, if the reader of standard output closes it early."""
    try:
        yield
    except BrokenPipeError:  # of a connection it has become another error
        _write_no_more()
        raise click.exceptions.Exit(0) from None


@functools.cache
def _first_sentences(module: str) -> dict[str, str]:
    """Return those of the functions of a module, from its source: to import all is slow."""
    source = Path(__file__).parent.joinpath(*module.split(".")).with_suffix(".py")
    return {
        node.name: (ast.get_docstring(node) or "").partition("\n")[0]
        for node in ast.parse(source.read_bytes()).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def _refused(message: str, program: str) -> int:
    """Report an error; if nothing reads standard error, only the exit code says so."""
    with contextlib.suppress(BrokenPipeError):
        output.complain(message, program)
    return output.BAD_INPUT


def _write_no_more() -> None:
    """Discard buffered output, which would otherwise fail at exit."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
