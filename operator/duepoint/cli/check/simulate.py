"""``duepoint simulate``: every slot of a file's Schedules between two times, and how it ends.

A Schedule without ``creationTimestamp`` counts as created right before ``--from``; with ``@every``
and no ``startTime`` at ``--from`` itself, which is then where that counts from and no slot. Slots
of several Schedules come out as one time line. Runs take no time here: what ``concurrencyPolicy``
would do with slots that are due during one is left out, and that is said.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import click
import msgspec

from duepoint import errors
from duepoint.cli import instants, options, output
from duepoint.cli.check import simulation, validate
from duepoint.cli.check.checks import Checked
from duepoint.cli.check.simulation import Course, Ended, Window
from duepoint.schedules import actions
from duepoint.schedules.spec import ScheduleSpec

_WIDTHS = {
    "schedule": 30, "scheduledTime": 24, "local": 28, "outcome": 10, "reason": 16, "firedAt": 24,
}  # fmt: skip

_window = "FROM/TO"


@click.command("simulate")
@options.files
@click.option("--from", "from_", metavar="TIME", required=True, help="Begin; belongs to it.")
@click.option("--to", metavar="TIME", required=True, help="End; does not belong to it.")
@click.option(
    "--down",
    metavar=_window,
    multiple=True,
    help="Operator and workers are away. May be repeated.",
)
@click.option(
    "--suspend",
    metavar=_window,
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
    form: str | None,
) -> None:
    """List every slot of the Schedules in a file, and what becomes of it.

    CronJobs are taken for the Schedules that they become. Times without an offset are in the zone
    of the first Schedule.
    """
    form = output.format_of(form)
    found = list(validate.accepted(files, namespace, created_us=0))
    if not found:
        raise errors.InvalidSetting(", ".join(files), "holds no Schedule and no CronJob")
    zone = _zone(found[0])
    course = _course(from_, to, down, suspend, zone)
    for each in found:
        _say_what_is_left_out(_spec(each))
    time_lines = [_rows(each, course) for each in found]
    rows = heapq.merge(*time_lines, key=lambda pair: pair[0])
    if output.write((row for _, row in rows), form, widths=_WIDTHS) == 0:
        output.complain(f"there is no slot from {from_} to {to}")
        raise click.exceptions.Exit(output.NOTHING)


def _say_what_is_left_out(spec: ScheduleSpec) -> None:
    """A run takes no time here, so no slot ever meets another one's run."""
    policy = spec.rule.policy.concurrency
    lasts = isinstance(spec.action.target, (actions.JobAction, actions.WebhookAction))
    if lasts and policy != "Allow":
        output.complain(
            f"{spec.identity}: concurrencyPolicy: {policy} is left out, as runs take no time here;"
            " in a cluster it decides about slots that are due while a run is active"
        )


def _course(
    from_: str, to: str, down: tuple[str, ...], suspend: tuple[str, ...], zone: str
) -> Course:
    from_us = instants.parse_us(from_, zone=zone, name="--from")
    to_us = instants.parse_us(to, zone=zone, name="--to")
    if to_us <= from_us:
        raise errors.InvalidSetting("--to", f"{errors.quoted(to)} is not after --from")
    return Course(
        from_us=from_us,
        to_us=to_us,
        down=_windows("--down", down, zone),
        suspended=_windows("--suspend", suspend, zone, from_us=from_us),
    )


def _windows(
    name: str, texts: tuple[str, ...], zone: str, *, from_us: int = 0
) -> tuple[Window, ...]:
    windows = [instants.parse_range_us(text, zone=zone, name=name) for text in texts]
    return simulation.joined([window for window in windows if window[1] > from_us])


def _rows(found: Checked, course: Course) -> Iterator[tuple[int, dict[str, str]]]:
    spec, is_new = _placed(found, course.from_us)
    local = instants.LocalTime(_zone(found))
    for ended in simulation.outcomes(spec, course, is_new=is_new):
        yield ended.slot_us, _row(spec.identity, ended, local)


def _placed(found: Checked, from_us: int) -> tuple[ScheduleSpec, bool]:
    """The spec with its creation, and whether that is new to the operator at ``from_us``."""
    spec, metadata = _spec(found), found.manifest.content["metadata"]
    if metadata.get("creationTimestamp") is not None:
        return spec, spec.created_us >= from_us
    timing = spec.rule.timing
    counts_from_creation = timing.start_us is None and any(
        text.lstrip().lower().startswith("@every") for text in timing.schedules
    )
    created_us = from_us if counts_from_creation else from_us - 1
    return msgspec.structs.replace(spec, created_us=created_us), True


def _row(identity: str, ended: Ended, local: instants.LocalTime) -> dict[str, str]:
    row = {
        "schedule": identity,
        "scheduledTime": instants.utc_text(ended.slot_us),
        "local": local.text(ended.slot_us),
        "outcome": ended.end.value,
        "reason": str(ended.reason),
    }
    if ended.fired_us is not None:
        row["firedAt"] = instants.utc_text(ended.fired_us)
        row["trigger"] = "CatchUp" if ended.catch_up else "Schedule"
    return row


def _zone(found: Checked) -> str:
    return _spec(found).rule.timing.time_zone


def _spec(found: Checked) -> ScheduleSpec:
    assert found.spec is not None  # noqa: S101 - only such come here
    return found.spec
