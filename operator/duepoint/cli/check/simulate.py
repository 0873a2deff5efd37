"""``duepoint simulate``: lists every slot of a file's Schedules between two times, and its result.

This module decides nothing. The operator's ``controller.plan.decide`` returns what the queue holds
of a new Schedule, and the worker's ``schedules.policies.decide`` the result of a claimed chain.
This module adds the time line of a cluster: a chain is claimed at its due, or when an outage ends.
Runs take no time, so ``concurrencyPolicy`` has no effect, and the command says so.

A Schedule without ``creationTimestamp`` counts as created right before ``--from``. With ``@every``
and no ``startTime`` it counts as created at ``--from`` itself, which is then the anchor and not a
slot. The slots of several Schedules form one time line.

Outages are half open: down from the first instant on, back at the last. Slots are yielded one by
one, oldest first, and not stored, so a year of seconds takes no more memory than a day. Instants in
microseconds since the epoch.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator

import click
import msgspec

from duepoint import errors
from duepoint.cli import instants, options, output
from duepoint.cli.check import validate
from duepoint.cli.check.manifests import Manifest
from duepoint.controller import plan
from duepoint.controller.status.published import Status
from duepoint.schedules import actions, policies
from duepoint.schedules.conditions import ConditionType, Reason
from duepoint.schedules.definition import State
from duepoint.schedules.diagnosis import Shown
from duepoint.schedules.spec import ScheduleSpec
from duepoint.worker import runlimits

_WIDTHS = {
    "schedule": 28, "scheduledTime": 20, "local": 25, "outcome": 10, "reason": 16, "firedAt": 24,
}  # fmt: skip
#: A placeholder for the digest of an action, which is not needed here.
_TARGET = ""

#: An outage: when it begins and ends.
Outage = tuple[int, int]


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
    found = list(validate.accepted(files, namespace, created_us=0))
    if not found:
        raise errors.InvalidSetting(", ".join(files), "holds no Schedule and no CronJob")
    zone = found[0][1].rule.timing.time_zone
    from_us = instants.parse_us(from_, zone=zone, name="--from")
    to_us = instants.parse_us(to, zone=zone, name="--to")
    if to_us <= from_us:
        raise errors.InvalidSetting("--to", f"{errors.quoted(to)} is not after --from")
    outages = sorted(_outage(text, zone) for text in down)
    for _, spec in found:
        # Runs take no time here, so no slot overlaps the run of another.
        policy = spec.rule.policy.concurrency
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


def _outage(text: str, zone: str) -> Outage:
    """Return both ends of FROM/TO; raises errors.InvalidSetting."""
    first, slash, last = text.partition("/")
    if not slash:
        message = f"{errors.quoted(text)} is no range; write FROM/TO, both as RFC 3339"
        raise errors.InvalidSetting("--down", message)
    begin_us, end_us = (instants.parse_us(each, zone=zone, name="--down") for each in (first, last))
    if end_us <= begin_us:
        raise errors.InvalidSetting("--down", f"{errors.quoted(text)} ends before it begins")
    return begin_us, end_us


def _rows(
    manifest: Manifest, spec: ScheduleSpec, from_us: int, to_us: int, outages: list[Outage]
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
        accepted = Shown(
            type=ConditionType.READY, status="True", observed_generation=spec.generation
        )
        status = Status(
            observed_generation=spec.generation,
            conditions=[accepted],
            settled_through=instants.utc_text(before_us),
        )
    now_us = _up_at(spec.created_us, outages) if is_new else before_us
    made = plan.decide(spec, None, status, now_us, target=_TARGET)
    local = instants.LocalTime(spec.rule.timing.time_zone)
    for row in () if made is None else _ended(made, spec.created_us, to_us, outages):
        slot_us = row.pop("slotUs")
        if slot_us >= to_us:
            return
        about = {"scheduledTime": instants.utc_text(slot_us), "local": local.text(slot_us)}
        yield {"schedule": spec.identity, **about, **row}


def _ended(
    made: plan.ArmingPlan, created_us: int, to_us: int, outages: list[Outage]
) -> Iterator[output.Row]:
    """Yield the slots of a Schedule that was armed so, each with its result."""
    stored, timeline = made.definition, plan.slots_of(made.definition)
    if made.missed:  # slots of ``@at`` before the creation
        past = itertools.islice(timeline.walk_back(created_us, -1), made.missed)
        yield from (_row(slot_us, "Missed", Reason.DEADLINE_EXCEEDED) for slot_us in [*past][::-1])
    for slot_us in plan.awake_slots_of(stored).walk(*plan.suspended_us(stored, to_us - 1)):
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


def _up_at(instant_us: int, outages: list[Outage]) -> int:
    """Return the instant, or the end of the outages that contain it."""
    for begin_us, end_us in outages:
        if begin_us <= instant_us < end_us:
            instant_us = end_us
    return instant_us
