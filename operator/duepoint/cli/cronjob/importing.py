"""``duepoint import cronjob``: prints the CronJobs of files as Schedules.

Manifests go to standard output, each after comments that say what will differ. Each object is
written before the next is read. All readers of Kubernetes manifests read the same values from this
YAML: readers differ in how they interpret bare words (``on``, ``1e3``, ``12:30``), so such a text
is always quoted.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterable
from typing import Any

import click
import yaml

from duepoint.cli import grouping, instants, options, output
from duepoint.cli.check import manifests
from duepoint.cli.check.manifests import Manifest
from duepoint.cli.cronjob import conversion

_Base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

_BARE = re.compile(r"[A-Za-z/][A-Za-z0-9_./@=+-]*(?::[A-Za-z0-9_./@=+-]+)*", re.ASCII)
_WORDS = frozenset(
    "y n yes no on off true false null nan inf infinity".split()  # noqa: SIM905 - a list of words
)
#: Wider than any line, so that no text is folded.
_WIDTH = 1 << 20


def text_of(value: object) -> str:
    """Return one YAML document, without ``---`` and with a line break at its end."""
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
        style = "|"  # yaml itself uses quotes if a block cannot represent the text
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


def _show(found: Iterable[Manifest], **to: Any) -> None:  # noqa: ANN401 - of conversion.imported
    """Print everything; exits with a code if something was wrong or there was no CronJob.

    Each document is written at once, so that a thousand take no more memory than one.
    """
    made = wrong = passed_over = 0
    for source in found:
        schedule, notes = conversion.imported(source, **to)
        if schedule is None:
            wrong += bool(notes)
            passed_over += not notes
            for problem in notes:
                output.complain(str(problem), source.where)
            continue
        made += 1
        _comment(_HEAD if made == 1 else ())
        sys.stdout.write("---\n")
        _comment([source.where, *map(str, notes)])
        sys.stdout.write(text_of(schedule))
    if made and not sys.stdout.isatty():
        output.complain(" ".join(_HEAD))
    if passed_over:
        output.complain(f"{passed_over} of another kind passed over")
    if wrong:
        if made:
            output.complain(f"{wrong} could not be ported, for the reasons above; {made} printed")
        raise click.exceptions.Exit(output.BAD_INPUT)
    if not made:
        output.complain("there is no CronJob")


def _comment(texts: Iterable[str]) -> None:
    sys.stdout.writelines(f"# {output.one_line(text)}\n" for text in texts)


@click.group("import", cls=grouping.CommandGroup)
def importing() -> None:
    """Print Schedules made of what another scheduler runs."""


@importing.command("cronjob")
@options.files
@click.option(
    "--namespace", "-n", metavar="NAME", type=options.NAME,
    help="Written into objects that name none.",
)  # fmt: skip
@click.option(
    "--time-zone", metavar="ZONE", type=options.ZONE,
    help="Written where a CronJob names no zone: that of its controller manager. Unset: Etc/UTC.",
)  # fmt: skip
def cronjob(*, files: tuple[str, ...], namespace: str | None, time_zone: str | None) -> None:
    """Print CronJobs of files as Schedules, and say what will differ.

    Those of a cluster come from kubectl, by standard input.

    Example: kubectl get cronjobs -A -o yaml | duepoint import cronjob - > schedules.yaml
    """
    found = itertools.chain.from_iterable(map(manifests.read, files))
    _show(found, namespace=namespace, time_zone=time_zone, now_us=instants.now_us())
