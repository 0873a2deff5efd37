"""``duepoint trigger`` and ``duepoint backfill``: create a ScheduleRun and follow it to its end.

The command names the ScheduleRun itself, so that it can repeat a creation whose answer was lost
without creating two. While the run lasts, a progress bar is shown if standard error is a terminal.
The result is text or one JSON object. Exit codes: 0 = Complete, 1 = Failed, 3 = it had not ended
in time. The ScheduleRun does not depend on the command: if the command is interrupted, it says how
to end the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Callable, Mapping
from typing import Any

import click
import msgspec

from duepoint import errors
from duepoint.cli import cluster as clusters
from duepoint.cli import instants, options, output
from duepoint.cli.cluster import ClusterSession
from duepoint.kube import errors as kube_errors
from duepoint.kube import schedules
from duepoint.schedules import manualruns
from duepoint.schedules.manualruns import Backfill
from duepoint.schedules.spec import ScheduleSpec

NOT_ENDED = 3

#: How long to wait for the operator before a line says what may be missing.
_PATIENCE_SECONDS = 10.0
_LOOK_SECONDS = 0.5
#: How long after their end ScheduleRuns are deleted.
_TTL_SECONDS = 3600

#: Returns what to run of a Schedule, as a field of the ScheduleRun's spec, and its slots in words;
#: None = nothing.
Choose = Callable[[ScheduleSpec], tuple[dict[str, Any], str] | None]


#: Whether the command waits for the end of its ScheduleRun.
_waits = functools.partial(
    click.option, "--wait/--no-wait", show_default=True, help="Wait for its end."
)


def _carry_out(
    place: options.Place, name: str, form: str, choose: Choose, *,
    wait: bool, patience_seconds: float | None,
) -> None:  # fmt: skip
    """Create a ScheduleRun of a Schedule and, with ``wait``, follow it to its end or for so long.

    Raises:
        errors.InvalidSetting: the request is not possible, or the cluster refuses it.
        click.exceptions.Exit: with the exit code for the result.
    """
    newest: schedules.ScheduleRun | None = None

    async def create_and_follow() -> None:
        nonlocal newest
        async with clusters.session(place) as server:
            newest = await _created(server, name, form, choose)
            if newest is None or not wait:
                return
            began = time.monotonic()
            with contextlib.suppress(TimeoutError), output.bar(newest.metadata.name, None) as bar:
                async with asyncio.timeout(patience_seconds):
                    while True:
                        with contextlib.suppress(errors.TryLater):
                            newest = await _read(server, newest)
                        status = msgspec.json.decode(newest.status)
                        counts = _counts(status)
                        ended = sum(counts[name] for name in _COUNTS[2:])
                        bar(ended, status.get("message", ""), counts["planned"])
                        if _state_of(status) in ("Complete", "Failed"):
                            return
                        waited = time.monotonic() - began
                        if not status and waited > _PATIENCE_SECONDS:
                            output.complain("no operator has processed it yet; is one running?")
                            began = float("inf")
                        await asyncio.sleep(_LOOK_SECONDS)

    try:
        asyncio.run(create_and_follow())
    except (KeyboardInterrupt, kube_errors.ApiError, errors.InvalidSetting) as trouble:
        if newest is not None:
            output.complain(_how_to_end(newest))
        if not isinstance(trouble, kube_errors.ApiError):
            raise
        raise errors.InvalidSetting("cluster", str(trouble)) from trouble
    if newest is not None:
        _show_end(newest, form, waited=wait)


async def _created(
    server: ClusterSession, name: str, form: str, choose: Choose
) -> schedules.ScheduleRun | None:
    """Create a ScheduleRun, once, and print its name on standard output; None = nothing to run.

    Raises:
        errors.InvalidSetting: there is no such Schedule, or its spec is not valid.
        kube_errors.ApiError: it was refused, or the API server does not answer.
    """
    found = await clusters.schedule(server, name)
    try:
        known = schedules.spec_of(schedules.item_of(found))
    except errors.InvalidSpec as invalid:
        message = f"Schedule {server.namespace}/{name} cannot run: {invalid}"
        raise errors.InvalidSetting("NAME", message) from invalid
    if (chosen := choose(known)) is None:
        return None
    what, slots = chosen
    spec = {**what, "ttlSecondsAfterFinished": _TTL_SECONDS}
    run = await schedules.create_run(server.api, schedules.new_run(server.namespace, name, spec))
    if not output.is_data(form):  # JSON has the name in the result
        output.say(f"schedulerun.duepoint.dev/{run.metadata.name} created: {slots}")
    return run


async def _read(server: ClusterSession, run: schedules.ScheduleRun) -> schedules.ScheduleRun:
    """Read the ScheduleRun; raises errors.InvalidSetting if it was deleted before its end."""
    metadata = run.metadata
    path = schedules.path(metadata.namespace, metadata.name, plural=schedules.RUN_PLURAL)
    with contextlib.suppress(kube_errors.NotFound):
        body = await server.api.request("GET", path)
        return msgspec.json.decode(body, type=schedules.ScheduleRun)
    message = "it was deleted before it had ended; no further slot is started"
    raise errors.InvalidSetting(f"{metadata.namespace}/{metadata.name}", message)


def _state_of(status: Mapping[str, Any]) -> str:
    """Return ``Complete``, ``Failed``, ``Running``, ``Retrying``, or ``Pending`` at first.

    Retrying: an attempt has failed, and the run waits for the next one.
    """
    for condition in status.get("conditions") or ():
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            return str(condition["type"])
        if condition["type"] == "Reconciling" and condition["reason"] == "Retrying":
            return "Retrying"
    return "Running" if "observedGeneration" in status else "Pending"


_COUNTS = ("planned", "started", "succeeded", "failed", "replaced", "skipped")


def _counts(status: Mapping[str, Any]) -> dict[str, int]:
    return {name: (status.get("runs") or {}).get(name, 0) for name in _COUNTS}


def _show_end(run: schedules.ScheduleRun, form: str, *, waited: bool) -> None:
    """Print the result, and exit with its code if the command waited for it."""
    status = msgspec.json.decode(run.status)
    state, message = _state_of(status), status.get("message", "")
    if output.is_data(form):
        row = {
            "namespace": run.metadata.namespace,
            "name": run.metadata.name,
            "uid": run.metadata.uid,
            "state": state,
            "runs": _counts(status),
            "message": message,
        }
        output.write([row], form)
    elif waited:
        output.say(f"{state}: {message or 'not looked at yet'}")
    if waited and state == "Failed":
        raise click.exceptions.Exit(output.FAILED)
    if waited and state != "Complete":
        output.complain(f"it did not end within the timeout. {_how_to_end(run)}")
        raise click.exceptions.Exit(NOT_ENDED)


def _how_to_end(run: schedules.ScheduleRun) -> str:
    """Return how to end the run, for users who do not want to wait any longer."""
    metadata = run.metadata
    return (
        f"It goes on; kubectl delete schedulerun {metadata.name} -n {metadata.namespace} starts no "
        "further slot"
    )


# -- trigger ---------------------------------------------------------------------------------------


def _payload(given: str) -> msgspec.Raw:
    found: msgspec.Raw = options.payload(given)
    text = bytes(found)
    if text.strip() == b"null":
        raise ValueError("null would be the Schedule's own; leave it out")
    if len(text) > manualruns.PAYLOAD_LIMIT_BYTES:
        raise ValueError(f"{len(text)} bytes; write at most {manualruns.PAYLOAD_LIMIT_BYTES}")
    return found


@click.command()
@options.schedule_name
@click.option(
    "--at",
    metavar="TIME",
    help="Slot that the run carries, or HH:MM for the last one. Unset: the creation.",
)
@click.option(
    "--payload",
    metavar="JSON|@FILE",
    type=options.Converted(_payload),
    help="In place of the Schedule's; @- is standard input.",
)
@_waits(default=False)
@options.patience
@options.output_format
@options.of_one
def trigger(
    name: str,
    *,
    at: str | None,
    payload: msgspec.Raw | None,
    wait: bool,
    patience_seconds: float | None,
    form: str,
    place: options.Place,
) -> None:
    """Run the Schedule NAME once, now, also while it is suspended.

    With --wait the exit code is 1 if the run fails, and 3 if it has not ended in time.

    Example: duepoint trigger report -n team-a --wait
    """
    what: dict[str, Any] = {} if payload is None else {"payload": payload}

    def choose(known: ScheduleSpec) -> tuple[dict[str, Any], str]:
        slot = "now"
        if at is not None:
            slot_us = instants.parse_last_us(at, zone=known.rule.timing.time_zone, name="--at")
            slot_us = manualruns.fitted(slot_us, whole_seconds=known.rule.whole_seconds)
            slot = what["scheduledTime"] = instants.utc_text(slot_us)
        return {"trigger": what}, f"{known.identity} runs with the slot {slot}"

    _carry_out(place, name, form, choose, wait=wait, patience_seconds=patience_seconds)


# -- backfill --------------------------------------------------------------------------------------


#: The most slots in a range, which is the API's limit as well.
_LIMIT = 10_000


@click.command()
@options.schedule_name
@click.option(
    "--from",
    "from_",
    metavar="TIME",
    required=True,
    help="Begin: a date, or RFC 3339; without an offset in the Schedule's zone.",
)
@click.option(
    "--to", metavar="TIME", required=True, help="End, the same; does not belong to the range."
)
@click.option(
    "--max-parallel",
    "parallel",
    default=str(manualruns.MAX_PARALLEL),
    metavar="N",
    type=click.IntRange(1, 1_000),
    show_default=True,
    help="Runs that may be active at once.",
)
@click.option("--dry-run", is_flag=True, help="Show what would run, and run nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@_waits(default=True)
@options.patience
@options.output_format
@options.of_one
def backfill(
    name: str,
    *,
    from_: str,
    to: str,
    parallel: int,
    dry_run: bool,
    yes: bool,
    wait: bool,
    patience_seconds: float | None,
    form: str,
    place: options.Place,
) -> None:
    """Run the slots of the Schedule NAME in a range again, also while it is suspended.

    Example: duepoint backfill report -n team-a --from 2026-11-01 --to 2026-11-02
    """

    def choose(known: ScheduleSpec) -> tuple[dict[str, Any], str] | None:
        zone = known.rule.timing.time_zone
        wish = Backfill(
            from_us=instants.parse_us(from_, zone=zone, name="--from"),
            to_us=instants.parse_us(to, zone=zone, name="--to"),
            asked_us=instants.now_us(),
            max_parallel=parallel,
            limit=_LIMIT,
        )
        if wish.to_us <= wish.from_us:
            message = f"{errors.quoted(to)} is not after --from {errors.quoted(from_)}"
            raise errors.InvalidSetting("--to", f"{message}; write a later time")
        preview = _preview(known, wish)
        count = preview["slots"]
        if not output.is_data(form):
            _show(known, wish, preview)
        elif dry_run:
            output.write([preview], form)
        if count == 0 and output.is_data(form):
            output.complain("there is no slot in the range")
        if dry_run or not count:
            return None
        if not yes and not options.confirmed(
            f"Start {'1 run' if count == 1 else f'{count} runs'}?",
            option="--yes",
            without_terminal="standard input is not a terminal to ask on; write --yes, or --dry-run"
            " to look",
        ):
            output.say("nothing was started")
            return None
        what = {
            "from": instants.utc_text(wish.from_us),
            "to": instants.utc_text(wish.to_us),
            "maxParallel": parallel,
            "limit": _LIMIT,
        }
        return {"backfill": what}, f"{count} slots of {known.identity}"

    _carry_out(place, name, form, choose, wait=wait, patience_seconds=patience_seconds)


def _preview(known: ScheduleSpec, asked: Backfill) -> output.Row:
    """Return what would run: the number of slots, the first and the last.

    Raises:
        errors.InvalidSetting: the operator would refuse it.
    """
    line = manualruns.timeline_of(known.rule, identity=known.identity, created_us=known.created_us)
    after_us, through_us = asked.from_us - 1, asked.through_us
    count = line.count(after_us, through_us)
    if count > asked.limit:
        raise errors.InvalidSetting(
            "--to",
            f"the range has {count} slots, and {_LIMIT} may be run at once; write shorter ones",
        )
    return {
        "namespace": known.namespace,
        "schedule": known.name,
        "slots": count,
        "first": output.time(next(line.walk(after_us, through_us), None)),
        "last": output.time(next(line.walk_back(through_us, after_us), None)),
    }


def _show(known: ScheduleSpec, asked: Backfill, preview: output.Row) -> None:
    """Show the preview to people."""
    count = preview["slots"]
    slots = "no slot" if count == 0 else "1 slot" if count == 1 else f"{count} slots"
    output.say(
        f"{known.identity}: {slots} from {instants.utc_text(asked.from_us)} until "
        f"{instants.utc_text(asked.to_us)}, at most {asked.max_parallel} at once"
    )
    zone = instants.LocalTime(known.rule.timing.time_zone)
    for name in ("first", "last") if count else ():
        slot = preview[name]
        output.say(f"  {name:<5}  {slot}  {zone.text(instants.strict_us(slot))}")
    if asked.to_us > asked.asked_us:
        output.say("  slots after now are left out: the Schedule runs them itself")
