"""Groups of subcommands: ``--help`` lists each with its whole first sentence.

click cuts sentences off at the end of the line, in the middle of what a reader wants to know. For
an unknown word, the error names the nearest subcommand.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import click
from click.shell_completion import CompletionItem

from duepoint import errors

#: Longer than any first sentence.
_WHOLE = 1000


class CommandGroup(click.Group):
    """A group whose help has whole sentences, and whose errors suggest subcommands."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word = args[0]
        if not word.startswith("-") and self.get_command(ctx, word) is None:
            words = self.list_commands(ctx)
            near = nearest(word, words)
            hint = f'did you mean "{near}"?' if near else f"write one of {', '.join(words)}"
            message = f"there is no command {self.name} {errors.quoted(word)}; {hint}"
            raise click.UsageError(message, ctx)
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

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        return [
            *(
                CompletionItem(name, help=sentence)
                for name, sentence in self.rows(ctx)
                if name.startswith(incomplete)
            ),
            *click.Command.shell_complete(self, ctx, incomplete),
        ]


# -- mistakes --------------------------------------------------------------------------------------


#: Words of kubectl and other schedulers, and the command to use here.
MEANT = {
    "get": "list",
    "ls": "list",
    "status": "describe",
    "show": "describe",
    "history": "describe",
    "runs": "describe",
    "events": "why",
    "reason": "why",
    "pause": "suspend",
    "disable": "suspend",
    "stop": "suspend",
    "hold": "suspend",
    "unpause": "resume",
    "unsuspend": "resume",
    "enable": "resume",
    "start": "trigger",
    "fire": "trigger",
    "execute": "trigger",
    "create": "trigger",
    "catchup": "backfill",
    "log": "logs",
    "replay": "dlq replay",
    "deadletters": "dlq list",
    "check": "validate",
    "lint": "validate",
    "diagnose": "doctor",
    "health": "doctor",
    "help": "--help",
}

_QUOTED = 'put the expression into quotes, such as duepoint {} "0 9 * * 1-5"'


def unknown_command(word: str, commands: Iterable[str]) -> str:
    """Return the error for an unknown command, with the one that was probably meant."""
    known = list(commands)
    near = MEANT.get(word) or nearest(word, known)
    hint = f'did you mean "{near}"?' if near else f"write one of {', '.join(known)}"
    return f"there is no command {errors.quoted(word)}; {hint}"


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
    """Return click's error in our words; stray words may be an expression that the shell split."""
    if isinstance(error, click.BadOptionUsage):  # this error has no command
        return f"{error.option_name}: its value is missing; write {error.option_name} VALUE"
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None:
        return error.format_message().rstrip(".")
    return _in_command(error, context)


def _in_command(error: click.ClickException, context: click.Context) -> str:
    """Return the error for the arguments of a command."""
    message = error.format_message().rstrip(".")
    words = context.command_path.removeprefix(context.find_root().command_path).strip()
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        assert isinstance(context.command, click.Group)  # noqa: S101 - only groups raise it here
        some = " or ".join(context.command.list_commands(context))
        return f"a word is missing behind {words}: write {some}; duepoint {words} -h explains them"
    if isinstance(error, click.NoSuchOption):
        return _unknown_option(error, context)
    takes_expression = any(each.name == "expr" for each in context.command.params)
    if "unexpected extra argument" in message:
        return _extra(message, words, takes_expression=takes_expression)
    if isinstance(error, click.MissingParameter) and error.param is not None:
        if takes_expression:
            return f"the expression is missing; {_QUOTED.format(words)}"
        return _missing(error.param, words)
    return message


def _extra(message: str, words: str, *, takes_expression: bool) -> str:
    """Return the error for too many words; unlike kubectl's ``get``, ``list`` takes no names."""
    if takes_expression:
        return f"there are words too many; {_QUOTED.format(words)}"
    extra = message.partition("(")[2].removesuffix(")")
    first = extra.split(" ")[0]
    hint = f"duepoint {words} -h shows its words"
    if words == "list":
        hint = f"to see one write duepoint describe {first}; list takes -l LABELS"
    return f"{words} takes no such word: {errors.quoted(extra)}; {hint}"


def _missing(param: click.Parameter, words: str) -> str:
    """Return the error for a missing argument or option."""
    if isinstance(param, click.Option):
        named = f"write {param.opts[0]} {param.metavar or 'VALUE'}"
        return f"{param.opts[0]}: is missing; {named} (duepoint {words} -h explains it)"
    name = param.make_metavar(click.Context(click.Command(words)))
    return f"{name}: is missing; write duepoint {words} {name}"


def _unknown_option(error: click.NoSuchOption, context: click.Context) -> str:
    """Return the error for an unknown option, with the one that was probably meant."""
    named = error.option_name
    has = [
        each
        for param in context.command.get_params(context)
        for each in (*param.opts, *param.secondary_opts)
        if each.startswith("--")
    ]
    begun = [each for each in has if named.startswith("--") and each.startswith(named)]
    near = begun or [each for each in error.possibilities or () if each != "--help"]
    hint = f"did you mean {' or '.join(near)}?" if near else f"{context.command_path} -h lists them"
    return f"there is no option {errors.quoted(named)}; {hint}"
