"""A Job controller without Pods, for ``duepoint run``.

By default no command runs: a Job starts, and is complete a second later. With ``--exec`` the
commands of its template run as processes on this machine: the init containers one after the other,
then all containers at once, each once. If all exit with 0 the Job is Complete, otherwise Failed.
``activeDeadlineSeconds`` ends the processes, and so does the deletion of the Job.

There is no container: no image, no volumes, no limits, no retry. A process has the environment of
``duepoint run``, the variables of its container and those of the slot. A container without
``command`` cannot run here, so its Job fails.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import os
import re
import shlex
import signal
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from duepoint import errors
from duepoint.cli import instants
from duepoint.kube import errors as kube_errors
from duepoint.kube import jobs as kubejobs
from duepoint.kube import port, times

#: How long a Job takes if its commands do not run.
SIMULATED_SECONDS = 1.0
#: Time from SIGTERM to SIGKILL.
GRACE_SECONDS = 3.0
#: How long to read what is left in the pipe after the end.
_LAST_WORDS_SECONDS = 1.0
_LONGEST_LINE_BYTES = 1 << 20

#: ``$(NAME)`` in a command, and ``$$(NAME)``, which stays as ``$(NAME)``.
_REFERENCE = re.compile(r"\$(\$)?\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")
_ANNOTATION = re.compile(r"metadata\.(annotations|labels)\['(.*)'\]")

#: Reports an event, by its name and its fields.
Say = Callable[..., None]
#: Reason and message of a failed Job; None for one that succeeded.
_Failure = tuple[str, str] | None


class StoredJob(msgspec.Struct, frozen=True):
    """A Job with its spec, as read by the watch."""

    metadata: port.Metadata
    spec: dict[str, Any] = {}

    @property
    def name(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"

    def containers(self, kind: str) -> list[dict[str, Any]]:
        """Return the template's ``containers`` or ``initContainers``."""
        return self.spec["template"]["spec"].get(kind) or []


class JobRunner:
    """Runs Jobs until cancelled, and then ends the processes that still run.

    Args:
        executes: run the commands; otherwise each Job is complete after a second.
        say: called when a Job starts, and with each line that the processes write.
    """

    def __init__(self, say: Say, *, executes: bool) -> None:
        self._say = say
        self._executes = executes
        #: The tasks of all Jobs that exist, by uid: a Job starts only once.
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def run(self, api: port.Api) -> None:
        """Start each new Job, and end the processes of each deleted one."""
        path, version = kubejobs.collection(), ""
        try:
            while True:
                async for page in api.list_pages(path, StoredJob):
                    version = page.metadata.resource_version
                    for job in page.items:
                        self._begin(api, job)
                with contextlib.suppress(kube_errors.Gone):
                    async for change in api.watch(path, StoredJob, version):
                        if change.type is not port.ChangeType.DELETED:
                            self._begin(api, change.item)
                        elif (task := self._tasks.pop(change.item.metadata.uid, None)) is not None:
                            task.cancel()
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _begin(self, api: port.Api, job: StoredJob) -> None:
        if job.metadata.uid in self._tasks or job.spec.get("suspend"):
            return
        verb = "runs" if self._executes else "would run"
        self._say("job", job=job.name, verb=verb, command=_shown_command(job), spec=job.spec)
        self._tasks[job.metadata.uid] = asyncio.create_task(self._job(api, job))

    async def _job(self, api: port.Api, job: StoredJob) -> None:
        began = times.time_text(instants.now_us())
        await _write(api, job, {"startTime": began, "active": 1, "ready": 1})
        limit = job.spec.get("activeDeadlineSeconds")
        failure: _Failure = None
        try:
            async with asyncio.timeout(limit):
                if self._executes:
                    failure = await self._executed(job)
                else:
                    await asyncio.sleep(SIMULATED_SECONDS)
        except TimeoutError:
            failure = "DeadlineExceeded", f"the Job was active longer than {limit} s"
        now = times.time_text(instants.now_us())
        reason, message = failure or ("CompletionsReached", "")
        condition = {
            "type": "Failed" if failure else "Complete",
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": now,
        }
        counts = {"failed": 1} if failure else {"succeeded": 1, "completionTime": now}
        await _write(api, job, {"startTime": began, "conditions": [condition], **counts})

    async def _executed(self, job: StoredJob) -> _Failure:
        for container in job.containers("initContainers"):
            if failure := await self._container(job, container):
                return failure
        containers = job.containers("containers")
        found = await asyncio.gather(*(self._container(job, each) for each in containers))
        return next(filter(None, found), None)

    async def _container(self, job: StoredJob, container: Mapping[str, Any]) -> _Failure:
        """Run one container's command to its end."""
        lead = f"container {container.get('name', '')}: "
        try:
            words, variables = _command_of(container, job.spec["template"].get("metadata") or {})
            process = await asyncio.create_subprocess_exec(
                *words,
                cwd=container.get("workingDir"),
                env={**os.environ, **variables},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                limit=_LONGEST_LINE_BYTES,
                start_new_session=True,
            )
        except (OSError, ValueError) as trouble:
            return "CannotRun", f"{lead}{trouble}"
        assert process.stdout is not None  # noqa: S101 - a pipe was asked for
        last: collections.deque[str] = collections.deque(maxlen=1)
        reading = asyncio.create_task(self._read(job, process.stdout, last))
        try:
            code = await process.wait()
        finally:
            if process.returncode is None:
                signal_session(process, signal.SIGTERM)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), GRACE_SECONDS)
            signal_session(process, signal.SIGKILL)  # what is left of it
            await process.wait()
            await asyncio.wait({reading}, timeout=_LAST_WORDS_SECONDS)
            reading.cancel()
        if code == 0:
            return None
        how = f"exit code {code}" if code > 0 else f"ended by signal {-code}"
        how += f"; its last line: {last[0]}" if last else ""
        return "BackoffLimitExceeded", f"{lead}{how}"

    async def _read(
        self, job: StoredJob, stream: asyncio.StreamReader, last: collections.deque[str]
    ) -> None:
        """Report each line; ``last`` gets those that are not empty."""
        while True:
            try:
                text = await stream.readline()
            except ValueError:  # no line break within the limit: drop that part
                continue
            if not text:
                return
            line = text.decode(errors="replace").rstrip("\r\n")
            last.extend([line] if line else [])
            self._say("output", job=job.name, line=line)


