"""What ``duepoint import`` prints: Schedules with comments, and the same told beside them.

Manifests go to standard output, each after comments that tell what will differ. Where standard
output is no terminal the same is told on standard error, since a pipe swallows comments. One
object is written before the next is looked at.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from typing import Any

import click

from duepoint.cli import output
from duepoint.cli.check.manifests import Unreadable
from duepoint.cli.cronjob import importyaml
from duepoint.cli.cronjob.importjudging import Imported

_HEAD = (
    "Schedules made of CronJobs; what will differ stands before each.",
    "Suspend or delete a CronJob before its Schedule is applied, or both will run:",
    "kubectl delete cronjob NAME --cascade=orphan",
)


def show(found: Iterable[Imported | Unreadable | None], form: str) -> None:
    """Print everything; ends with an exit code where something was wrong, or nothing there."""
    writer = WRITERS[form]()
    made = wrong = passed_over = 0
    general: dict[str, None] = {}
    for one in found:
        if one is None:
            passed_over += 1
        elif isinstance(one, Unreadable):
            wrong += 1
            output.complain(one.message, one.where)
        elif one.schedule is None:
            wrong += 1
            _complain(one)
        else:
            made += 1
            general |= dict.fromkeys(str(note) for note in one.notes if not note.path)
            writer.add(one)
            _tell_beside(one)
    writer.end()
    _tell_at_end(made, passed_over, list(general))
    if wrong and made:
        output.complain(f"{wrong} could not be ported, for the reasons above; {made} printed")
    if wrong:
        raise click.exceptions.Exit(output.BAD_INPUT)
    if not made:
        output.complain("there is no CronJob")
        raise click.exceptions.Exit(output.NOTHING)


def _complain(refused: Imported) -> None:
    for problem in refused.problems:
        output.complain(str(problem), refused.source.where)


def _tell_beside(one: Imported) -> None:
    if sys.stdout.isatty():
        return
    for note in one.notes:
        if note.path:
            output.complain(str(note), f"CronJob {one.source.name}")


def _tell_at_end(made: int, passed_over: int, general: list[str]) -> None:
    if made and not sys.stdout.isatty():
        for text in general:
            output.complain(text, "every CronJob")
        output.complain(" ".join(_HEAD[1:]))
    if passed_over:
        were = "object of another kind was" if passed_over == 1 else "objects of other kinds were"
        output.complain(f"{passed_over} {were} passed over")


class _Yaml:
    """Documents with comments."""

    def __init__(self) -> None:
        self._is_empty = True

    def add(self, one: Imported) -> None:
        """Write one at once, so that a thousand take no more memory than one."""
        if self._is_empty:
            self._is_empty = False
            _comment(_HEAD)
        sys.stdout.write("---\n")
        _comment([one.source.where, *(str(note) for note in one.notes)])
        sys.stdout.write(importyaml.text_of(one.schedule))

    def end(self) -> None:
        pass


class _Json:
    """One List, because JSON knows neither documents nor comments."""

    def __init__(self) -> None:
        self._items: list[Any] = []

    def add(self, one: Imported) -> None:
        self._items.append(one.schedule)

    def end(self) -> None:
        if self._items:
            made = {"apiVersion": "v1", "kind": "List", "items": self._items}
            sys.stdout.write(json.dumps(made, indent=2) + "\n")


WRITERS: dict[str, Callable[[], _Yaml | _Json]] = {"yaml": _Yaml, "json": _Json}


def _comment(texts: Iterable[str]) -> None:
    for text in texts:
        sys.stdout.write(f"# {output.one_line(text)}\n")
