"""``duepoint trigger``, and what it shares with ``backfill``: a ScheduleRun, followed to its end.

A ScheduleRun gets its name here and not from the API server, so that a creation whose answer was
lost can be asked for again without making two. While it runs a progress bar is shown on a
terminal's standard error, and nothing elsewhere; its end is text or one JSON object, with the exit
code: 0 for Complete, 1 for Failed, 3 for one that had not ended in time. The ScheduleRun does not
depend on the command that follows it: interrupted, the command says how to end it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
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

FAILED = 1
NOT_ENDED = 3

#: After so long without the operator, a line says what may be missing.
_PATIENCE_SECONDS = 10.0
_LOOK_SECONDS = 0.5
#: ScheduleRuns are deleted so long after they have ended.
_TTL_SECONDS = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions(options.Place):
    """What ``trigger`` and ``backfill`` share."""

    timeout_seconds: float | None
    wait: bool
    form: str


def options_of_run(*, wait: bool) -> Callable[..., Any]:
    """The options of a command that makes a ScheduleRun, as ``run_options``."""
    return options.gathered(
        "run_options",
        RunOptions,
        options.namespace_of_cluster,
        click.option(
            "--timeout",
            "timeout_seconds",
            metavar="DURATION",
            type=options.Converted(options.timeout_seconds),
            help="Wait no longer than this, such as 90s or 2h, for its end or, with --no-wait, for"
            " the cluster; 0 or unset: as long as it takes.",
        ),
        options.output_format,
        options.of_cluster,
        click.option("--wait/--no-wait", default=wait, show_default=True, help="Wait for its end."),
    )


async def schedule(cluster: ClusterSession, name: str) -> ScheduleSpec:
    """The Schedule of this name, read.

    Raises:
        errors.InvalidSetting: there is none, or what it says cannot be carried out.
        kube_errors.ApiError: the API server does not answer, or does not allow it.
    """
    try:
        body = await cluster.api.request("GET", schedules.path(cluster.namespace, name))
    except kube_errors.NotFound:
        raise await clusters.unknown_name(cluster, name) from None
    found = msgspec.json.decode(body, type=schedules.Schedule)
    try:
        return schedules.spec_of(found)
    except errors.InvalidSpec as invalid:
        message = f"Schedule {cluster.namespace}/{name} cannot run: {invalid}"
        raise errors.InvalidSetting("NAME", message) from invalid


async def create(
    cluster: ClusterSession,
    schedule_name: str,
    what: dict[str, Any],
    run_options: RunOptions,
    slots: str,
) -> schedules.ScheduleRun:
    """A new ScheduleRun, made once and named on standard output.

    Args:
        what: ``trigger`` or ``backfill`` of the spec.
        slots: which ones it runs, in words.

    Raises:
        kube_errors.ApiError: it was refused, or the API server does not answer.
    """
    spec = {**what, "ttlSecondsAfterFinished": _TTL_SECONDS}
    run = schedules.new_run(cluster.namespace, schedule_name, spec)
    made = await schedules.create_run(cluster.api, run)
    if not output.is_data(run_options.form):  # JSON says it with the end
        output.say(f"schedulerun.duepoint.dev/{made.metadata.name} created: {slots}")
    return made


def status_of(run: schedules.ScheduleRun) -> dict[str, Any]:
    """As the operator wrote it; empty before it has."""
    found: dict[str, Any] = msgspec.json.decode(run.status)
    return found


def state_of(status: Mapping[str, Any]) -> str:
    """``Complete``, ``Failed``, ``Running``, ``Retrying``, or ``Pending`` at first.

    Retrying: what has started failed, and waits for its next try.
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


# -- following -----------------------------------------------------------------------------------


async def to_the_end(
    cluster: ClusterSession, run: schedules.ScheduleRun, timeout_seconds: float | None
) -> schedules.ScheduleRun:
    """Its last state: ended, or as it was when the time was over.

    Raises:
        errors.InvalidSetting: it was deleted before it had ended.
        kube_errors.ApiError: it may not be read.
    """
    newest = run

    def complain() -> None:
        if "observedGeneration" not in status_of(newest):
            output.complain("no operator has looked at it yet; is duepoint operator running?")

    timer = asyncio.get_running_loop().call_later(_PATIENCE_SECONDS, complain)
    try:
        with output.bar(run.metadata.name, None) as advance:
            async with asyncio.timeout(timeout_seconds):
                async for newest in _states(cluster, run):
                    read = status_of(newest)
                    counts = _counts(read)
                    ended = sum(counts[name] for name in _COUNTS[2:])
                    advance(ended, read.get("message", ""), counts["planned"])
                    if state_of(read) in ("Complete", "Failed"):
                        break
    except TimeoutError:
        pass
    finally:
        timer.cancel()
    return newest


