"""A ScheduleRun followed to its end, with a bar where somebody looks on.

Owns what is shown while it goes on (a progress bar on a terminal's standard error, nothing
elsewhere) and what is said at the end, as text or as one JSON object, with the exit code: 0 for
Complete, 1 for Failed, 3 for one that had not ended in time. The ScheduleRun does not depend on
who follows it: interrupted, this says how to end it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import click
import msgspec

from duepoint import errors
from duepoint.cli import output
from duepoint.cli.run.triggercluster import Cluster
from duepoint.kube import errors as kube_errors
from duepoint.kube import port, schedules

FAILED = 1
NOT_ENDED = 3

#: Without a word of the operator for so long, people are told what may be missing.
_PATIENCE_SECONDS = 10.0
_AGAIN_SECONDS = 1.0

FORMATS = ("json", "text")

#: Shows how far it is: planned, ended, and a sentence.
Show = Callable[[int, int, str], None]


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


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """The status of a ScheduleRun, as far as it is shown."""

    observed_generation: int = -1
    conditions: tuple[_Condition, ...] | None = None
    runs: _Counts | None = None
    message: str = ""

    @property
    def state(self) -> str:
        """``Complete``, ``Failed``, ``Running``, ``Retrying``, ``Pending`` before anybody looked.

        Retrying: what has started failed, and waits for its next try.
        """
        for one in self.conditions or ():
            if one.type in ("Complete", "Failed") and one.status == "True":
                return one.type
            if one.type == "Reconciling" and one.reason == "Retrying":
                return one.reason
        return "Pending" if self.observed_generation < 0 else "Running"


def status_of(run: schedules.ScheduleRun) -> Status:
    """As the operator wrote it."""
    try:
        return msgspec.json.decode(run.status, type=Status)
    except msgspec.DecodeError:
        return Status()


def row(run: schedules.ScheduleRun) -> dict[str, Any]:
    """What JSON says of it."""
    read = status_of(run)
    return {
        "namespace": run.metadata.namespace,
        "name": run.metadata.name,
        "uid": run.metadata.uid,
        "state": read.state,
        "runs": msgspec.to_builtins(read.runs or _Counts()),
        "message": read.message,
    }


# -- following -----------------------------------------------------------------------------------


async def to_the_end(
    cluster: Cluster, run: schedules.ScheduleRun, timeout_seconds: float | None
) -> schedules.ScheduleRun:
    """Its last state: ended, or as it was when the time was over.

    Raises:
        errors.InvalidSetting: somebody deleted it before it had ended.
        kube_errors.ApiError: it may not be read.
    """
    newest = [run]
    with _bar(run) as show, contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_seconds), _complaining(newest):
            async for state in _states(cluster, run):
                newest.append(state)
                read = status_of(state)
                counts = read.runs or _Counts()
                show(counts.planned, counts.ended, read.message)
                if read.state in ("Complete", "Failed"):
                    break
    return newest[-1]


async def _states(
    cluster: Cluster, run: schedules.ScheduleRun
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
            async for change in _changes(cluster, found):
                if change.item.metadata.uid != metadata.uid:
                    continue
                yield change.item
                if change.type is port.ChangeType.DELETED:
                    raise _deleted(run)
        except kube_errors.NotFound:
            raise _deleted(run) from None
        except (kube_errors.Gone, errors.TryLater):
            await asyncio.sleep(_AGAIN_SECONDS)


def _changes(
    cluster: Cluster, run: schedules.ScheduleRun
) -> AsyncIterator[port.Change[schedules.ScheduleRun]]:
    return cluster.api.watch(
        schedules.collection(run.metadata.namespace, plural=schedules.RUN_PLURAL),
        schedules.ScheduleRun,
        run.metadata.resource_version,
        query={"fieldSelector": f"metadata.name={run.metadata.name}"},
    )


def _deleted(run: schedules.ScheduleRun) -> errors.InvalidSetting:
    said = "it was deleted before it had ended; no further slot is started"
    return errors.InvalidSetting(f"{run.metadata.namespace}/{run.metadata.name}", said)


@contextlib.asynccontextmanager
async def _complaining(newest: list[schedules.ScheduleRun]) -> AsyncIterator[None]:
    """Say so where nobody acts on it."""

    async def complain() -> None:
        await asyncio.sleep(_PATIENCE_SECONDS)
        if status_of(newest[-1]).observed_generation < 0:
            output.complain("no operator has looked at it yet; is duepoint operator running?")

    task = asyncio.create_task(complain())
    try:
        yield
    finally:
        task.cancel()


# -- showing -------------------------------------------------------------------------------------


@contextlib.contextmanager
def _bar(run: schedules.ScheduleRun) -> Iterator[Show]:
    if not _is_watched():
        yield lambda _planned, _ended, _said: None
        return
    from rich import console, progress  # noqa: PLC0415 - only where somebody looks on

    bar = progress.Progress(
        progress.TextColumn("{task.fields[name]}", markup=False),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TextColumn("{task.fields[said]}", markup=False),
        console=console.Console(stderr=True),
    )
    with bar:
        task = bar.add_task("", name=run.metadata.name, said="", total=None)

        def show(planned: int, ended: int, said: str) -> None:
            bar.update(task, total=planned, completed=ended, said=output.one_line(said))

        yield show


def _is_watched() -> bool:
    return sys.stderr.isatty()


def tell_made(run: schedules.ScheduleRun, form: str, slots: str) -> None:
    """Say that it was made; JSON says it with the end, or here where nobody waits."""
    if form == "text":
        output.say(f"schedulerun.duepoint.dev/{run.metadata.name} created: {slots}")


def tell_end(run: schedules.ScheduleRun, form: str, *, waited: bool) -> None:
    """Say how it stands, and leave with the exit code where it was waited for."""
    read = status_of(run)
    if form == "json":
        output.write([row(run)], "json", widths={})
    elif waited:
        output.say(f"{read.state}: {read.message or 'not looked at yet'}")
    if not waited or read.state == "Complete":
        return
    if read.state != "Failed":
        output.complain(f"it had not ended when the time was over. {how_to_end(run)}")
        raise click.exceptions.Exit(NOT_ENDED)
    raise click.exceptions.Exit(FAILED)


def how_to_end(run: schedules.ScheduleRun) -> str:
    """For those who do not want to wait any longer."""
    metadata = run.metadata
    return (
        f"It goes on; kubectl delete schedulerun {metadata.name} -n {metadata.namespace} starts no "
        "further slot"
    )
