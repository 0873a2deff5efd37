"""``duepoint validate``: reports what a cluster would refuse, or do differently from the intent.

Every problem of every object in every file is one line on standard error, with file, document and
field. Valid objects are listed on standard output, with notes on fields that the API server accepts
but that probably do not do what the author wants. Kinds that are not ours are ignored.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import click

from duepoint import errors
from duepoint.cli import instants, options, output
from duepoint.cli.check import checks, manifests
from duepoint.cli.check.checks import CheckedManifest
from duepoint.cli.check.manifests import Manifest, Problem, note
from duepoint.cli.cronjob import conversion
from duepoint.expressions import advice
from duepoint.schedules import slots
from duepoint.schedules import spec as specs


def warnings(spec: specs.ScheduleSpec, now_us: int) -> Iterator[Problem]:
    """Yield warnings for an accepted spec: fields that are valid but probably not intended."""
    timeline = slots.for_rule(spec.rule, identity=spec.identity, created_us=spec.created_us)
    coming = timeline.upcoming(now_us, 2)
    if len(coming) == 2 and coming[1] - coming[0] < spec.rule.timing.jitter_ms * 1_000:
        yield note("spec.jitter", "is longer than the distance to the next slot, and is cut to it")
    texts = spec.rule.timing.schedules
    for index, text in enumerate(texts):
        name = "spec.schedule" if len(texts) == 1 else f"spec.schedules[{index}]"
        yield from (note(name, message) for message in advice.of_other_schedulers(text))
    yield from _of_suspension(spec, now_us)


def _of_suspension(spec: specs.ScheduleSpec, now_us: int) -> Iterator[Problem]:
    """Yield a warning for a suspension that has no effect."""
    timing = spec.rule.timing
    until_us = timing.suspend_until_us
    if until_us is None:
        return
    if not timing.suspend:
        yield note("spec.suspendUntil", "does nothing without suspend: true")
    elif until_us <= now_us:
        yield note("spec.suspendUntil", "has passed, so the Schedule is not suspended")


@click.command("validate")
@options.files
@options.namespace
@options.output_format
def validate(*, files: tuple[str, ...], namespace: str, form: str) -> None:
    """Check Schedules, ScheduleSets, ScheduleRuns and CronJobs in YAML or JSON files.

    A CronJob is checked as the Schedule that it becomes by changing apiVersion and kind, with notes
    on what it would do otherwise.

    Example: duepoint validate schedules/
    """
    now_us = instants.now_us()
    seen = wrong = 0
    for found in _checked(files, namespace, now_us):
        seen += 1
        wrong += not found.is_valid
        _show(found, form, now_us)
    if wrong:
        raise click.exceptions.Exit(output.BAD_INPUT)
    if not seen:
        output.complain(
            f"{', '.join(files)}: there is no Schedule, ScheduleSet, ScheduleRun or CronJob"
        )


def _checked(files: tuple[str, ...], namespace: str, now_us: int) -> Iterator[CheckedManifest]:
    for manifest in itertools.chain.from_iterable(map(manifests.read, files)):
        if found := checks.check(manifest, namespace=namespace, created_us=now_us):
            yield found


def _show(found: CheckedManifest, form: str, now_us: int) -> None:
    manifest = found.manifest
    problems = [problem for problem in found.problems if not problem.is_note]
    notes = [problem for problem in found.problems if problem.is_note]
    if found.spec is not None:
        notes += warnings(found.spec, now_us)
        if manifest.kind == checks.CRONJOB:
            notes += conversion.differences_of(manifest.content, found.spec, now_us)
    if output.is_data(form):
        row = {
            "file": manifest.file,
            "document": manifest.document,
            "item": manifest.item,
            "kind": manifest.kind,
            "name": manifest.name,
            "valid": found.is_valid,
            "problems": [_fields(each) for each in problems],
            "notes": [_fields(each) for each in notes],
        }
        output.write([row], form)
        return
    if found.is_valid:
        output.say(f"{manifest.where}: {_standing(found, now_us)}")
    for problem in problems:
        output.complain(str(problem), manifest.where)
    for each in notes:
        output.say(f"  {each}")


def _fields(problem: Problem) -> dict[str, str]:
    return {"field": problem.path, "message": problem.message}


def _standing(found: CheckedManifest, now_us: int) -> str:
    """Return what a valid object will do, in a few words."""
    valid = "valid as a Schedule" if found.manifest.kind == checks.CRONJOB else "valid"
    if (spec := found.spec) is None:
        return valid
    timeline = slots.for_rule(spec.rule, identity=spec.identity, created_us=spec.created_us)
    following = timeline.next_after(now_us)
    if following is not None:
        return f"{valid}, next {instants.utc_text(following.slot_us)}"
    return f"{valid}, suspended" if spec.rule.timing.suspend else f"{valid}, without a next slot"


def accepted(
    files: tuple[str, ...], namespace: str, created_us: int
) -> Iterator[tuple[Manifest, specs.ScheduleSpec]]:
    """Yield the Schedules of the files; raises errors.InvalidSetting if one is not valid."""
    for found in _checked(files, namespace, created_us):
        for problem in found.problems:
            if not problem.is_note:
                raise errors.InvalidSetting(found.manifest.where, str(problem))
        if found.spec is not None:
            yield found.manifest, found.spec