async def _states(
    cluster: ClusterSession, run: schedules.ScheduleRun
) -> AsyncIterator[schedules.ScheduleRun]:
    """How it stands, again and again; one that was deleted before its end is an error."""
    metadata = run.metadata
    path = schedules.path(metadata.namespace, metadata.name, plural=schedules.RUN_PLURAL)
    while True:
        try:
            body = await cluster.api.request("GET", path)
        except kube_errors.NotFound:
            raise _deleted(run) from None
        except errors.TryLater:
            pass
        else:
            found = msgspec.json.decode(body, type=schedules.ScheduleRun)
            if found.metadata.uid != metadata.uid:
                raise _deleted(run)
            yield found
        await asyncio.sleep(_LOOK_SECONDS)


def _deleted(run: schedules.ScheduleRun) -> errors.InvalidSetting:
    message = "it was deleted before it had ended; no further slot is started"
    return errors.InvalidSetting(f"{run.metadata.namespace}/{run.metadata.name}", message)


# -- showing -------------------------------------------------------------------------------------


def _show_end(run: schedules.ScheduleRun, form: str, *, waited: bool) -> None:
    """Say how it stands, and leave with the exit code if the command waited for it."""
    read = status_of(run)
    state, message = state_of(read), read.get("message", "")
    if output.is_data(form):
        row = {
            "namespace": run.metadata.namespace,
            "name": run.metadata.name,
            "uid": run.metadata.uid,
            "state": state,
            "runs": _counts(read),
            "message": message,
        }
        output.write([row], form)
    elif waited:
        output.say(f"{state}: {message or 'not looked at yet'}")
    if not waited or state == "Complete":
        return
    if state != "Failed":
        output.complain(f"it had not ended when the time was over. {_how_to_end(run)}")
        raise click.exceptions.Exit(NOT_ENDED)
    raise click.exceptions.Exit(FAILED)


def _how_to_end(run: schedules.ScheduleRun) -> str:
    """For those who do not want to wait any longer."""
    metadata = run.metadata
    return (
        f"It goes on; kubectl delete schedulerun {metadata.name} -n {metadata.namespace} starts no "
        "further slot"
    )


def finish(
    run_options: RunOptions,
    create_run: Callable[[ClusterSession], Awaitable[schedules.ScheduleRun | None]],
) -> None:
    """Make the ScheduleRun and, where asked for, follow it to its end.

    Raises:
        errors.InvalidSetting: what was asked for cannot be, or the cluster says no.
        click.exceptions.Exit: with the exit code of how it ended.
    """
    seconds, wait = run_options.timeout_seconds, run_options.wait
    place = run_options if wait else dataclasses.replace(run_options, patience_seconds=seconds)
    known: list[schedules.ScheduleRun] = []

    async def create_and_follow() -> None:
        async with clusters.session(place) as cluster:
            run = await create_run(cluster)
            if run is None:
                return
            known.append(run)
            if wait:
                known.append(await to_the_end(cluster, run, seconds))

    try:
        asyncio.run(create_and_follow())
    except (KeyboardInterrupt, kube_errors.ApiError, errors.InvalidSetting) as trouble:
        if known:
            output.complain(_how_to_end(known[-1]))
        if not isinstance(trouble, kube_errors.ApiError):
            raise
        raise errors.InvalidSetting("cluster", str(trouble)) from trouble
    if known:
        _show_end(known[-1], run_options.form, waited=wait)


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
    type=options.SLOT_TIME,
    help="Slot that the run carries, or HH:MM for the last one. Unset: the creation.",
)
@click.option(
    "--payload",
    metavar="JSON|@FILE",
    type=options.Converted(_payload),
    help="In place of the Schedule's; @- is standard input.",
)
@options_of_run(wait=False)
def trigger(
    name: str,
    *,
    at: str | None,
    payload: msgspec.Raw | None,
    run_options: RunOptions,
) -> None:
    """Run the Schedule NAME once, now.

    Example: duepoint trigger report -n team-a --wait
    """
    what: dict[str, Any] = {}
    if payload is not None:
        what["payload"] = payload

    async def asked(server: ClusterSession) -> schedules.ScheduleRun:
        known = await schedule(server, name)
        slot = "now"
        if at is not None:
            slot_us = instants.parse_last_us(at, zone=known.rule.timing.time_zone, name="--at")
            slot_us = manualruns.fitted(slot_us, whole_seconds=known.rule.whole_seconds)
            slot = what["scheduledTime"] = instants.utc_text(slot_us)
        shown = f"{known.identity} runs with the slot {slot}"
        return await create(server, name, {"trigger": what}, run_options, shown)

    finish(run_options, asked)


# -- backfill --------------------------------------------------------------------------------------


#: Slots shown at each end of a range that holds more.
_SHOWN = 5
#: A range with more slots is refused, as the API does.
_LIMIT = 10_000


