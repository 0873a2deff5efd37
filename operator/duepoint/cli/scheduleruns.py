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
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import click
import msgspec

from duepoint import errors
from duepoint.cli import cluster as clusters
from duepoint.cli import instants, options, output
from duepoint.cli.cluster import ClusterSession
from duepoint.kube import errors as kube_errors
from duepoint.kube import port, schedules
from duepoint.schedules import manualruns
from duepoint.schedules.spec import ScheduleSpec

FAILED = 1
NOT_ENDED = 3

#: After so long without the operator, a line says what may be missing.
_PATIENCE_SECONDS = 10.0
_AGAIN_SECONDS = 1.0
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


class _Counts(msgspec.Struct, frozen=True):
    planned: int = 0
    started: int = 0
    succeeded: int = 0
    failed: int = 0
    replaced: int = 0
    skipped: int = 0

    @property
    def ended(self) -> int:
        return self.succeeded + self.failed + self.replaced + self.skipped


class _Condition(msgspec.Struct, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""


class RunStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The status of a ScheduleRun, as far as it is shown."""

    observed_generation: int = -1
    conditions: tuple[_Condition, ...] | None = None
    runs: _Counts | None = None
    message: str = ""

    @property
    def state(self) -> str:
        """``Complete``, ``Failed``, ``Running``, ``Retrying``, or ``Pending`` at first.

        Retrying: what has started failed, and waits for its next try.
        """
        for condition in self.conditions or ():
            if condition.type in ("Complete", "Failed") and condition.status == "True":
                return condition.type
            if condition.type == "Reconciling" and condition.reason == "Retrying":
                return condition.reason
        return "Pending" if self.observed_generation < 0 else "Running"


def status_of(run: schedules.ScheduleRun) -> RunStatus:
    """As the operator wrote it."""
    try:
        return msgspec.json.decode(run.status, type=RunStatus)
    except msgspec.DecodeError:
        return RunStatus()


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
        if status_of(newest).observed_generation < 0:
            output.complain("no operator has looked at it yet; is duepoint operator running?")

    timer = asyncio.get_running_loop().call_later(_PATIENCE_SECONDS, complain)
    try:
        with output.bar(run.metadata.name, None) as advance:
            async with asyncio.timeout(timeout_seconds):
                async for newest in _states(cluster, run):
                    read = status_of(newest)
                    counts = read.runs or _Counts()
                    advance(counts.ended, read.message, counts.planned)
                    if read.state in ("Complete", "Failed"):
                        break
    except TimeoutError:
        pass
    finally:
        timer.cancel()
    return newest


async def _states(
    cluster: ClusterSession, run: schedules.ScheduleRun
) -> AsyncIterator[schedules.ScheduleRun]:
    """Every state from now on; one that was deleted before its end is an error."""
    metadata = run.metadata
    path = schedules.path(metadata.namespace, metadata.name, plural=schedules.RUN_PLURAL)
    while True:
        try:
            body = await cluster.api.request("GET", path)
            found = msgspec.json.decode(body, type=schedules.ScheduleRun)
            if found.metadata.uid != metadata.uid:
                raise _deleted(run)
            yield found
            runs = schedules.collection(metadata.namespace, plural=schedules.RUN_PLURAL)
            named = {"fieldSelector": f"metadata.name={metadata.name}"}
            async for change in cluster.api.watch(
                runs, schedules.ScheduleRun, found.metadata.resource_version, query=named
            ):
                if change.item.metadata.uid != metadata.uid:
                    continue
                yield change.item
                if change.type is port.ChangeType.DELETED:
                    raise _deleted(run)
        except kube_errors.NotFound:
            raise _deleted(run) from None
        except (kube_errors.Gone, errors.TryLater):
            await asyncio.sleep(_AGAIN_SECONDS)


def _deleted(run: schedules.ScheduleRun) -> errors.InvalidSetting:
    message = "it was deleted before it had ended; no further slot is started"
    return errors.InvalidSetting(f"{run.metadata.namespace}/{run.metadata.name}", message)


# -- showing -------------------------------------------------------------------------------------


def _show_end(run: schedules.ScheduleRun, form: str, *, waited: bool) -> None:
    """Say how it stands, and leave with the exit code if the command waited for it."""
    read = status_of(run)
    if output.is_data(form):
        row = {
            "namespace": run.metadata.namespace,
            "name": run.metadata.name,
            "uid": run.metadata.uid,
            "state": read.state,
            "runs": msgspec.to_builtins(read.runs or _Counts()),
            "message": read.message,
        }
        output.write([row], form)
    elif waited:
        output.say(f"{read.state}: {read.message or 'not looked at yet'}")
    if not waited or read.state == "Complete":
        return
    if read.state != "Failed":
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