async def _write(api: port.Api, job: StoredJob, status: dict[str, Any]) -> None:
    path = kubejobs.path(job.metadata.namespace, job.metadata.name) + "/status"
    patch = [
        {"op": "test", "path": "/metadata/uid", "value": job.metadata.uid},
        {"op": "add", "path": "/status", "value": status},
    ]
    with contextlib.suppress(kube_errors.NotFound, kube_errors.Invalid):  # it was deleted
        await api.request("PATCH", path, patch, content_type=port.JSON_PATCH)


def _shown_command(job: StoredJob) -> str:
    """Return what a Job would run, in one line."""
    shown = []
    for container in job.containers("containers"):
        words = [*(container.get("command") or ()), *(container.get("args") or ())]
        shown.append(shlex.join([str(container.get("image", "")), *map(str, words)]))
    return "; ".join(shown)


def _command_of(
    container: Mapping[str, Any], metadata: Mapping[str, Any]
) -> tuple[list[str], dict[str, str]]:
    """Return the command line and the variables of a container.

    Args:
        metadata: the Pod template's metadata; variables may refer to it.

    Raises:
        ValueError: it cannot run here; the message says what to write.
    """
    if not container.get("command"):
        image = errors.quoted(str(container.get("image")))
        raise ValueError(
            f"command is missing, and the image {image} is not run here; write command"
        )
    variables: dict[str, str] = {}
    for entry in container.get("env") or ():
        source = entry.get("valueFrom")
        field = ((source or {}).get("fieldRef") or {}).get("fieldPath", "")
        if source is None:
            variables[entry["name"]] = _expanded(str(entry.get("value", "")), variables)
        elif parts := _ANNOTATION.fullmatch(field):
            variables[entry["name"]] = str((metadata.get(parts[1]) or {}).get(parts[2], ""))
        elif not field and entry["name"] not in os.environ:
            raise ValueError(
                f"env {entry['name']} refers to {', '.join(source)}, which is not read here; "
                "write value, or set it in the shell that starts duepoint run"
            )
    words = [*container["command"], *(container.get("args") or ())]
    return [_expanded(str(word), variables) for word in words], variables


def _expanded(text: str, variables: Mapping[str, str]) -> str:
    """Replace ``$(NAME)`` if the variable is defined, as Kubernetes does."""
    return _REFERENCE.sub(lambda it: f"$({it[2]})" if it[1] else variables.get(it[2], it[0]), text)


def signal_session(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Send a signal to a process and to all others of the session that it leads."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
