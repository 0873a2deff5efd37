"""``duepoint validate``: what a cluster would refuse or do otherwise, before it is asked.

Every problem of every object of every file is one line on standard error, with file, document and
field; valid objects are listed on standard output, with notes about what the API server takes and
what will most probably not do what its author wants. Kinds that are not ours are passed over.
"""

from __future__ import annotations

import json
import sys
import urllib.parse
from collections.abc import Iterator

import click

from duepoint import errors, expressions
from duepoint.cli import instants, options, output
from duepoint.cli.check import checks, manifests, structure
from duepoint.cli.check.checks import CheckedManifest
from duepoint.cli.check.manifests import Problem, Unreadable
from duepoint.cli.cronjob import notes as cronjob_notes
from duepoint.net import addresses
from duepoint.schedules import actions, ownstreams, slots
from duepoint.schedules import spec as specs

#: Names that lead into a cluster or a machine, even if they resolve elsewhere.
_PRIVATE_NAMES = (".svc", ".local", ".internal", ".localhost", ".home.arpa")


def doubts(spec: specs.ScheduleSpec, now_us: int) -> Iterator[Problem]:
    """What is doubtful about an accepted spec."""
    yield from _of_jitter(spec, now_us)
    yield from _of_past_times(spec)
    yield from _of_plain_http(spec)
    yield from _of_own_stream(spec)


def _of_jitter(spec: specs.ScheduleSpec, from_us: int) -> Iterator[Problem]:
    """A jitter longer than the distance between slots is cut, slot by slot."""
    jitter_us = spec.rule.timing.jitter_ms * 1_000
    timeline = slots.for_rule(spec.rule, identity=spec.identity, created_us=spec.created_us)
    coming = timeline.upcoming(from_us, 2)
    if len(coming) == 2 and coming[1] - coming[0] < jitter_us:
        yield Problem(
            path="spec.jitter",
            message="is longer than the distance to the next slot, and is cut to it",
            is_note=True,
        )


def _of_own_stream(spec: specs.ScheduleSpec) -> Iterator[Problem]:
    """What an installation may refuse of a stream in Duepoint's own Redis."""
    stream = ownstreams.own(spec.action.target)
    if stream is None:
        return
    yield Problem(
        path="spec.stream",
        message="goes to Duepoint's own Redis; an installation without streams there"
        " (ownStreams.enabled: false) refuses it: name another Redis in connectionSecretRef, or"
        " write kafka or webhook instead",
        is_note=True,
    )
    most = ownstreams.MAX_LENGTH
    if stream.max_length is not None and stream.max_length > most:
        yield Problem(
            path="spec.stream.maxLength",
            message=f"{stream.max_length} is refused unless the installation's"
            f" ownStreams.maxLength is as large; it is {most} by default",
            is_note=True,
        )


def _of_past_times(spec: specs.ScheduleSpec) -> Iterator[Problem]:
    """Each ``@at`` before the creation: it runs only where a deadline covers it."""
    timing = spec.rule.timing
    texts = timing.schedules
    all_once = all(_is_once(text) for text in texts)
    for index, text in enumerate(texts):
        at_us = _past_us(text, spec)
        if at_us is None:
            continue
        name = "spec.schedule" if len(texts) == 1 else f"spec.schedules[{index}]"
        when = instants.utc_text(at_us)
        deadline_us = spec.rule.policy.deadline_us or 0
        is_covered = all_once and not timing.suspend and at_us >= spec.created_us - deadline_us
        if is_covered:
            message = f"{when} has passed; startingDeadlineSeconds covers it, so it runs at once"
        else:
            message = f"{when} has passed and does not run; write a time to come"
        yield Problem(path=name, message=message, is_note=True)


def _past_us(text: str, spec: specs.ScheduleSpec) -> int | None:
    """The instant of an ``@at`` that had passed when the object was created; None for others."""
    if not _is_once(text):
        return None
    compiled = expressions.compile_expression(
        text,
        time_zone=spec.rule.timing.time_zone,
        anchor_us=spec.created_us,
        from_us=spec.created_us,
    )
    return compiled.previous_before(spec.created_us + 1)


def _is_once(text: str) -> bool:
    return text.strip().startswith("@at")


def _of_plain_http(spec: specs.ScheduleSpec) -> Iterator[Problem]:
    target = spec.action.target
    if not isinstance(target, actions.WebhookAction) or target.url is None:
        return
    parts = urllib.parse.urlsplit(target.url)
    host = parts.hostname or ""
    if parts.scheme == "http" and _may_be_public(host):
        yield Problem(
            path="spec.webhook.url",
            message=f"plain http to {host}: a public receiver is refused so, unless the "
            "installation allows it (DUEPOINT_EGRESS_ALLOW_HTTP); write https://",
            is_note=True,
        )


def _may_be_public(host: str) -> bool:
    """By the host alone: a public address, or a name that is none of a cluster or a machine."""
    address = addresses.parse(host)
    if address is not None:
        return addresses.kind(address)[0] is addresses.AddressKind.PUBLIC
    name = host.lower().rstrip(".")
    return "." in name and not name.endswith(_PRIVATE_NAMES)


@click.command("validate")
@options.files
@options.namespace
@click.option(
    "--newer-kubernetes", is_flag=True,
    help=f"Only note fields of a jobTemplate that Kubernetes {structure.KUBERNETES} does not have.",
)  # fmt: skip
@options.text_format
def validate(*, files: tuple[str, ...], namespace: str, newer_kubernetes: bool, form: str) -> None:
    """Check Schedules, ScheduleRuns and CronJobs in YAML or JSON files.

    A CronJob is checked as the Schedule that it becomes by changing apiVersion and kind, with notes
    on what it would do otherwise.
    """
    show = _show_json if form == "json" else _show_text
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
) -> Iterator[CheckedManifest | Unreadable]:
    for file in files:
        for found in manifests.read(file):
            if isinstance(found, Unreadable):
                yield found
            elif judged := checks.check(
                found, namespace=namespace, created_us=now_us, newer_kubernetes=newer_kubernetes
            ):
                yield judged


def _show_text(found: CheckedManifest | Unreadable, now_us: int) -> None:
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


def _show_json(found: CheckedManifest | Unreadable, now_us: int) -> None:
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


def _notes(found: CheckedManifest, now_us: int) -> list[Problem]:
    notes = [problem for problem in found.problems if problem.is_note]
    if found.spec is None:
        return notes
    notes += doubts(found.spec, now_us)
    if found.manifest.kind == checks.CRONJOB:
        notes += cronjob_notes.notes(found.manifest.content, found.spec, now_us)
    return notes


def _standing(found: CheckedManifest, now_us: int) -> str:
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


def accepted(files: tuple[str, ...], namespace: str, created_us: int) -> Iterator[CheckedManifest]:
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
