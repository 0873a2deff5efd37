"""Options that several subcommands have, and the expression that they describe together.

``Asked`` is what a user typed, checked: the compiled expression with its zone. ``H`` is refused
without an identity, because it is a hash of it and any other answer would be wrong; ``@every`` is
anchored where ``--anchor`` says, else at the instant that is asked about.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from duepoint import errors, expressions
from duepoint.cli import instants, output
from duepoint.expressions import timezones

#: Longest expression read from standard input, in bytes: far more than any is accepted with.
_INPUT_LIMIT = 4096

_TIME_ZONE = click.option(
    "--time-zone",
    default="Etc/UTC",
    metavar="ZONE",
    show_default=True,
    help="IANA zone of the expression.",
)
_FROM = click.option(
    "--from",
    "from_",
    default="now",
    metavar="TIME",
    show_default=True,
    help="RFC 3339; without an offset in the zone asked for.",
)
_IDENTITY = click.option(
    "--identity", metavar="NAMESPACE/NAME", help="The object whose name H hashes."
)
_GAP = click.option(
    "--dst-gap",
    "gap",
    default="RunOnce",
    metavar="RunOnce|Skip",
    show_default=True,
    help="A fixed time that does not exist: run once right after the gap, or not at all.",
)
_OVERLAP = click.option(
    "--dst-overlap",
    "overlap",
    default="First",
    metavar="First|Second|Both",
    show_default=True,
    help="A fixed time that exists twice: which of the two runs.",
)
_ANCHOR = click.option(
    "--anchor",
    metavar="TIME",
    help="Where @every counts from, as startTime does. Unset: the time of --from.",
)

expression = click.argument("expr")
output_format = click.option(
    "--output",
    "-o",
    "form",
    metavar="json|table",
    help="Unset: a table on a terminal, elsewhere JSON, one object a line.",
)
files = click.option(
    "--filename",
    "-f",
    "files",
    metavar="FILE",
    multiple=True,
    required=True,
    help="YAML or JSON; - is standard input. May be repeated.",
)
namespace = click.option(
    "--namespace",
    "-n",
    default="default",
    metavar="NAME",
    show_default=True,
    help="Namespace of objects that name none; H and jitter hash it.",
)


def asking(command: Callable[..., Any]) -> Callable[..., Any]:
    """EXPR and the options that decide its slots, for ``asked``."""
    for option in (_ANCHOR, _OVERLAP, _GAP, _IDENTITY, _FROM, _TIME_ZONE, expression):
        command = option(command)
    return command


_USES_HASH = re.compile(r"(?<![A-Za-z])H(?![A-Za-z])", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """An expression and all that decides its slots."""

    text: str
    time_zone: str
    gap: expressions.Gap
    overlap: expressions.Overlap
    identity: str
    from_us: int
    expression: expressions.Expression


def asked(
    expr: str,
    *,
    time_zone: str,
    from_: str,
    identity: str | None,
    gap: str,
    overlap: str,
    anchor: str | None,
) -> Asked:
    """What the options say together.

    Raises:
        errors.InvalidSetting: an option or the expression is wrong.
    """
    check_zone(time_zone)
    from_us = instants.parse_us(from_, zone=time_zone, name="--from")
    if anchor is None:
        anchor_us = from_us - from_us % 1_000_000  # as whole as a creationTimestamp
    else:
        anchor_us = instants.parse_us(anchor, zone=time_zone, name="--anchor")
    return ask(
        _from_input() if expr == "-" else expr,
        time_zone,
        expressions.Gap(output.choice("--dst-gap", gap, expressions.Gap)),
        expressions.Overlap(output.choice("--dst-overlap", overlap, expressions.Overlap)),
        identity=_identity(identity),
        from_us=from_us,
        anchor_us=anchor_us,
    )


def ask(
    text: str,
    time_zone: str,
    gap: expressions.Gap,
    overlap: expressions.Overlap,
    *,
    from_us: int,
    anchor_us: int,
    identity: str = "",
) -> Asked:
    """The compiled expression.

    Raises:
        errors.InvalidSetting: it is none, with field, column and hint.
    """
    try:
        compiled = expressions.compile_expression(
            text, time_zone=time_zone, gap=gap, overlap=overlap, identity=identity,
            anchor_us=anchor_us,
        )  # fmt: skip
    except errors.InvalidExpression as error:
        raise errors.InvalidSetting(errors.quoted(text), _without(text, str(error))) from None
    if not identity and not text.lstrip().startswith("@") and _USES_HASH.search(text):
        raise errors.InvalidSetting(
            errors.quoted(text),
            "H is a hash of the object's name; write --identity namespace/name",
        )
    return Asked(
        text=text,
        time_zone=time_zone,
        gap=gap,
        overlap=overlap,
        identity=identity,
        from_us=from_us,
        expression=compiled,
    )


def check_zone(name: str) -> None:
    """Raise errors.InvalidSetting where the engine has no such zone."""
    try:
        timezones.load(name)
    except errors.InvalidExpression as error:
        raise errors.InvalidSetting("--time-zone", str(error)) from None


def _from_input() -> str:
    return sys.stdin.buffer.read(_INPUT_LIMIT).decode("utf-8", "replace").strip()


def _identity(text: str | None) -> str:
    if text is None:
        return ""
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name) or "/" in name or not text.isprintable() or " " in text:
        raise errors.InvalidSetting(
            "--identity", f"{errors.quoted(text)}: write namespace/name, such as reports/nightly"
        )
    return text


def _without(text: str, message: str) -> str:
    """The message without the text at its head, which stands before it already."""
    return message.removeprefix(f"{errors.quoted(text)} ")
