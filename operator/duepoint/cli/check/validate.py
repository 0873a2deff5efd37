"""``duepoint validate`` and ``simulate``: what a cluster would do with the objects of files.

``validate`` reports what a cluster would refuse, or do differently from the intent. Every problem
of every object in every file is one line on standard error, with file, document and field. Valid
objects are listed on standard output, with notes on fields that the API server accepts but that
probably do not do what the author wants. Kinds that are not ours are ignored.

``simulate`` lists every slot of the Schedules between two times, and its result. It decides
nothing: the operator's ``controller.plan.decide`` returns what the queue holds of a new Schedule,
and the worker's ``schedules.policies.decide`` the result of a claimed chain. It adds the time line
of a cluster: a chain is claimed at its due, or when an outage ends. Runs take no time. Slots are
yielded one by one, oldest first, and not stored, so a year of seconds takes no more memory than a
day. Instants in microseconds since the epoch.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator

import click
import msgspec

from duepoint import errors
from duepoint.cli import instants, options, output
from duepoint.cli.check import checks, manifests
from duepoint.cli.check.checks import CheckedManifest
from duepoint.cli.check.manifests import Manifest
from duepoint.cli.cronjob import conversion
from duepoint.controller import plan
from duepoint.controller.status.published import Status
from duepoint.expressions import advice
from duepoint.model.checks import Problem, note
from duepoint.schedules import actions, manualruns, policies, slots
from duepoint.schedules import spec as specs
from duepoint.schedules.conditions import ConditionType, Reason
from duepoint.schedules.definition import State
from duepoint.schedules.diagnosis import Shown
from duepoint.schedules.spec import ScheduleSpec
from duepoint.worker import runlimits


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
    until_us = spec.rule.timing.suspend_until_us
    if until_us is not None and not spec.rule.timing.suspend:
        yield note("spec.suspendUntil", "does nothing without suspend: true")
    elif until_us is not None and until_us <= now_us:
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
            "problems": [{"field": each.path, "message": each.message} for each in problems],
            "notes": [{"field": each.path, "message": each.message} for each in notes],
        }
        output.write([row], form)
        return
    if found.is_valid:
        output.say(f"{manifest.where}: {_summary(found, now_us)}")
    for problem in problems:
        output.complain(str(problem), manifest.where)
    for each in notes:
        output.say(f"  {each}")


def _summary(found: CheckedManifest, now_us: int) -> str:
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


# -- simulate ------------------------------------------------------------------------------------


_WIDTHS = {
    "schedule": 28, "scheduledTime": 20, "local": 25, "outcome": 10, "reason": 16, "firedAt": 24,
}  # fmt: skip


@click.command("simulate")
@options.files
@click.option("--from", "from_", metavar="TIME", required=True, help="Begin; belongs to it.")
@click.option("--to", metavar="TIME", required=True, help="End; does not belong to it.")
@click.option(
    "--down",
    metavar="FROM/TO",
    multiple=True,
    help="Operator and workers are away. May be repeated.",
)
@options.namespace
@options.output_format
def simulate(
    *,
    files: tuple[str, ...],
    from_: str,
    to: str,
    down: tuple[str, ...],
    namespace: str,
    form: str,
) -> None:
    """List every slot of the Schedules in a file, and what becomes of it.

    CronJobs are taken for the Schedules that they become. Times without an offset are in the zone
    of the first Schedule.

    Example: duepoint simulate nightly.yaml --from 2026-12-01 --to 2026-12-08
    """
    found = list(accepted(files, namespace, created_us=0))
    if not found:
        raise errors.InvalidSetting(", ".join(files), "has no Schedule and no CronJob")
    zone = found[0][1].rule.timing.time_zone
    from_us = instants.parse_us(from_, zone=zone, name="--from")
    to_us = instants.parse_us(to, zone=zone, name="--to")
    if to_us <= from_us:
        raise errors.InvalidSetting("--to", f"{errors.quoted(to)} is not after --from")
    outages = sorted(_outage(text, zone) for text in down)
    for _, spec in found:
        # Runs take no time here, so no slot overlaps the run of another.
        policy = spec.rule.policy.concurrency_policy
        lasts = isinstance(spec.action.target, (actions.JobAction, actions.WebhookAction))
        if lasts and policy != "Allow":
            output.complain(
                f"{spec.identity}: concurrencyPolicy: {policy} is left out, as runs take no time"
                " here; in a cluster it decides about slots that are due while a run is active"
            )
    rows = heapq.merge(
        *(_rows(*each, from_us, to_us, outages) for each in found),
        key=lambda row: instants.strict_us(row["scheduledTime"]),
    )
    if output.write(rows, form, widths=_WIDTHS) == 0:
        output.complain(f"there is no slot from {from_} to {to}")


def _outage(text: str, zone: str) -> tuple[int, int]:
    """Return both ends of FROM/TO; raises errors.InvalidSetting."""
    first, slash, last = text.partition("/")
    if not slash:
        message = f"{errors.quoted(text)} is not a range; write FROM/TO, both as RFC 3339"
        raise errors.InvalidSetting("--down", message)
    begin_us, end_us = (instants.parse_us(each, zone=zone, name="--down") for each in (first, last))
    if end_us <= begin_us:
        raise errors.InvalidSetting("--down", f"{errors.quoted(text)} ends before it begins")
    return begin_us, end_us


def _rows(
    manifest: Manifest, spec: ScheduleSpec, from_us: int, to_us: int, outages: list[tuple[int, int]]
) -> Iterator[output.Row]:
    """Yield the slots from ``from_us`` until before ``to_us``, with results, oldest first."""
    is_new = spec.created_us >= from_us
    if manifest.content["metadata"].get("creationTimestamp") is None:
        timing = spec.rule.timing
        counts_from_creation = timing.start_us is None and any(
            text.lstrip().lower().startswith("@every") for text in timing.schedules
        )
        created_us = from_us if counts_from_creation else from_us - 1
        spec, is_new = msgspec.structs.replace(spec, created_us=created_us), True
    before_us = from_us - 1
    status = Status()
    if not is_new:
        ready = Shown(type=ConditionType.READY, status="True", observed_generation=spec.generation)
        status = Status(
            observed_generation=spec.generation,
            conditions=[ready],
            settled_through=instants.utc_text(before_us),
        )
    now_us = _up_at(spec.created_us, outages) if is_new else before_us
    # The digest of the action is not needed here.
    made = plan.decide(spec, None, status, now_us, target="")
    local = instants.LocalTime(spec.rule.timing.time_zone)
    for row in () if made is None else _simulated(made, spec.created_us, to_us, outages):
        slot_us = row.pop("slotUs")
        if slot_us >= to_us:
            return
        about = {"scheduledTime": instants.utc_text(slot_us), "local": local.text(slot_us)}
        yield {"schedule": spec.identity, **about, **row}


def _simulated(
    made: plan.ArmingPlan, created_us: int, to_us: int, outages: list[tuple[int, int]]
) -> Iterator[output.Row]:
    """Yield the slots of a Schedule from its arming on, each with its simulated result."""
    stored, timeline = made.definition, plan.slots_of(made.definition)
    if made.missed:  # slots of ``@at`` before the creation
        past = itertools.islice(timeline.walk_back(created_us, -1), made.missed)
        yield from (_row(slot_us, "Missed", Reason.DEADLINE_EXCEEDED) for slot_us in [*past][::-1])
    for slot_us in manualruns.timeline(stored).walk(*plan.suspended_us(stored, to_us - 1)):
        yield _row(slot_us, "Skipped", Reason.SUSPENDED)
    due_us = None if made.arming is None else made.arming.due_us
    ended_us = stored.not_before_us  # every slot up to here has ended
    while stored.state is State.ARMED and due_us is not None:
        now_us = _up_at(due_us, outages)
        decision = policies.decide(timeline, stored.rule.policy, chain_due_us=due_us, now_us=now_us)
        decision, skipped = runlimits.within(decision, stored.runs_left)
        missed_us = timeline.walk(ended_us, decision.newest_us)
        for group in decision.missed:
            for slot_us in itertools.islice(missed_us, group.count):
                yield _row(slot_us, "Missed", group.reason)
        for chosen in decision.run:
            trigger = "CatchUp" if chosen.catch_up else "Schedule"
            fired = {"firedAt": instants.utc_text(now_us), "trigger": trigger}
            yield _row(chosen.slot_us, "Started", "") | fired
        ended_us = decision.newest_us
        started = stored.started + len(decision.run)
        stored = msgspec.structs.replace(stored, started=started)
        due_us = None if decision.following is None else decision.following.due_us
        if stored.runs_left == 0:
            due_us = None
            for one in skipped:  # overdue slots after the last run of ``maxRuns``
                yield _row(one.slot_us, "Skipped", Reason.COMPLETED)


def _row(slot_us: int, outcome: str, reason: str) -> output.Row:
    return {"slotUs": slot_us, "outcome": outcome, "reason": str(reason)}


def _up_at(instant_us: int, outages: list[tuple[int, int]]) -> int:
    """Return the instant, or the end of the outages that contain it."""
    for begin_us, end_us in outages:
        if begin_us <= instant_us < end_us:
            instant_us = end_us
    return instant_us
