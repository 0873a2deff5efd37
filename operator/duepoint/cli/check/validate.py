"""``duepoint validate``: what a cluster would refuse or do otherwise, before it is asked.

Every problem of every object of every file is one line on standard error, with file, document and
field; what is valid is told on standard output, with what is worth knowing. Kinds that are not
ours are passed over.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import click

from duepoint import errors
from duepoint.cli import instants, options, output
from duepoint.cli.check import checks, doubts, manifests, structure
from duepoint.cli.check.checks import Checked
from duepoint.cli.check.manifests import Problem, Unreadable
from duepoint.cli.cronjob import porting
from duepoint.schedules import slots


@click.command("validate")
@options.files
@options.namespace
@click.option(
    "--newer-kubernetes", is_flag=True,
    help=f"Only note fields of a jobTemplate that Kubernetes {structure.KUBERNETES} does not have.",
)  # fmt: skip
@click.option("--output", "-o", "form", metavar="json|text", default="text", help="Unset: text.")
def validate(*, files: tuple[str, ...], namespace: str, newer_kubernetes: bool, form: str) -> None:
    """Check Schedules, ScheduleRuns and CronJobs in YAML or JSON files.

    A CronJob is checked as the Schedule that it becomes by changing apiVersion and kind, and what
    it would do otherwise is told.
    """
    show = {"json": _show_json, "text": _show_text}[
        output.choice("--output", form, ("json", "text"))
    ]
    now_us = instants.now_us()
    seen = wrong = 0
    for found in _checked(files, namespace, now_us, newer_kubernetes=newer_kubernetes):
        seen += 1
        wrong += isinstance(found, Unreadable) or not found.is_valid
        show(found, now_us)
    if wrong:
        raise click.exceptions.Exit(output.BAD_INPUT)
    if not seen:
        output.complain(f"{', '.join(files)}: there is no Schedule, ScheduleRun or CronJob")
        raise click.exceptions.Exit(output.NOTHING)


def _checked(
    files: tuple[str, ...], namespace: str, now_us: int, *, newer_kubernetes: bool
) -> Iterator[Checked | Unreadable]:
    for file in files:
        for found in manifests.read(file):
            if isinstance(found, Unreadable):
                yield found
            elif judged := checks.check(
                found, namespace=namespace, created_us=now_us, newer_kubernetes=newer_kubernetes
            ):
                yield judged


def _show_text(found: Checked | Unreadable, now_us: int) -> None:
    if isinstance(found, Unreadable):
        output.complain(found.message, found.where)
        return
    where = found.manifest.where
    if found.is_valid:
        output.say(f"{where}: {_standing(found, now_us)}")
    for problem in found.problems:
        if not problem.is_note:
            output.complain(str(problem), where)
    for note in _notes(found, now_us):
        output.say(f"  {note}")


def _show_json(found: Checked | Unreadable, now_us: int) -> None:
    if isinstance(found, Unreadable):
        row = {
            "file": found.file, "document": found.document, "valid": False,
            "problems": [{"field": "", "message": found.message}],
        }  # fmt: skip
    else:
        manifest = found.manifest
        row = {
            "file": manifest.file,
            "document": manifest.document,
            "item": manifest.item,
            "kind": manifest.kind,
            "name": manifest.name,
            "valid": found.is_valid,
            "problems": [_fields(each) for each in found.problems if not each.is_note],
            "notes": [_fields(each) for each in _notes(found, now_us)],
        }
    sys.stdout.write(json.dumps(row) + "\n")


def _fields(problem: Problem) -> dict[str, str]:
    return {"field": problem.path, "message": problem.message}


def _notes(found: Checked, now_us: int) -> list[Problem]:
    notes = [problem for problem in found.problems if problem.is_note]
    if found.spec is None:
        return notes
    notes += checks.jitter_note(found.spec, now_us)
    notes += doubts.notes(found.spec)
    notes += checks.own_stream_notes(found.spec)
    if found.manifest.kind == checks.CRONJOB:
        notes += porting.notes(found.manifest.content, found.spec, now_us)
    return notes


def _standing(found: Checked, now_us: int) -> str:
    """What becomes of it, in a few words."""
    if found.spec is None:
        return "valid"
    spec = found.spec
    valid = "valid as a Schedule" if found.manifest.kind == checks.CRONJOB else "valid"
    if spec.rule.timing.suspend and spec.rule.timing.suspend_until_us is None:
        return f"{valid}, suspended"
    timeline = slots.for_rule(spec.rule, identity=spec.identity, created_us=spec.created_us)
    following = timeline.next_after(now_us)
    if following is None:
        return f"{valid}, but no slot is left"
    return f"{valid}, next {instants.utc_text(following.slot_us)}"


def accepted(files: tuple[str, ...], namespace: str, created_us: int) -> Iterator[Checked]:
    """The Schedules of the files, for a command that needs them all to be valid.

    Raises:
        errors.InvalidSetting: one is not, or there is none.
    """
    for file in files:
        for found in manifests.read(file):
            if isinstance(found, Unreadable):
                raise errors.InvalidSetting(found.where, found.message)
            judged = checks.check(
                found, namespace=namespace, created_us=created_us, newer_kubernetes=True
            )
            if judged is None:
                continue
            for problem in judged.problems:
                if not problem.is_note:
                    raise errors.InvalidSetting(judged.manifest.where, str(problem))
            if judged.spec is not None:
                yield judged
