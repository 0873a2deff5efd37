"""ScheduleRuns of ``trigger`` and ``backfill``: made in a cluster, and followed to their end.

A ScheduleRun gets its name here and not from the API server, so that a creation whose answer was
lost can be asked for again without making two. While it runs a progress bar is shown on a
terminal's standard error, and nothing elsewhere; its end is text or one JSON object, with the exit
code: 0 for Complete, 1 for Failed, 3 for one that had not ended in time. The ScheduleRun does not
depend on the command that follows it: interrupted, the command says how to end it.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import secrets
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import click
import msgspec

from duepoint import errors
from duepoint.cli import cluster as clusters
from duepoint.cli import output
from duepoint.cli.cluster import Cluster, Place
from duepoint.kube import errors as kube_errors
from duepoint.kube import port, schedules, times
from duepoint.schedules import spec as specs

_LABEL = "duepoint.dev/schedule"
_CREATE_ROUNDS = 4


async def schedule(cluster: Cluster, name: str) -> specs.ScheduleSpec:
    """The Schedule of this name, read.

    Raises:
        errors.InvalidSetting: there is none, or what it says cannot be carried out.
        kube_errors.ApiError: the API server does not answer, or does not allow it.
    """
    try:
        body = await cluster.api.request("GET", schedules.path(cluster.namespace, name))
    except kube_errors.NotFound:
        raise errors.InvalidSetting("NAME", await _nothing_of(cluster, name)) from None
    found = msgspec.json.decode(body, type=schedules.Schedule)
    metadata = found.metadata
    created = metadata.creation_timestamp
    try:
        return specs.parse(
            bytes(found.spec),
            namespace=metadata.namespace,
            name=metadata.name,
            uid=metadata.uid,
            generation=metadata.generation,
            created_us=times.parse_us(created) if created else 0,
        )
    except errors.InvalidSpec as invalid:
        said = f"Schedule {cluster.namespace}/{name} cannot run: {invalid}"
        raise errors.InvalidSetting("NAME", said) from invalid


async def _nothing_of(cluster: Cluster, name: str) -> str:
    """That there is no such Schedule, and which one may have been meant."""
    said = f"there is no Schedule {cluster.namespace}/{name}"
    names: list[str] = []
    with contextlib.suppress(kube_errors.ApiError):
        path = schedules.collection(cluster.namespace)
        async for page in cluster.api.list_pages(path, schedules.Schedule):
            names += [item.metadata.name for item in page.items]
    if near := difflib.get_close_matches(name, names, n=1):
        return f'{said}; did you mean "{near[0]}"?'
    return f"{said}; kubectl get schedules -n {cluster.namespace} shows those there are"


async def create(
    cluster: Cluster, schedule_name: str, what: dict[str, Any], ttl_seconds: int | None
) -> schedules.ScheduleRun:
    """A new ScheduleRun, once.

    Args:
        what: ``trigger`` or ``backfill`` of the spec.
        ttl_seconds: deleted so long after it has ended; None = kept.

    Raises:
        kube_errors.ApiError: it was refused, or the API server does not answer.
    """
    name = f"{schedule_name[:52].rstrip('.-')}-{secrets.token_hex(4)}"
    spec: dict[str, Any] = {"scheduleName": schedule_name, **what}
    if ttl_seconds is not None:
        spec["ttlSecondsAfterFinished"] = ttl_seconds
    made = {
        "apiVersion": schedules.API_VERSION,
        "kind": schedules.RUN_KIND,
        "metadata": {
            "name": name,
            "namespace": cluster.namespace,
            "labels": {_LABEL: schedule_name[:63].rstrip(".-")},
        },
        "spec": spec,
    }
    return msgspec.json.decode(await _made(cluster, name, made), type=schedules.ScheduleRun)


async def _made(cluster: Cluster, name: str, made: dict[str, Any]) -> bytes:
    """Asked again after a lost answer, the name tells that it is there."""
    path = schedules.collection(cluster.namespace, plural=schedules.RUN_PLURAL)
    for left in range(_CREATE_ROUNDS, 0, -1):
        try:
            return await cluster.api.request("POST", path, made)
        except kube_errors.Unavailable:
            if left == 1:
                raise
        except kube_errors.Conflict:
            one = schedules.path(cluster.namespace, name, plural=schedules.RUN_PLURAL)
            return await cluster.api.request("GET", one)
    raise AssertionError("unreachable")


FAILED = 1
NOT_ENDED = 3

#: After so long without the operator, a line says what may be missing.
_PATIENCE_SECONDS = 10.0
_AGAIN_SECONDS = 1.0


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
        """``Complete``, ``Failed``, ``Running``, ``Retrying``, or ``Pending`` at first.

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
) -> AsyncIterator[port.WatchEvent[schedules.ScheduleRun]]:
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
    """Say so if no operator acts on it."""

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
    from rich import console, progress  # noqa: PLC0415 - only on a terminal

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
    """Say that it was made; JSON says it with the end, or here if the command does not wait."""
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


def finish(
    where: Place,
    made: Callable[[Cluster], Any],
    *,
    shape: str,
    wait: bool,
    most_seconds: float | None,
) -> None:
    """Make the ScheduleRun and, where asked for, follow it to its end.

    Raises:
        errors.InvalidSetting: what was asked for cannot be, or the cluster says no.
        click.exceptions.Exit: with the exit code of how it ended.
    """
    known: list[schedules.ScheduleRun] = []
    try:
        asyncio.run(_finish(where, made, known, wait=wait, most_seconds=most_seconds))
    except KeyboardInterrupt:
        if known:
            output.complain(how_to_end(known[-1]))
        raise
    except kube_errors.ApiError as trouble:
        if known:
            output.complain(how_to_end(known[-1]))
        raise errors.InvalidSetting("cluster", str(trouble)) from trouble
    if known:
        tell_end(known[-1], shape, waited=wait)


async def _finish(
    where: Place,
    made: Callable[[Cluster], Any],
    known: list[schedules.ScheduleRun],
    *,
    wait: bool,
    most_seconds: float | None,
) -> None:
    async with clusters.session(where) as cluster:
        run = await made(cluster)
        if run is None:
            return
        known.append(run)
        if wait:
            known.append(await to_the_end(cluster, run, most_seconds))
