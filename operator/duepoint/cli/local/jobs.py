"""What becomes of Jobs without a cluster: a Job controller without Pods.

Unless asked otherwise no command runs: a Job is begun, and is complete a second later. With
``exec`` the commands of its template run as processes of this machine: the init containers one
after the other, then all containers at once, each once. Exit code 0 of all of them is Complete,
any other is Failed; ``activeDeadlineSeconds`` ends them, and so does the deletion of the Job.

There is no container: no image, no volumes, no limits, no second try. A process has the
environment of ``duepoint run``, the variables of its container and the slot's; a container without
``command`` has nothing to run here, which is the Job's failure.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from duepoint import clock as clocks
from duepoint import errors
from duepoint.kube import errors as kube_errors
from duepoint.kube import jobs as kubejobs
from duepoint.kube import port, times

#: How long a Job takes whose commands do not run.
SIMULATED_SECONDS = 1.0

#: ``$(NAME)`` in a command, and ``$$(NAME)``, which stays as ``$(NAME)``.
_REFERENCE = re.compile(r"\$(\$)?\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")
_ANNOTATION = re.compile(r"metadata\.(annotations|labels)\['(.*)'\]")

#: Takes a namespaced Job name and a line that one of its processes wrote.
OnOutput = Callable[[str, str], None]


class StoredJob(msgspec.Struct, frozen=True):
    """A Job with its spec, as the watch of this service reads it."""

    metadata: port.Metadata
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


#: Takes a Job that begins.
OnBegin = Callable[[StoredJob], None]


class JobEnd(NamedTuple):
    """How a Job ended; ``message`` is empty where all is well."""

    succeeded: bool
    reason: str
    message: str = ""


COMPLETE = JobEnd(succeeded=True, reason="CompletionsReached")


class JobRunner:
    """Runs until cancelled; then the processes that still run are ended.

    Args:
        executes: run the commands, or let each Job be complete after a second.
        on_begin: takes each Job as it begins.
        on_output: takes what the processes write, line by line.
    """

    def __init__(
        self,
        api: port.Api,
        clock: clocks.Clock,
        *,
        executes: bool,
        on_begin: OnBegin,
        on_output: OnOutput,
    ) -> None:
        self._api = api
        self._clock = clock
        self._executes = executes
        self._on_begin = on_begin
        self._on_output = on_output
        self._running: dict[str, asyncio.Task[None]] = {}
        #: Each Job runs once: a change that the watch shows late must not begin it anew.
        self._begun: set[str] = set()

    async def run(self) -> None:
        """Begin each new Job, and end the processes of each deleted one."""
        try:
            while True:
                with contextlib.suppress(kube_errors.Gone):
                    await self._follow()
        finally:
            tasks = list(self._running.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self) -> None:
        path = kubejobs.collection()
        version = ""
        async for page in self._api.list_pages(path, StoredJob):
            version = page.metadata.resource_version
            for job in page.items:
                self._begin(job)
        async for change in self._api.watch(path, StoredJob, version):
            if change.type is port.ChangeType.DELETED:
                self._begun.discard(change.item.metadata.uid)
                if (task := self._running.get(change.item.metadata.uid)) is not None:
                    task.cancel()
            else:
                self._begin(change.item)

    def _begin(self, job: StoredJob) -> None:
        uid = job.metadata.uid
        is_over = any(each.get("status") == "True" for each in job.status.get("conditions") or ())
        if uid in self._begun or is_over or job.spec.get("suspend"):
            return
        self._begun.add(uid)
        self._on_begin(job)
        task = self._running[uid] = asyncio.create_task(self._job(job))
        task.add_done_callback(lambda _: self._running.pop(uid, None))

    async def _job(self, job: StoredJob) -> None:
        began = times.time_text(self._clock.now_us())
        await self._write(job, {"startTime": began, "active": 1, "ready": 1})
        limit = job.spec.get("activeDeadlineSeconds")
        try:
            async with asyncio.timeout(limit):
                ended = await self._executed(job) if self._executes else await self._simulated()
        except TimeoutError:
            message = f"the Job was active longer than {limit} s"
            ended = JobEnd(succeeded=False, reason="DeadlineExceeded", message=message)
        now = times.time_text(self._clock.now_us())
        condition = {
            "type": "Complete" if ended.succeeded else "Failed",
            "status": "True",
            "reason": ended.reason,
            "message": ended.message,
            "lastTransitionTime": now,
        }
        status = {"startTime": began, "conditions": [condition]}
        counts = {"succeeded": 1, "completionTime": now} if ended.succeeded else {"failed": 1}
        await self._write(job, {**status, **counts})

    async def _write(self, job: StoredJob, status: dict[str, Any]) -> None:
        path = kubejobs.path(job.metadata.namespace, job.metadata.name) + "/status"
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": job.metadata.uid},
            {"op": "add", "path": "/status", "value": status},
        ]
        with contextlib.suppress(kube_errors.NotFound, kube_errors.Invalid):  # it was deleted
            await self._api.request("PATCH", path, patch, content_type=port.JSON_PATCH)

    async def _simulated(self) -> JobEnd:
        await self._clock.sleep(SIMULATED_SECONDS)
        return COMPLETE

    # -- processes ---------------------------------------------------------------------------

    async def _executed(self, job: StoredJob) -> JobEnd:
        template = job.spec.get("template") or {}
        pod = template.get("spec") or {}
        name = f"{job.metadata.namespace}/{job.metadata.name}"
        metadata = template.get("metadata") or {}
        for container in pod.get("initContainers") or ():
            ended = await self._container(name, container, metadata)
            if not ended.succeeded:
                return ended
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._container(name, container, metadata))
                for container in pod.get("containers") or ()
            ]
        return next((task.result() for task in tasks if not task.result().succeeded), COMPLETE)

    async def _container(
        self, job: str, container: Mapping[str, Any], metadata: Mapping[str, Any]
    ) -> JobEnd:
        """Run one container's command to its end."""
        name = container.get("name", "")
        last = ""

        def take(line: str) -> None:
            nonlocal last
            last = line or last
            self._on_output(job, line)

        try:
            words, environment = command_of(container, metadata)
            code = await run(words, environment, folder=container.get("workingDir"), on_line=take)
        except CannotRun as trouble:
            message = f"container {name}: {trouble}"
            return JobEnd(succeeded=False, reason="CannotRun", message=message)
        if code == 0:
            return COMPLETE
        how = f"exit code {code}" if code > 0 else f"ended by signal {-code}"
        message = f"container {name}: {how}" + (f"; its last line: {last}" if last else "")
        return JobEnd(succeeded=False, reason="BackoffLimitExceeded", message=message)


