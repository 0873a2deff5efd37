"""``duepoint simulate``: lists every slot of a file's Schedules between two times, and its result.

This module decides nothing. The operator's ``controller.plan.decide`` returns the state of the
queue after each edit, and the worker's ``schedules.policies.decide`` the result of a claimed chain.
This module adds the time line of a cluster. A chain is claimed at its due, or when an outage ends.
An edit is seen when it is made, or when an outage ends, and then before anything is claimed. Runs
take no time, so ``concurrencyPolicy`` has no effect, and the command says so.

A Schedule without ``creationTimestamp`` counts as created right before ``--from``. With ``@every``
and no ``startTime`` it counts as created at ``--from`` itself, which is then the anchor and not a
slot. The slots of several Schedules form one time line.

Windows are half open: down or suspended from the first instant on, back at the last. Slots are
yielded one by one, oldest first, and not stored, so a year of seconds takes no more memory than a
day. Instants in microseconds since the epoch.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import click
import msgspec

from duepoint import errors
from duepoint.cli import instants, options, output
from duepoint.cli.check import validate
from duepoint.cli.check.checks import CheckedManifest
from duepoint.controller import plan
from duepoint.schedules import actions, policies
from duepoint.schedules.conditions import Reason
from duepoint.schedules.definition import Definition, State
from duepoint.schedules.slots import Slots
from duepoint.schedules.spec import ScheduleSpec
from duepoint.worker import runlimits

_WIDTHS = {
    "schedule": 28, "scheduledTime": 20, "local": 25, "outcome": 10, "reason": 16, "firedAt": 24,
}  # fmt: skip
#: A placeholder for the digest of an action, which is not needed here.
_TARGET = ""


Window = tuple[int, int]


# -- the command ---------------------------------------------------------------------------------


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
@click.option(
    "--suspend",
    metavar="FROM/TO",
    multiple=True,
    help="spec.suspend is set to true at FROM and back at TO. May be repeated.",
)
@options.namespace
@options.output_format
def simulate(
    *,
    files: tuple[str, ...],
    from_: str,
    to: str,
    down: tuple[str, ...],
    suspend: tuple[str, ...],
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
    zone = _spec(found[0]).rule.timing.time_zone
    from_us = instants.parse_us(from_, zone=zone, name="--from")
    to_us = instants.parse_us(to, zone=zone, name="--to")
    if to_us <= from_us:
        raise errors.InvalidSetting("--to", f"{errors.quoted(to)} is not after --from")
    course = Course(
        from_us=from_us,
        to_us=to_us,
        down=_windows("--down", down, zone),
        suspended=_windows("--suspend", suspend, zone, from_us=from_us),
    )
    for spec in map(_spec, found):
        # Runs take no time here, so no slot overlaps the run of another.
        policy = spec.rule.policy.concurrency
        lasts = isinstance(spec.action.target, (actions.JobAction, actions.WebhookAction))
        if lasts and policy != "Allow":
            output.complain(
                f"{spec.identity}: concurrencyPolicy: {policy} is left out, as runs take no time"
                " here; in a cluster it decides about slots that are due while a run is active"
            )
    rows = heapq.merge(*(_rows(each, course) for each in found), key=lambda pair: pair[0])
    if output.write((row for _, row in rows), form, widths=_WIDTHS) == 0:
        output.complain(f"there is no slot from {from_} to {to}")


def _windows(
    name: str, texts: tuple[str, ...], zone: str, *, from_us: int = 0
) -> tuple[Window, ...]:
    """Return the windows in order, with those merged that touch."""
    given = [instants.parse_range_us(text, zone=zone, name=name) for text in texts]
    row: list[Window] = []
    for begin, end in sorted(window for window in given if window[1] > from_us):
        if row and begin <= row[-1][1]:
            begin, end = row[-1][0], max(row.pop()[1], end)  # noqa: PLW2901 - drawn together
        row.append((begin, end))
    return tuple(row)


def _rows(found: CheckedManifest, course: Course) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the slots in the course and the result of each, oldest first."""
    spec, metadata = _spec(found), found.manifest.content["metadata"]
    is_new = spec.created_us >= course.from_us
    if metadata.get("creationTimestamp") is None:
        timing = spec.rule.timing
        counts_from_creation = timing.start_us is None and any(
            text.lstrip().lower().startswith("@every") for text in timing.schedules
        )
        created_us = course.from_us if counts_from_creation else course.from_us - 1
        spec, is_new = msgspec.structs.replace(spec, created_us=created_us), True
    local = instants.LocalTime(spec.rule.timing.time_zone)
    for ended in _Timeline(spec, course, is_new=is_new).run():
        if ended.slot_us >= course.to_us:
            return
        row = {
            "schedule": spec.identity,
            "scheduledTime": instants.utc_text(ended.slot_us),
            "local": local.text(ended.slot_us),
            "outcome": ended.outcome,
            "reason": str(ended.reason),
        }
        if ended.fired_us is not None:
            row["firedAt"] = instants.utc_text(ended.fired_us)
            row["trigger"] = "CatchUp" if ended.catch_up else "Schedule"
        yield ended.slot_us, row


def _spec(found: CheckedManifest) -> ScheduleSpec:
    assert found.spec is not None  # noqa: S101 - only such come here
    return found.spec


# -- the time line -------------------------------------------------------------------------------


