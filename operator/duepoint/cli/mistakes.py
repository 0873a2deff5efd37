"""What to write instead of a wrong word, an unknown option, or a word that is missing.

Owns the messages for what click finds wrong before a command runs: one line each, with the nearest
word that exists, or the word of this program for one of kubectl or of another scheduler.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import click

from duepoint import errors

#: Words of kubectl and of other schedulers -> what to write here.
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
    """That there is no such command, with the one that was probably meant."""
    known = list(commands)
    near = [MEANT[word]] if word in MEANT else difflib.get_close_matches(word, known, n=1)
    hint = f'did you mean "{near[0]}"?' if near else f"write one of {', '.join(known)}"
    return f"there is no command {errors.quoted(word)}; {hint}"


def nearest(word: str, known: Iterable[str]) -> str:
    """The word that was probably meant, in upper or lower case; empty: none is near."""
    by_lower = {each.lower(): each for each in known}
    found = difflib.get_close_matches(word.lower(), by_lower, n=1)
    return by_lower[found[0]] if found else ""


def of_click(error: click.ClickException) -> str:
    """What click found wrong; stray words may be an expression that the shell took apart."""
    if isinstance(error, click.BadOptionUsage):  # which knows no command
        return f"{error.option_name}: its value is missing; write {error.option_name} VALUE"
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None:
        return error.format_message().rstrip(".")
    return _in_command(error, context)


def _in_command(error: click.ClickException, context: click.Context) -> str:
    """What is wrong behind the words of a command."""
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
    """That the command takes fewer words; of ``list`` kubectl takes names, too."""
    if takes_expression:
        return f"there are words too many; {_QUOTED.format(words)}"
    extra = message.partition("(")[2].removesuffix(")")
    first = extra.split(" ")[0]
    hint = f"duepoint {words} -h shows its words"
    if words == "list":
        hint = f"to see one write duepoint describe {first}; list takes -l LABELS"
    return f"{words} takes no such word: {errors.quoted(extra)}; {hint}"


def _missing(param: click.Parameter, words: str) -> str:
    """An argument or an option that has to be there."""
    if isinstance(param, click.Option):
        named = f"write {param.opts[0]} {param.metavar or 'VALUE'}"
        return f"{param.opts[0]}: is missing; {named} (duepoint {words} -h explains it)"
    name = param.make_metavar(click.Context(click.Command(words)))
    return f"{name}: is missing; write duepoint {words} {name}"


def _unknown_option(error: click.NoSuchOption, context: click.Context) -> str:
    """An option that the command does not have, with the one that was probably meant."""
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
