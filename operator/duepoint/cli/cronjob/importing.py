"""``duepoint import cronjob``: CronJobs of files or a cluster, printed as Schedules.

Manifests go to standard output, each after comments that say what will differ. Where standard
output is no terminal the same goes to standard error, too, since a pipe swallows comments. One
object is written before the next is looked at. The YAML is written so that every reader of
Kubernetes manifests takes it for the same values: readers differ in what they make of a bare word
(``on``, ``1e3``, ``12:30``), so a text stands bare only where it is no such word.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import sys
import urllib.parse
from collections.abc import Iterable
from typing import Any

import click
import msgspec
import yaml

from duepoint import errors
from duepoint.cli import grouping, instants, options, output
from duepoint.cli.check import manifests
from duepoint.cli.check.manifests import Manifest
from duepoint.cli.cronjob import conversion
from duepoint.cli.cronjob.conversion import Imported
from duepoint.kube import errors as kube_errors
from duepoint.kube import port

_Base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

_BARE = re.compile(r"[A-Za-z/][A-Za-z0-9_./@=+-]*(?::[A-Za-z0-9_./@=+-]+)*", re.ASCII)
_WORDS = frozenset(
    "y n yes no on off true false null nan inf infinity".split()  # noqa: SIM905 - a list of words
)
#: Wider than any line, so that nothing is folded.
_WIDTH = 1 << 20


def text_of(value: object) -> str:
    """One document, without ``---`` and with a line break at its end."""
    for allow_unicode in (True, False):
        written: str = yaml.dump(
            value, Dumper=_Dumper, sort_keys=False, allow_unicode=allow_unicode, width=_WIDTH
        )
        if not output.deceives(written):
            break
    return written


class _Dumper(_Base):  # type: ignore[misc]
    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - yaml's signature
        return True


def _text(dumper: Any, text: str) -> Any:  # noqa: ANN401 - yaml's own types
    if "\n" in text:
        style = "|"  # yaml itself falls back to quotes where a block could not hold it
    elif _BARE.fullmatch(text) and text.lower() not in _WORDS:
        style = None
    else:
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


_HEAD = (
    "Schedules made of CronJobs; what will differ stands before each.",
    "Suspend or delete a CronJob before its Schedule is applied, or both will run:",
    "kubectl delete cronjob NAME --cascade=orphan",
)


def _show(found: Iterable[Imported | None], form: str) -> None:
    """Print everything; ends with an exit code where something was wrong, or nothing there.

    Each document is written at once, so that a thousand take no more memory than one.
    """
    items: list[Any] = []
    made = wrong = passed_over = 0
    general: dict[str, None] = {}
    for imported in found:
        if imported is None:
            passed_over += 1
        elif imported.schedule is None:
            wrong += 1
            for problem in imported.problems:
                output.complain(str(problem), imported.source.where)
        else:
            made += 1
            if form == "json":
                items.append(imported.schedule)
            else:
                _comment(_HEAD if made == 1 else ())
                sys.stdout.write("---\n")
                _comment([imported.source.where, *map(str, imported.notes)])
                sys.stdout.write(text_of(imported.schedule))
            general |= dict.fromkeys(str(note) for note in imported.notes if not note.path)
            own = (str(note) for note in imported.notes if note.path)
            _repeat(own, f"CronJob {imported.source.name}")
    if items:  # one List, because JSON knows neither documents nor comments
        listed = {"apiVersion": "v1", "kind": "List", "items": items}
        sys.stdout.write(json.dumps(listed, indent=2) + "\n")
    if made:
        _repeat(general, "every CronJob")
        _repeat([" ".join(_HEAD[1:])])
    _end(made, wrong, passed_over)


def _end(made: int, wrong: int, passed_over: int) -> None:
    if passed_over:
        were = "object of another kind was" if passed_over == 1 else "objects of other kinds were"
        output.complain(f"{passed_over} {were} passed over")
    if wrong:
        if made:
            output.complain(f"{wrong} could not be ported, for the reasons above; {made} printed")
        raise click.exceptions.Exit(output.BAD_INPUT)
    if not made:
        output.complain("there is no CronJob")


def _repeat(notes: Iterable[str], *where: str) -> None:
    """Notes on standard error, too, where comments are not seen."""
    if not sys.stdout.isatty():
        for text in notes:
            output.complain(text, *where)


def _comment(texts: Iterable[str]) -> None:
    sys.stdout.writelines(f"# {output.one_line(text)}\n" for text in texts)


@click.group("import", cls=grouping.CommandGroup)
def importing() -> None:
    """Print Schedules made of what another scheduler runs."""


@importing.command("cronjob")
@click.argument("words", metavar="[FILE|FOLDER|NAME]...", nargs=-1)
@click.option(
    "--filename", "-f", "files", metavar="FILE", multiple=True,
    help="The same as FILE: YAML or JSON, or a folder with its folders; - is standard input. May be"
    " repeated. Without a file the cluster is asked.",
)  # fmt: skip
@click.option("--selector", "-l", metavar="LABELS", help="Of the cluster: only such CronJobs.")
@click.option(
    "--time-zone", metavar="ZONE", type=options.ZONE,
    help="Written where a CronJob names no zone: that of its controller manager. Unset: Etc/UTC.",
)  # fmt: skip
@click.option(
    "--output", "-o", "form", metavar="yaml|json", type=options.words("yaml", "json"),
    default="yaml", show_default=True,
)  # fmt: skip
@options.of_many
def cronjob(
    *,
    words: tuple[str, ...],
    files: tuple[str, ...],
    selector: str | None,
    time_zone: str | None,
    form: str,
    place: options.Place,
) -> None:
    """Print CronJobs of files or of a cluster as Schedules, and say what will differ.

    A word is a file if it is -, has a / or ends as manifests do, and else the NAME of a CronJob.
    Nothing is changed in the cluster. With files, -n is written into objects that name none.

    Example: duepoint import cronjob -A > schedules.yaml
    """
    names = tuple(word for word in words if not _is_file(word))
    files += tuple(word for word in words if _is_file(word))
    if files and (names or place.everywhere or selector):
        raise errors.InvalidSetting("FILE", "a file is imported whole; leave out names, -A and -l")
    if names and (place.everywhere or selector):
        raise errors.InvalidSetting("NAME", "leave out -A and -l, or the names")
    if not (files or names or place.namespace or place.everywhere or selector):
        raise errors.InvalidSetting(
            "import cronjob", "write a FILE, a NAME, -n NAMESPACE or --all-namespaces"
        )
    if files:
        paths = options.files_of(files)
        found: Iterable[Manifest] = itertools.chain.from_iterable(map(manifests.read, paths))
    else:
        found = asyncio.run(_of_cluster(place, names, selector))
    made = conversion.imported(
        found,
        namespace=place.namespace if files else None,
        time_zone=time_zone,
        now_us=instants.now_us(),
    )
    _show(made, form)


def _is_file(word: str) -> bool:
    return word == "-" or "/" in word or word.endswith(options.MANIFESTS)


# -- the CronJobs of a cluster -------------------------------------------------------------------


async def _of_cluster(
    place: options.Place, names: tuple[str, ...], selector: str | None
) -> list[Manifest]:
    """These CronJobs or all, or in the place of one why it could not be read.

    A list is whole or an error: half of the CronJobs would be taken for all of them. Raises
    errors.DuepointError where the cluster cannot be asked, or does not answer.
    """
    from duepoint.cli import cluster  # noqa: PLC0415 - files need no cluster

    async with cluster.session(place) as server:
        namespace = None if place.everywhere else server.namespace
        path = port.path("/apis/batch/v1", namespace, "cronjobs")
        if names:
            return [await _named(server.api, path, name) for name in names]
        return [_manifest(item) for item in await cluster.listed(server, path, selector)]


async def _named(api: port.Api, path: str, name: str) -> Manifest:
    try:
        body = await api.request("GET", f"{path}/{urllib.parse.quote(name, safe='')}")
    except kube_errors.NotFound:
        trouble = f"does not exist; for a file or folder of this name write ./{name}"
        return Manifest(file=f"CronJob {name}", document=0, trouble=trouble)
    except kube_errors.Forbidden as error:  # rights may name single objects
        return Manifest(file=f"CronJob {name}", document=0, trouble=str(error))
    return _manifest(msgspec.json.decode(body))


def _manifest(item: dict[str, Any]) -> Manifest:
    head = {"apiVersion": "batch/v1", "kind": "CronJob"}
    content = {**head, "metadata": item["metadata"], "spec": item["spec"]}
    return Manifest(file="cluster", document=0, content=content)