def command_of(
    container: Mapping[str, Any], metadata: Mapping[str, Any]
) -> tuple[list[str], dict[str, str]]:
    """The words to run and the variables of a container; raises CannotRun.

    Args:
        metadata: of the Pod's template, to which variables may refer.
    """
    if not container.get("command"):
        image = errors.quoted(str(container.get("image")))
        message = f"command is missing, and the image {image} is not run here; write command"
        raise CannotRun(message)
    environment: dict[str, str] = {}
    for entry in container.get("env") or ():
        source = entry.get("valueFrom")
        if source is None:
            environment[entry["name"]] = _expanded(str(entry.get("value", "")), environment)
        elif (value := _referred(source, metadata)) is not None:
            environment[entry["name"]] = value
        elif set(source) != {"fieldRef"}:
            message = (
                f"env {entry['name']} refers to {', '.join(source)}, which is not read here; "
                "write value, or set it in the shell that starts duepoint run"
            )
            if entry["name"] not in os.environ:
                raise CannotRun(message)
    words = [*container["command"], *(container.get("args") or ())]
    return [_expanded(str(word), environment) for word in words], environment


def shown_command(job: StoredJob) -> str:
    """What a Job would run, in one line."""
    pod = (job.spec.get("template") or {}).get("spec") or {}
    shown = []
    for container in pod.get("containers") or ():
        words = [*(container.get("command") or ()), *(container.get("args") or ())]
        shown.append(shlex.join([str(container.get("image", "")), *map(str, words)]))
    return "; ".join(shown)


def _referred(source: Mapping[str, Any], metadata: Mapping[str, Any]) -> str | None:
    """The annotation or label that a fieldRef names; None for anything else, or where none is."""
    parts = _ANNOTATION.fullmatch((source.get("fieldRef") or {}).get("fieldPath", ""))
    if parts is None:
        return None
    found = (metadata.get(parts[1]) or {}).get(parts[2])
    return None if found is None else str(found)


def _expanded(text: str, environment: Mapping[str, str]) -> str:
    """``$(NAME)`` replaced where the variable is known, as Kubernetes does."""

    def value(found: re.Match[str]) -> str:
        if found[1]:
            return f"$({found[2]})"
        return environment.get(found[2], found[0])

    return _REFERENCE.sub(value, text)


# -- processes -------------------------------------------------------------------------------------


#: From SIGTERM to SIGKILL.
GRACE_SECONDS = 3.0
#: Of a line, in characters; the rest of a longer one is not shown.
LONGEST_LINE = 2_000
_LONGEST_BYTES = 1 << 20
#: What is still in the pipe after the end.
_LAST_WORDS_SECONDS = 1.0


class CannotRun(Exception):
    """This machine cannot run the command; the message says what to write."""


async def run(
    words: Sequence[str],
    environment: Mapping[str, str],
    *,
    folder: str | None,
    on_line: Callable[[str], None],
) -> int:
    """Run to the end; the exit code, or minus the number of the signal that ended it.

    Args:
        words: the program and its arguments.
        environment: added to ours.
        folder: to run in; None = ours.
        on_line: takes each line of standard output and standard error.

    Raises:
        CannotRun: there is no such program or folder.
    """
    if folder is not None and not Path(folder).is_dir():  # noqa: ASYNC240 - a folder of the machine
        raise CannotRun(f"workingDir {errors.quoted(folder)} is no folder of this machine")
    reading, writing = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            cwd=folder,
            env={**os.environ, **environment},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=writing,
            stderr=writing,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        os.close(reading)
        why = getattr(error, "strerror", None) or str(error)
        raise CannotRun(f"{errors.quoted(words[0])} cannot be run here: {why}") from None
    finally:
        os.close(writing)
    output = asyncio.create_task(_read(reading, on_line))
    try:
        return await process.wait()
    finally:
        await _end(process)
        await asyncio.wait({output}, timeout=_LAST_WORDS_SECONDS)
        output.cancel()


async def _read(reading: int, on_line: Callable[[str], None]) -> None:
    stream = asyncio.StreamReader(limit=_LONGEST_BYTES)
    pipe = os.fdopen(reading, "rb")
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), pipe
    )
    try:
        while True:
            try:
                line = await stream.readline()
            except ValueError:  # no line break within the limit: that part is dropped
                continue
            if not line:
                return
            on_line(line.decode(errors="replace").rstrip("\r\n")[:LONGEST_LINE])
    finally:
        transport.close()


async def _end(process: asyncio.subprocess.Process) -> None:
    """Nothing of the session is left afterwards."""
    if process.returncode is None:
        _signal(process, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), GRACE_SECONDS)
    _signal(process, signal.SIGKILL)
    if process.returncode is None:
        await process.wait()


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
