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
from pathlib import Path
from typing import Any

import click

from duepoint import errors, expressions
from duepoint.cli import instants, output
from duepoint.expressions import durations, timezones

#: Longest expression read from standard input, in bytes: far more than any is accepted with.
_INPUT_LIMIT = 4096
#: Largest file that an option may name, in bytes.
LARGEST_FILE = 32 * 1024 * 1024

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


only_namespace = click.option("--namespace", "-n", metavar="NAME", help="Only this namespace.")
only_schedule = click.option(
    "--schedule",
    "-s",
    metavar="NAME|UID",
    help="Only this Schedule; its name needs --namespace. A uid is found at once.",
)

#: Our commands' ScheduleRuns are deleted so long after they have ended.
TTL_SECONDS = 3600
#: The longest time to live that the API takes, in seconds.
_MOST_SECONDS = 2**31 - 1

_OF_RUN = (
    click.option("--namespace", "-n", metavar="NAME", help="Unset: the namespace of the context."),
    click.option(
        "--ttl",
        default=str(TTL_SECONDS),
        metavar="SECONDS|never",
        show_default=True,
        help="Delete the ScheduleRun so long after it has ended.",
    ),
    click.option(
        "--timeout", metavar="DURATION", help="Wait no longer than this, such as 90s or 2h."
    ),
    click.option(
        "--output", "-o", "form", default="text", metavar="json|text", help="Unset: text."
    ),
    click.option(
        "--kubeconfig", type=click.Path(path_type=Path), help="Unset: as kubectl finds it."
    ),
    click.option("--context", metavar="NAME", help="Of the kubeconfig; unset: the current one."),
)


def of_run(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options, for ``place``, ``ttl_seconds`` and ``timeout_seconds``."""
    for option in reversed(_OF_RUN):
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


# -- what the options of several commands mean ---------------------------------------------------


def whole(option: str, text: str, *, most: int) -> int:
    """A count from 1 to ``most``.

    Raises:
        errors.InvalidSetting: it is none.
    """
    if not (text.isascii() and text.isdecimal() and len(text) < 18 and 1 <= int(text) <= most):
        raise errors.InvalidSetting(
            option, f"{errors.quoted(text)}: write a whole number from 1 to {most}"
        )
    return int(text)


def check_name(option: str, name: str | None) -> None:
    """Raise errors.InvalidSetting where this cannot be the name of an object."""
    if name is not None and (not name or len(name) > 253 or not name.isprintable() or " " in name):
        raise errors.InvalidSetting(option, f"{errors.quoted(name)} is no name of an object")


def check_schedule(namespace: str | None, schedule: str | None) -> None:
    """Raise errors.InvalidSetting where these do not name a Schedule together."""
    check_name("--namespace", namespace)
    check_name("--schedule", schedule)
    if schedule is not None and namespace is None:
        raise errors.InvalidSetting("--schedule", "needs its namespace: write --namespace NAME too")


def ttl_seconds(text: str) -> int | None:
    """None = kept; raises errors.InvalidSetting."""
    if text.lower() == "never":
        return None
    if not text.isascii() or not text.isdecimal() or int(text[:18]) > _MOST_SECONDS:
        said = f"{errors.quoted(text)}: write a whole number of seconds up to {_MOST_SECONDS}"
        raise errors.InvalidSetting("--ttl", f"{said}, or never")
    return int(text)


def timeout_seconds(text: str | None, *, wait: bool) -> float | None:
    """None = as long as it takes; raises errors.InvalidSetting."""
    if text is None:
        return None
    if not wait:
        raise errors.InvalidSetting(
            "--timeout",
            "limits how long the command waits, and it does not; add --wait, or leave it out",
        )
    return duration_us("--timeout", text) / 1e6


def form(text: str) -> str:
    """``json`` or ``text``; raises errors.InvalidSetting."""
    return output.choice("--output", text, output.TEXT_FORMATS)


def text(option: str, file: str) -> str:
    """A file's text without the blanks around it; raises errors.InvalidSetting."""
    try:
        return content(option, file).decode().strip()
    except UnicodeDecodeError:
        raise errors.InvalidSetting(option, f"{errors.quoted(file)} is not text") from None


def content(option: str, file: str) -> bytes:
    """A file's bytes, ``-`` being standard input; raises errors.InvalidSetting."""
    try:
        data = file_bytes(file)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise errors.InvalidSetting(option, f"{errors.quoted(file)}: {reason}") from None
    if len(data) > LARGEST_FILE:
        raise errors.InvalidSetting(option, f"{errors.quoted(file)} is larger than 32 MiB")
    return data


def file_bytes(file: str) -> bytes:
    """At most one byte more than may be; raises OSError and ValueError."""
    if file == "-":
        return sys.stdin.buffer.read(LARGEST_FILE + 1)
    with Path(file).open("rb") as opened:
        return opened.read(LARGEST_FILE + 1)


def duration_us(option: str, given: str) -> int:
    """A length of time; raises errors.InvalidSetting."""
    try:
        return durations.parse_duration_us(given)
    except ValueError as error:
        raise errors.InvalidSetting(option, str(error)) from None
