"""``duepoint completion``: the script that lets a shell complete commands and options."""

from __future__ import annotations

import click
from click import shell_completion

from duepoint.cli import options

#: What the scripts of click ask by.
VARIABLE = "_DUEPOINT_COMPLETE"
#: Cobra's directive to offer no file names.
_NO_FILES = ":4"


@click.command()
@click.argument("shell", metavar="bash|zsh|fish", type=options.words("bash", "zsh", "fish"))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell, as in: source <(duepoint completion bash)."""
    kind = shell_completion.get_completion_class(shell)
    assert kind is not None  # noqa: S101 - click has all three
    click.echo(kind(context.find_root().command, {}, "duepoint", VARIABLE).source())


def for_kubectl(commands: click.Command, words: list[str]) -> list[str]:
    """What kubectl reads from ``kubectl_complete-duepoint``: candidates, then a directive.

    Args:
        words: those of the command line behind ``kubectl duepoint``; the last is unfinished.
    """
    *whole, unfinished = words or [""]
    asked = shell_completion.ShellComplete(commands, {}, "kubectl duepoint", VARIABLE)
    found = asked.get_completions(whole, unfinished)
    lines = [f"{item.value}\t{item.help}" if item.help else str(item.value) for item in found]
    return [*lines, _NO_FILES]
