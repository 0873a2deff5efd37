"""A command with subcommands: ``--help`` lists each with its whole first sentence.

click cuts them off where the line ends, in the middle of what a reader wants to know. A wrong word
is answered with the nearest subcommand.
"""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from duepoint import errors
from duepoint.cli import mistakes

#: Longer than any first sentence.
_WHOLE = 1000


class CommandGroup(click.Group):
    """See the module."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word = args[0]
        if not word.startswith("-") and self.get_command(ctx, word) is None:
            words = self.list_commands(ctx)
            near = mistakes.nearest(word, words)
            hint = f'did you mean "{near}"?' if near else f"write one of {', '.join(words)}"
            message = f"there is no command {self.name} {errors.quoted(word)}; {hint}"
            raise click.UsageError(message, ctx)
        return super().resolve_command(ctx, args)

    def rows(self, ctx: click.Context) -> list[tuple[str, str]]:
        """Each subcommand that is shown, and its first sentence."""
        return [
            (name, command.get_short_help_str(_WHOLE))
            for name in self.list_commands(ctx)
            if (command := self.get_command(ctx, name)) is not None and not command.hidden
        ]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(self.rows(ctx))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        return [
            *(
                CompletionItem(name, help=sentence)
                for name, sentence in self.rows(ctx)
                if name.startswith(incomplete)
            ),
            *click.Command.shell_complete(self, ctx, incomplete),
        ]
