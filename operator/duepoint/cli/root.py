"""The command without its subcommands: finds the requested one and reports what is wrong.

Owns the names of the subcommands, the exit codes, and what happens to every output: a reader that
has gone away (``| head``) ends the command quietly, characters that the terminal cannot show are
escaped, and a mistake is one line on standard error. A subcommand's file is imported when that
subcommand runs, or when ``--help`` lists them all.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from duepoint import __version__, errors
from duepoint.cli import output

#: Where each subcommand is: its module below ``duepoint.cli`` and its name there.
_HOMES = {
    "run": ("local.command", "run"),
    "next": ("expression", "next_slots"),
    "previous": ("expression", "previous_slots"),
    "explain": ("expression", "explain"),
    "validate": ("check.validate", "validate"),
    "simulate": ("check.simulate", "simulate"),
    "forecast": ("forecast.forecast", "forecast"),
    "import": ("cronjob.importing", "importing"),
    "trigger": ("run.trigger", "trigger"),
    "backfill": ("run.backfill", "backfill"),
    "webhook": ("webhook.webhook", "webhook"),
    "list": ("schedules.listing", "list_schedules"),
    "describe": ("schedules.listing", "describe"),
    "why": ("schedules.why", "why"),
    "suspend": ("schedules.suspension", "suspend"),
    "resume": ("schedules.suspension", "resume"),
    "logs": ("schedules.logs", "logs"),
    "doctor": ("doctor", "doctor"),
    "queue": ("queue.queue", "queue"),
    "dlq": ("queue.deadletters", "dlq"),
    "set": ("sets.sets", "sets"),
    "load": ("load.load", "load"),
    "operator": ("processes", "operator"),
    "worker": ("processes", "worker"),
    "completion": ("completion", "completion"),
    "api": ("processes", "api"),
    "version": ("version", "version"),
}

_QUOTED = 'put the expression into quotes, such as duepoint {} "0 9 * * 1-5"'


#: Why a disk or a quota takes no more of what is written to it.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


class Commands(click.Group):
    """Subcommands that are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(_HOMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _HOMES:
            near = difflib.get_close_matches(cmd_name, _HOMES, n=1)
            hint = f'did you mean "{near[0]}"?' if near else f"write one of {', '.join(_HOMES)}"
            raise click.UsageError(f"there is no command {errors.quoted(cmd_name)}; {hint}", ctx)
        module, name = _HOMES[cmd_name]
        found = getattr(importlib.import_module(f"duepoint.cli.{module}"), name)
        assert isinstance(found, click.Command)  # noqa: S101 - the table above is ours
        return found

    def main(self, args: Sequence[str] | None = None, *_: Any, **kept: Any) -> Any:  # noqa: ANN401 - click's signature
        """Run and end the process; the one place that turns exceptions into exit codes."""
        given = list(sys.argv[1:] if args is None else args) or ["--help"]
        sys.exit(self._exit_code(given, kept.get("prog_name") or self.name or ""))

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's signature
        try:
            done = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            _write_no_more()  # the reader of our output has enough
            return 0
        return done

    def _exit_code(self, args: list[str], program: str) -> int:
        output.escape_what_cannot_be_shown()
        try:
            code = super().main(args, prog_name=program, standalone_mode=False)
        except errors.DuepointError as error:
            output.complain(str(error), program)
            return output.BAD_INPUT
        except click.ClickException as error:
            output.complain(_mistake(error), program)
            return output.BAD_INPUT
        except OSError as error:
            if error.errno not in _FULL:
                raise
            _write_no_more()
            output.complain(f"could not write the output: {error.strerror}", program)
            return output.BAD_INPUT
        except (KeyboardInterrupt, click.Abort):
            return output.INTERRUPTED
        return code if isinstance(code, int) else 0


@click.group(
    cls=Commands, name="duepoint", context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, "--version", message="%(version)s", help="Print the version.")
def commands() -> None:
    """Schedules for Kubernetes that are never early and never lost.

    With a cluster: list, describe, why, suspend, resume, trigger, backfill, logs and doctor. With
    Redis: queue and dlq; with the HTTP API: set and load. The others need neither.
    """


def main() -> None:
    """Entry point; never shows a traceback for a wrong input."""
    commands()


def plugin() -> None:
    """Entry point of ``kubectl duepoint``, which is the same command."""
    commands(prog_name="kubectl duepoint")


def complete_for_kubectl() -> None:
    """Entry point of ``kubectl_complete-duepoint``, which kubectl calls to complete our words."""
    from duepoint.cli import completion  # noqa: PLC0415 - only this asks for it

    for line in completion.for_kubectl(commands, sys.argv[1:]):
        click.echo(line)


def _write_no_more() -> None:
    """What is still buffered must not fail at exit."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _mistake(error: click.ClickException) -> str:
    """What click found wrong; stray words may be an expression that the shell took apart."""
    message = error.format_message().rstrip(".")
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None:
        return message
    words = context.command_path.partition(" ")[2]
    takes_expression = any(each.name == "expr" for each in context.command.params)
    if "unexpected extra argument" in message:
        hint = _QUOTED.format(words) if takes_expression else f"duepoint {words} -h shows its words"
        return f"there are words too many; {hint}"
    if takes_expression and isinstance(error, click.MissingParameter):
        return f"the expression is missing; {_QUOTED.format(words)}"
    return message
