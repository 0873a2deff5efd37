"""Options that several subcommands share, the types of their values, and groups of subcommands.

The type of an option turns its text into a value before the command runs; a wrong text raises an
``InvalidSetting`` with the option's name. ``--help`` of a group lists each subcommand with its
whole first sentence: click cuts them off in the middle of what a reader wants to know.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from duepoint import errors
from duepoint.expressions import durations, timezones

#: Largest file that an option may name, in bytes.
_LARGEST_FILE = 32 * 1024 * 1024

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

# -- types of options ----------------------------------------------------------------------------


class Converted(click.ParamType):  # type: ignore[type-arg]  # newer versions of click only
    """A type that calls ``read`` with the text, and turns its errors into an InvalidSetting."""

    name = "text"

    def __init__(self, read: Callable[[str], Any]) -> None:
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401, ARG002 - click's signature
        if param is None or not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except (ValueError, errors.InvalidExpression) as error:
            is_option = isinstance(param, click.Option)
            name = param.opts[0] if is_option else (param.metavar or "").strip("[].")
            raise errors.InvalidSetting(name, str(error)) from None


def _name(text: str) -> str:
    is_path = "/" in text or text in (".", "..")
    if not text or len(text) > 253 or not text.isprintable() or " " in text or is_path:
        raise ValueError(f"{errors.quoted(text)} is not a valid name of an object")
    return text


def _schedule_name(text: str) -> str:
    kind, slash, name = text.rpartition("/")
    if kind.lower() in _SCHEDULE_KINDS:
        return _name(name)
    if slash and kind and name and "/" not in kind:
        shown = f"write the name alone, and a namespace with -n: {name} -n {kind}"
        raise ValueError(f"{errors.quoted(text)}: {shown}")
    return _name(text)


def namespaced(text: str) -> str:
    """Check ``namespace/name`` of an object; raises ValueError."""
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name) or "/" in name or not text.isprintable() or " " in text:
        raise ValueError(f"{errors.quoted(text)}: write namespace/name, such as reports/nightly")
    return text


def payload(text: str) -> Any:  # noqa: ANN401 - a msgspec.Raw
    """Read JSON from the text, or from the file that it names; raises ValueError."""
    data = content(f"--payload {text}", text[1:]) if text.startswith("@") else text.encode()
    import msgspec  # noqa: PLC0415 - commands without a cluster start without it

    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        example = "write it in quotes, such as '{\"order\": 17}'"
        raise ValueError(f"is not JSON ({error}); {example}") from None
    return msgspec.Raw(data)


#: A payload: JSON, or @FILE with it.
PAYLOAD = Converted(payload)
#: The name of an object.
NAME = Converted(_name)
#: The words before the slash in a Schedule's name, as printed by ``kubectl get -o name``.
_SCHEDULE_KINDS = frozenset(
    f"{kind}{group}"
    for kind in ("schedule", "schedules", "sched", "dps")
    for group in ("", ".duepoint.dev", ".v1alpha1.duepoint.dev")
)
#: The name of a Schedule, in the forms of kubectl: ``nightly`` or ``schedule/nightly``.
SCHEDULE_NAME = Converted(_schedule_name)
#: The first argument of a command about a Schedule.
schedule_name = click.argument("name", metavar="NAME", type=SCHEDULE_NAME)
#: A time zone that the engine has data for.
ZONE = Converted(lambda text: timezones.load(text).name)
#: A duration, in microseconds.
DURATION_US = Converted(durations.parse_duration_us)

# -- options -------------------------------------------------------------------------------------


def together(*options: Callable[[CommandT], CommandT]) -> Callable[[CommandT], CommandT]:
    """Return one decorator for several options, in their order."""

    def decorate(command: CommandT) -> CommandT:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def gathered(
    name: str, make: Callable[..., Any], *options: Callable[[Any], Any]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return options whose values reach the command as one argument, ``name=make(**values)``."""
    own = tuple(inspect.signature(make).parameters)

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def gather(**given: Any) -> Any:  # noqa: ANN401 - click's values
            made = make(**{each: given.pop(each) for each in own if each in given})
            return command(**given, **{name: made})

        gathering: Callable[..., Any] = together(*options)(gather)
        return gathering

    return decorate


