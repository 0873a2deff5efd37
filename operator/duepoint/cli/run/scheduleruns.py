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
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import click
import msgspec

from duepoint import errors
from duepoint.cli import cluster as clusters
from duepoint.cli import output
from duepoint.cli.cluster import ClusterSession, Place
from duepoint.kube import errors as kube_errors
from duepoint.kube import port, schedules, times
from duepoint.schedules import spec as specs

_LABEL = "duepoint.dev/schedule"
_CREATE_ROUNDS = 4


async def schedule(cluster: ClusterSession, name: str) -> specs.ScheduleSpec:
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
        message = f"Schedule {cluster.namespace}/{name} cannot run: {invalid}"
        raise errors.InvalidSetting("NAME", message) from invalid


async def _nothing_of(cluster: ClusterSession, name: str) -> str:
    """That there is no such Schedule, and which one may have been meant."""
    message = f"there is no Schedule {cluster.namespace}/{name}"
    names: list[str] = []
    with contextlib.suppress(kube_errors.ApiError):
        path = schedules.collection(cluster.namespace)
        async for page in cluster.api.list_pages(path, schedules.Schedule):
            names += [item.metadata.name for item in page.items]
    if near := difflib.get_close_matches(name, names, n=1):
        return f'{message}; did you mean "{near[0]}"?'
    return f"{message}; kubectl get schedules -n {cluster.namespace} shows those there are"


async def create(
    cluster: ClusterSession, schedule_name: str, what: dict[str, Any], ttl_seconds: int | None
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
    run = {
        "apiVersion": schedules.API_VERSION,
        "kind": schedules.RUN_KIND,
        "metadata": {
            "name": name,
            "namespace": cluster.namespace,
            "labels": {_LABEL: schedule_name[:63].rstrip(".-")},
        },
        "spec": spec,
    }
    path = schedules.collection(cluster.namespace, plural=schedules.RUN_PLURAL)
    for left in range(_CREATE_ROUNDS, 0, -1):
        try:
            body = await cluster.api.request("POST", path, run)
            break
        except kube_errors.Unavailable:
            if left == 1:
                raise
        except kube_errors.Conflict:  # an earlier attempt made it, and its answer was lost
            body = await cluster.api.request("GET", f"{path}/{name}")
            break
    return msgspec.json.decode(body, type=schedules.ScheduleRun)


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
    cluster: ClusterSession, run: schedules.ScheduleRun, timeout_seconds: float | None
) -> schedules.ScheduleRun:
    """Its last state: ended, or as it was when the time was over.

    Raises:
        errors.InvalidSetting: it was deleted before it had ended.
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
        yield lambda _planned, _ended, _message: None
        return
    from rich import console, progress  # noqa: PLC0415 - only on a terminal

    bar = progress.Progress(
        progress.TextColumn("{task.fields[name]}", markup=False),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TextColumn("{task.fields[message]}", markup=False),
        console=console.Console(stderr=True),
    )
    with bar:
        task = bar.add_task("", name=run.metadata.name, message="", total=None)

        def show(planned: int, ended: int, message: str) -> None:
            bar.update(task, total=planned, completed=ended, message=output.one_line(message))

        yield show


def _is_watched() -> bool:
    return sys.stderr.isatty()


def show_created(run: schedules.ScheduleRun, form: str, slots: str) -> None:
    """Say that it was made; JSON says it with the end, or here if the command does not wait."""
    if form == "text":
        output.say(f"schedulerun.duepoint.dev/{run.metadata.name} created: {slots}")


def _show_end(run: schedules.ScheduleRun, form: str, *, waited: bool) -> None:
    """Say how it stands, and leave with the exit code if the command waited for it."""
    read = status_of(run)
    if form == "json":
        output.write([row(run)], "json", widths={})
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
    where: Place,
    create_run: Callable[[ClusterSession], Awaitable[schedules.ScheduleRun | None]],
    *,
    form: str,
    wait: bool,
    timeout_us: int | None,
) -> None:
    """Make the ScheduleRun and, where asked for, follow it to its end.

    Raises:
        errors.InvalidSetting: what was asked for cannot be, or the cluster says no.
        click.exceptions.Exit: with the exit code of how it ended.
    """
    if timeout_us is not None and not wait:
        raise errors.InvalidSetting(
            "--timeout",
            "limits how long the command waits, and it does not; add --wait, or leave it out",
        )
    known: list[schedules.ScheduleRun] = []

    async def create_and_follow() -> None:
        async with clusters.session(where) as cluster:
            run = await create_run(cluster)
            if run is None:
                return
            known.append(run)
            if wait:
                seconds = None if timeout_us is None else timeout_us / 1e6
                known.append(await to_the_end(cluster, run, seconds))

    try:
        asyncio.run(create_and_follow())
    except (KeyboardInterrupt, kube_errors.ApiError) as trouble:
        if known:
            output.complain(_how_to_end(known[-1]))
        if isinstance(trouble, KeyboardInterrupt):
            raise
        raise errors.InvalidSetting("cluster", str(trouble)) from trouble
    if known:
        _show_end(known[-1], form, waited=wait)