class EndedSlot(NamedTuple):
    """One slot and its result.

    Attributes:
        reason: why it did not run; empty if it did.
        fired_us: when it started, or None.
        catch_up: it was late, or one of several.
    """

    slot_us: int
    outcome: Literal["Started", "Skipped", "Missed", "Superseded"]
    reason: str = ""
    fired_us: int | None = None
    catch_up: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """The outages and suspensions from ``from_us`` until before ``to_us``."""

    from_us: int
    to_us: int
    down: tuple[Window, ...] = ()
    suspended: tuple[Window, ...] = ()

    def up_at(self, instant_us: int) -> int:
        """Return the instant, or the end of the outage that contains it."""
        index = bisect_right(self.down, instant_us, key=lambda window: window[0]) - 1
        if index >= 0 and instant_us < self.down[index][1]:
            return self.down[index][1]
        return instant_us


class _Timeline:
    """The time line of one Schedule in the course."""

    def __init__(self, spec: ScheduleSpec, course: Course, *, is_new: bool) -> None:
        self._spec = spec
        self._course = course
        self._is_new = is_new
        self._stored: Definition | None = None
        self._slots: Slots | None = None
        self._chain_due_us: int | None = None
        self._ended_us = 0  # every slot of the present timing up to here has ended

    def run(self) -> Iterator[EndedSlot]:
        yield from self._begin()
        for seen_us, spec in self._edits():
            yield from self._go_on(until_us=seen_us)
            yield from self._accept(spec, seen_us)
        yield from self._go_on(until_us=None)

    # -- the operator --------------------------------------------------------------------------

    def _begin(self) -> Iterator[EndedSlot]:
        before_us = self._course.from_us - 1
        status = plan.PublishedStatus()
        if not self._is_new:
            status = plan.PublishedStatus(
                observed_generation=self._spec.generation, accepted=True, settled_us=before_us
            )
        now_us = self._course.up_at(self._spec.created_us) if self._is_new else before_us
        made = plan.decide(self._spec, None, status, now_us, target=_TARGET)
        if made is not None:
            self._take(made)
            if made.missed and self._slots is not None:  # ``@at`` slots before the creation
                past = [*self._slots.walk_back(self._spec.created_us, -1)]
                for slot_us in past[::-1][: made.missed]:
                    yield EndedSlot(slot_us, "Missed", Reason.DEADLINE_EXCEEDED)

    def _edits(self) -> Iterator[tuple[int, ScheduleSpec]]:
        """Yield when the operator sees which spec; slots due then belong to the new one.

        The edits are suspensions and resumes; of those made in one outage only the last is seen.
        """
        made: dict[int, bool] = {}
        for begin_us, end_us in self._course.suspended:
            made[self._course.up_at(max(begin_us, self._course.from_us))] = True
            made[self._course.up_at(end_us)] = False
        for number, (seen_us, suspended) in enumerate(made.items(), start=1):
            generation = self._spec.generation + number
            spec = msgspec.structs.replace(self._spec, generation=generation)
            if suspended:
                rule = spec.rule
                timing = msgspec.structs.replace(rule.timing, suspend=True, suspend_until_us=None)
                rule = msgspec.structs.replace(rule, timing=timing)
                spec = msgspec.structs.replace(spec, rule=rule)
            yield seen_us, spec

    def _accept(self, spec: ScheduleSpec, seen_us: int) -> Iterator[EndedSlot]:
        made = plan.decide(spec, self._stored, plan.PublishedStatus(), seen_us - 1, target=_TARGET)
        if made is None:
            return
        is_replaced = made.arming is not None and not made.arming.keep_chain
        if is_replaced and self._chain_due_us is not None and self._slots is not None:
            for slot_us in self._slots.walk(self._ended_us, seen_us - 1):
                yield EndedSlot(slot_us, "Superseded", Reason.REPLACED)
        self._take(made)

    def _take(self, made: plan.ArmingPlan) -> None:
        self._stored = made.definition
        if made.arming is None or made.arming.keep_chain:
            return
        self._slots = plan.slots_of(made.definition)
        self._chain_due_us = made.arming.due_us
        self._ended_us = made.definition.not_before_us

    # -- the worker ----------------------------------------------------------------------------

    def _go_on(self, *, until_us: int | None) -> Iterator[EndedSlot]:
        """Yield all slots that are decided before the next edit is seen."""
        stored, timeline = self._stored, self._slots
        if stored is None or timeline is None:
            return
        through_us = (self._course.to_us if until_us is None else until_us) - 1
        if gone := plan.swallowed_by_suspension(stored, through_us):
            for slot_us in gone.timeline.walk(gone.after_us, gone.through_us):
                yield EndedSlot(slot_us, "Skipped", Reason.SUSPENDED)
        while stored.state is State.ARMED and self._chain_due_us is not None:
            now_us = self._course.up_at(self._chain_due_us)
            if until_us is not None and now_us >= until_us:
                return
            decision = policies.decide(
                timeline, stored.rule.policy, chain_due_us=self._chain_due_us, now_us=now_us
            )
            decision, skipped = runlimits.within(decision, stored.runs_left)
            missed_us = timeline.walk(self._ended_us, decision.newest_us)
            for group in decision.missed:
                for slot_us in itertools.islice(missed_us, group.count):
                    yield EndedSlot(slot_us, "Missed", group.reason)
            for chosen in decision.run:
                yield EndedSlot(chosen.slot_us, "Started", "", now_us, chosen.catch_up)
            self._ended_us = decision.newest_us
            following = decision.following
            stored = self._stored = msgspec.structs.replace(
                stored, started=stored.started + len(decision.run)
            )
            if stored.runs_left == 0:
                following = None
                for one in skipped:  # overdue slots after the last run of ``maxRuns``
                    yield EndedSlot(one.slot_us, "Skipped", Reason.COMPLETED)
            self._chain_due_us = None if following is None else following.due_us