def of_settings(
    fields: Iterable[dataclasses.Field[Any]],
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a flag for each setting; its help also names the environment variable."""
    from duepoint import settings  # noqa: PLC0415 - a tenth of the start of the other commands

    return together(
        *(
            click.option(
                settings.flag(field.name),
                field.name,
                help=f"{field.metadata['help']} [{settings.variable(field.name)}]",
                metavar="VALUE",
            )
            for field in fields
        )
    )


#: ``--output`` of every command; by default a table or text for people, even in a pipe.
output_format = click.option(
    "--output",
    "-o",
    "form",
    metavar="table|wide|json|yaml",
    type=click.Choice(("table", "wide", "json", "yaml"), case_sensitive=False),
    default="table",
    show_default=True,
    help="json is one object a line, yaml one document each.",
)


def named_files(paths: tuple[str, ...], filenames: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names by position and with -f; raises errors.InvalidSetting if there are none."""
    if given := (*paths, *filenames):
        return given
    message = "is missing: write a file or a folder, or - for standard input"
    raise errors.InvalidSetting("FILE", message)


def _files(*, paths: tuple[str, ...], filenames: tuple[str, ...]) -> tuple[str, ...]:
    return _files_if_any(paths=named_files(paths, filenames), filenames=())


def _files_if_any(*, paths: tuple[str, ...], filenames: tuple[str, ...]) -> tuple[str, ...]:
    """Return these files, with the files below folders by name; raises errors.InvalidSetting."""
    found: list[str] = []
    for name in (*paths, *filenames):
        if name == "-" or not Path(name).is_dir():
            found.append(name)
        elif below := list(files_below(name)):
            found += below
        else:
            ends = ", ".join(MANIFESTS)
            message = f"{errors.quoted(name)} has no file that ends in {ends}, nor have its folders"
            raise errors.InvalidSetting("FILE", message)
    return tuple(found)


def files_below(folder: str) -> Iterator[str]:
    """Yield the manifests in a folder and its subfolders, by name, without hidden ones."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        for name in sorted(names):
            if name.endswith(MANIFESTS) and not name.startswith("."):
                yield f"{place.rstrip('/')}/{name}"


#: Suffixes of the files that are read from a folder, the same as kubectl's.
MANIFESTS = (".yaml", ".yml", ".json")
_FILES = (
    click.argument("paths", metavar="[FILE|FOLDER]...", nargs=-1),
    click.option(
        "--filename",
        "-f",
        "filenames",
        metavar="FILE",
        multiple=True,
        help="The same as FILE: YAML or JSON, or a folder with its folders; - is standard input."
        " May be repeated.",
    ),
)
#: Files and folders of manifests, by position or with -f, as ``files``.
files = gathered("files", _files, *_FILES)
#: The same if files are optional; without any, ``files`` is empty.
files_if_any = gathered("files", _files_if_any, *_FILES)
namespace = click.option(
    "--namespace",
    "-n",
    default="default",
    metavar="NAME",
    show_default=True,
    help="Namespace of objects that name none; H and jitter hash it.",
)
only_namespace = click.option(
    "--namespace", "-n", metavar="NAME", type=NAME, help="Only this namespace."
)
only_schedule = click.option(
    "--schedule", "-s", metavar="NAME|UID", type=NAME, help="Only this Schedule."
)


def count(most: int) -> Callable[[CommandT], CommandT]:
    """Return the option for how many rows to show at most."""
    return click.option(
        "--count",
        default="20",
        metavar="N",
        type=click.IntRange(1, most),
        show_default=True,
        help="How many.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A place in a cluster: kubeconfig, context and namespace; None = kubectl's defaults.

    Attributes:
        everywhere: all namespaces.
    """

    kubeconfig: Path | None
    context: str | None
    namespace: str | None
    everywhere: bool = False

    def __post_init__(self) -> None:
        """Raise errors.InvalidSetting if both all namespaces and one are requested."""
        if self.everywhere and self.namespace is not None:
            raise errors.InvalidSetting("--all-namespaces", "leave out -n, or write -n alone")


of_cluster = together(
    click.option(
        "--kubeconfig", type=click.Path(path_type=Path), help="Unset: as kubectl finds it."
    ),
    click.option("--context", metavar="NAME", help="Of the kubeconfig; unset: the current one."),
)


def timeout_seconds(text: str) -> float | None:
    """Read a timeout as kubectl does: a duration such as 30s or 2m; 0 = no limit."""
    if text == "0":
        return None
    return durations.parse_duration_us(text) / 1e6 or None


namespace_of_cluster = click.option(
    "--namespace",
    "-n",
    metavar="NAME",
    type=NAME,
    help="Unset: the namespace of the context.",
)
#: ``--timeout`` of a command that waits, as ``patience_seconds``.
patience = click.option(
    "--timeout",
    "patience_seconds",
    metavar="DURATION",
    type=Converted(timeout_seconds),
    help="Wait no longer than this, such as 30s; 0 or unset: for ever.",
)
#: The options for the place of one object, as ``place``.
of_one = gathered("place", Place, namespace_of_cluster, of_cluster)
#: The options for the place of many objects, as ``place``.
of_many = gathered(
    "place",
    Place,
    namespace_of_cluster,
    click.option("--all-namespaces", "-A", "everywhere", is_flag=True, help="In every namespace."),
    of_cluster,
)


def confirmed(question: str, *, option: str, without_terminal: str) -> bool:
    """Ask the user at the terminal, and return whether they agree.

    Raises:
        errors.InvalidSetting: there is no terminal to ask on; ``without_terminal`` says what to
            write for ``option``.
    """
    if not sys.stdin.isatty():
        raise errors.InvalidSetting(option, without_terminal)
    return click.confirm(question, err=True)


# -- files ---------------------------------------------------------------------------------------


def text(name: str, file: str) -> str:
    """Return a file's text without surrounding white space; raises errors.InvalidSetting."""
    try:
        return content(name, file).decode().strip()
    except UnicodeDecodeError:
        raise errors.InvalidSetting(name, "is not text") from None


def content(name: str, file: str) -> bytes:
    """Return a file's bytes, ``-`` for standard input.

    Raises:
        errors.InvalidSetting: with this name; it cannot be read, or is too large or endless.
    """
    try:
        if file == "-":
            data = sys.stdin.buffer.read(_LARGEST_FILE + 1)
        else:
            with Path(file).open("rb") as opened:
                data = opened.read(_LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise errors.InvalidSetting(name, f"cannot be read: {reason}") from None
    if len(data) > _LARGEST_FILE:  # the API server accepts 1.5 MB for an object
        raise errors.InvalidSetting(name, "is larger than 32 MiB; split it into several files")
    return data


# -- groups of subcommands -------------------------------------------------------------------------


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