@click.command()
@options.schedule_name
@click.option(
    "--from",
    "from_",
    metavar="TIME",
    type=options.TIME,
    required=True,
    help="Begin; belongs to the range.",
)
@click.option(
    "--to", metavar="TIME", type=options.TIME, required=True, help="End; does not belong to it."
)
@click.option(
    "--max-parallel",
    "parallel",
    default=str(manualruns.MAX_PARALLEL),
    metavar="N",
    type=options.whole(1_000),
    show_default=True,
    help="Runs that may be active at once.",
)
@click.option("--dry-run", is_flag=True, help="Show what would run, and run nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@options_of_run(wait=True)
def backfill(
    name: str,
    *,
    from_: str,
    to: str,
    parallel: int,
    dry_run: bool,
    yes: bool,
    run_options: RunOptions,
) -> None:
    """Run the slots of the Schedule NAME in a range again.

    Example: duepoint backfill report -n team-a --from 2026-11-01 --to 2026-11-02
    """

    async def asked(server: ClusterSession) -> schedules.ScheduleRun | None:
        known = await schedule(server, name)
        from_us, to_us = _range(known, from_, to)
        wish = Backfill(
            from_us=from_us,
            to_us=to_us,
            asked_us=instants.now_us(),
            max_parallel=parallel,
            limit=_LIMIT,
        )
        count = _previewed(known, wish, run_options.form, dry_run=dry_run)
        if dry_run or not count or not (yes or _agreed(count)):
            return None
        what = {
            "from": instants.utc_text(from_us),
            "to": instants.utc_text(to_us),
            "maxParallel": parallel,
            "limit": _LIMIT,
        }
        shown = f"{count} slots of {known.identity}"
        return await create(server, name, {"backfill": what}, run_options, shown)

    finish(run_options, asked)


def _range(known: ScheduleSpec, from_: str, to: str) -> tuple[int, int]:
    """Both ends; times without an offset are the wall clock of the Schedule's zone."""
    zone = known.rule.timing.time_zone
    from_us = instants.parse_us(from_, zone=zone, name="--from")
    to_us = instants.parse_us(to, zone=zone, name="--to")
    if to_us <= from_us:
        message = f"{errors.quoted(to)} is not after --from {errors.quoted(from_)}"
        raise errors.InvalidSetting("--to", f"{message}; write a later time")
    return from_us, to_us


def _previewed(known: ScheduleSpec, asked: Backfill, form: str, *, dry_run: bool) -> int:
    """Show what would run; how many slots.

    Raises:
        errors.InvalidSetting: the operator would refuse it.
    """
    line = manualruns.timeline_of(known.rule, identity=known.identity, created_us=known.created_us)
    after_us, through_us = asked.from_us - 1, asked.through_us
    count = line.count(after_us, through_us)
    if count > asked.limit:
        raise errors.InvalidSetting(
            "--to",
            f"the range holds {count} slots, and {_LIMIT} may be run at once; write shorter ones",
        )
    first_, last_ = line.walk(after_us, through_us), line.walk_back(through_us, after_us)
    if count <= 2 * _SHOWN:
        first, last = list(first_), list[int]()
    else:
        first, last = (list(itertools.islice(end, _SHOWN)) for end in (first_, last_))
        last.reverse()
    if not output.is_data(form):
        _show(known, asked, count, (first, last))
    elif dry_run:
        row = {
            "namespace": known.namespace,
            "schedule": known.name,
            "slots": count,
            "first": [instants.utc_text(slot_us) for slot_us in first],
            "last": [instants.utc_text(slot_us) for slot_us in last],
            "notes": list(_notes(known, asked)),
        }
        output.write([row], form)
    if count == 0 and output.is_data(form):
        output.complain("there is no slot in the range")
    return count


def _show(
    known: ScheduleSpec, asked: Backfill, count: int, ends: tuple[list[int], list[int]]
) -> None:
    """The preview for people."""
    slots = "no slot" if count == 0 else "1 slot" if count == 1 else f"{count} slots"
    output.say(
        f"{known.identity}: {slots} from {instants.utc_text(asked.from_us)} until "
        f"{instants.utc_text(asked.to_us)}, at most {asked.max_parallel} at once"
    )
    zone = instants.LocalTime(known.rule.timing.time_zone)
    first, last = ends
    lines = [f"  {instants.utc_text(slot_us)}  {zone.text(slot_us)}" for slot_us in first + last]
    if last:
        lines.insert(len(first), f"  ... {count - len(first) - len(last)} more ...")
    for line in lines:
        output.say(line)
    for note in _notes(known, asked):
        output.say(f"  note: {note}")


def _notes(known: ScheduleSpec, asked: Backfill) -> Iterator[str]:
    """What people may not expect."""
    policy = known.rule.policy
    if asked.to_us > asked.asked_us:
        yield "slots after now are left out: the Schedule runs them itself"
    if policy.concurrency != "Allow" and asked.max_parallel > policy.max_concurrency:
        limit = f"concurrencyPolicy {policy.concurrency}: {policy.max_concurrency} at a time"
        yield f"{limit}, and beside regular runs as it says"
    if known.rule.timing.suspend:
        yield "the Schedule is suspended; these slots run all the same"


def _agreed(count: int) -> bool:
    agreed = options.confirmed(
        f"Start {'1 run' if count == 1 else f'{count} runs'}?",
        option="--yes",
        without_terminal="standard input is no terminal to ask on; write --yes, or --dry-run to"
        " look",
    )
    if not agreed:
        output.say("nothing was started")
    return agreed
