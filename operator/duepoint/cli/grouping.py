"""Groups of subcommands: ``--help`` lists each with its whole first sentence.

click cuts sentences off at the end of the line, in the middle of what a reader wants to know. For
an unknown word, the error names the nearest subcommand.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import click

from duepoint import errors

#: Longer than any first sentence.
_WHOLE = 1000


class CommandGroup(click.Group):
    """A group whose help has whole sentences, and whose errors suggest subcommands."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word, words = args[0], self.list_commands(ctx)
        if not word.startswith("-") and word not in words:
            near = nearest(word, words)
            hint = f'did you mean "{near}"?' if near else f"write one of {', '.join(words)}"
            raise click.UsageError(f"there is no command {errors.quoted(word)}; {hint}")
        return super().resolve_command(ctx, args)

    def rows(self, ctx: click.Context) -> list[tuple[str, str]]:
        """Return each visible subcommand with its first sentence."""
        return [
            (name, command.get_short_help_str(_WHOLE))
            for name in self.list_commands(ctx)
            if (command := self.get_command(ctx, name)) is not None and not command.hidden
        ]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(self.rows(ctx))


# -- mistakes --------------------------------------------------------------------------------------


#: At least this many letters may be the beginning of a word, such as timeout of timeoutSeconds.
_SHORTEST_BEGINNING = 5


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the known word that was probably meant, ignoring case; empty if none is near."""
    by_lower = {each.lower(): each for each in known}
    lower = word.lower()
    near = [lower] if lower in by_lower else []
    near = near or difflib.get_close_matches(lower, by_lower, n=1, cutoff=0.75)
    # in a short name, two swapped letters lower the ratio too much
    near = near or [each for each in by_lower if sorted(each) == sorted(lower)]
    if not near and len(word) >= _SHORTEST_BEGINNING:
        near = [each for each in by_lower if each.startswith(lower)]
    return by_lower[near[0]] if len(near) == 1 else ""


def of_click(error: click.ClickException) -> str:
    """Return click's error on one line, with where to read on.

    An error about the words of an expression says that it belongs into quotes.
    """
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None:
        return error.format_message().rstrip(".")
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return f"a command is missing; {context.command_path} -h lists them"
    message = error.format_message().rstrip(".")
    takes_expression = any(each.name == "expr" for each in context.command.params)
    if takes_expression and type(error) is click.UsageError:
        return f'{message}; put the expression into quotes: {context.command_path} "0 9 * * 1-5"'
    return f"{message}; {context.command_path} -h explains it"
