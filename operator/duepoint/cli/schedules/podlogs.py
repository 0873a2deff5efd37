"""The logs of a run's containers, written as they arrive: once, or followed to their end.

A connection that is cut or silent is opened again and goes on after the last line. A container that
has not started is waited for where the log is followed; standard error names what is waited for.
Containers of one run are followed side by side, so their lines are mixed as they come.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
import sys
import time
from dataclasses import dataclass

from duepoint import errors
from duepoint.cli import cluster as clusters
from duepoint.cli import output
from duepoint.cli.schedules import loglines, runpods
from duepoint.kube import errors as kube_errors
from duepoint.kube import port

#: Logs that are followed at a time; further ones begin as these end.
MOST_AT_ONCE = 50
#: A connection without a byte for so long is opened again: it may be dead.
_SILENCE_SECONDS = 60.0
#: Waits before a log is opened again, doubled each time while nothing comes.
_REOPEN_SECONDS = (1.0, 15.0)
#: The log of a container that is over is tried so often.
_LAST_TRIES = 3
#: What the kubelet says of a container that has no log yet.
_STARTS = "is waiting to start"
#: Tabs and colours of a log are passed on; other control characters are escaped.
_PASSED_ON = re.compile(r"(\t|\x1b\[[0-9;]*m)")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogChoice:
    """What of the logs is shown.

    Attributes:
        container: only this one; None = all.
        tail: the last lines of each; None = all.
        since_seconds: only lines that are not older; None = all.
        has_stamps: each line with its time in front.
        is_previous: of the containers' instances before the last restart.
    """

    container: str | None
    tail: int | None
    since_seconds: int | None
    has_stamps: bool
    is_previous: bool


async def read(
    server: clusters.ClusterSession, listed: list[runpods.Pod], choice: LogChoice
) -> bool:
    """Print what is there, Pod by Pod; whether at least one log could be read."""
    found = [_ContainerLog(server, *one, choice) for pod in listed for one in _named(pod, choice)]
    return any([await each.read() for each in found])


async def follow(server: clusters.ClusterSession, job_name: str, choice: LogChoice) -> bool | None:
    """Print the logs until the Job and its Pods are over.

    Returns:
        Whether at least one could be read; None where the Job had no Pod.

    Raises:
        errors.InvalidSetting: a Pod has no such container.
        kube_errors.ApiError: Jobs or Pods may not be listed.
    """
    try:
        return await _Following(server, job_name, choice).run()
    except BaseExceptionGroup as group:
        raise _first(group) from None


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


def _named(pod: runpods.Pod, choice: LogChoice) -> list[tuple[str, str]]:
    """Pod and container of each log that was chosen; raises errors.InvalidSetting."""
    name, containers = pod.metadata.name, pod.containers
    if choice.container is None:
        return [(name, each) for each in containers]
    if choice.container not in containers:
        message = f"Pod {name} has no container {errors.quoted(choice.container)}"
        raise errors.InvalidSetting("--container", f"{message}; write {' or '.join(containers)}")
    return [(name, choice.container)]


class _Following:
    """A task for each container, as the Pods appear."""

    def __init__(self, server: clusters.ClusterSession, job_name: str, choice: LogChoice) -> None:
        self._server = server
        self._job_name = job_name
        self._choice = choice
        self._run = runpods.RunPods(server, job_name)
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)
        self._begun: dict[tuple[str, str], asyncio.Task[bool]] = {}
        self._is_crowded = False

    async def run(self) -> bool | None:
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(self._run.watch())
            await self._run.wait(lambda: self._run.is_listed)
            self._begin_new(tasks)
            if not self._begun and not self._run.is_over:
                output.complain(f"waiting for a Pod of Job {self._job_name}")
            while not self._run.is_over:
                await self._run.wait(lambda: self._run.is_over or bool(self._new()))
                self._begin_new(tasks)
            await self._run.refresh()
            self._begin_new(tasks)
            read = await asyncio.gather(*self._begun.values())
            watching.cancel()
        return any(read) if read else None

    def _new(self) -> list[tuple[str, str]]:
        pods = sorted(
            self._run.pods.values(), key=lambda pod: pod.metadata.creation_timestamp or ""
        )
        found = [one for pod in pods for one in _named(pod, self._choice)]
        return [one for one in found if one not in self._begun]

    def _begin_new(self, tasks: asyncio.TaskGroup) -> None:
        for pod, container in self._new():
            self._begun[pod, container] = tasks.create_task(self._follow(pod, container))
        under_way = sum(not task.done() for task in self._begun.values())
        if under_way > MOST_AT_ONCE and not self._is_crowded:
            self._is_crowded = True
            output.complain(
                f"{under_way} containers write; {MOST_AT_ONCE} are followed at a time, and the"
                " others as these end (--container follows fewer)"
            )

    async def _follow(self, pod: str, container: str) -> bool:
        async with self._turns:
            log = _ContainerLog(self._server, pod, container, self._choice)
            return await log.follow(self._run)


class _ContainerLog:
    """The log of one container."""

    def __init__(
        self, server: clusters.ClusterSession, pod: str, container: str, choice: LogChoice
    ) -> None:
        self._server = server
        self._pod = pod
        self._container = container
        self._choice = choice
        self._lines = loglines.LogLines()
        self._opened_at: float | None = None
        self._printed = 0
        self._said = ""

    async def read(self) -> bool:
        """Print what is there; whether all of it could be read."""
        while True:
            before = self._printed
            try:
                await self._copy(follows=False)
            except kube_errors.ApiError as trouble:
                if _is_cut(trouble) and self._printed > before:
                    continue
                self._print(self._lines.end())
                hint = "; -f waits for it" if _STARTS in trouble.server_message else ""
                self._complain(_words(trouble) + hint)
                return False
            self._print(self._lines.end())
            return True

    async def follow(self, run: runpods.RunPods) -> bool:
        """Print it until the container is over; whether it could be read."""
        tries, wait = 0, _REOPEN_SECONDS[0]
        while True:
            before, state = self._printed, run.state(self._pod, self._container)
            asked_at = time.monotonic()
            try:
                await self._copy(follows=True)
            except kube_errors.ApiError as trouble:
                tries += state.is_over
                if not self._is_worth_another(trouble, state, tries):
                    self._print(self._lines.end())
                    self._complain(_ending(trouble))
                    return self._opened_at is not None
            else:
                self._said = ""
                if state.is_over:
                    self._print(self._lines.end())
                    return True
            if self._printed > before or time.monotonic() - asked_at > _REOPEN_SECONDS[1]:
                wait = _REOPEN_SECONDS[0]
            if not await run.wait_for_change(self._pod, self._container, state, wait):
                wait = min(wait * 2, _REOPEN_SECONDS[1])

    def _is_worth_another(
        self, trouble: kube_errors.ApiError, state: runpods.ContainerState, tries: int
    ) -> bool:
        """Whether to try again; says what for."""
        if isinstance(trouble, kube_errors.Unauthorized | kube_errors.Forbidden):
            return False
        if isinstance(trouble, kube_errors.Unavailable):
            if state.is_over and tries >= _LAST_TRIES:
                return False
            if not _is_cut(trouble) or not trouble.sent:
                self._say(f"the log cannot be read now ({_words(trouble)}); trying again")
            return True
        if state.is_over:
            return False
        self._say(f"waiting for the container: {state.waiting or trouble.server_message}")
        return True

    async def _copy(self, *, follows: bool) -> None:
        """Print what one request gives; raises kube_errors.ApiError."""
        path = port.path("/api/v1", self._server.namespace, "pods", self._pod)
        pieces = self._server.api.stream(
            f"{path}/log", query=self._query(follows=follows), silence_seconds=_SILENCE_SECONDS
        )
        async with contextlib.aclosing(pieces):
            async for piece in pieces:
                self._record_opened()
                self._print(self._lines.feed(piece))
        self._record_opened()

    def _query(self, *, follows: bool) -> dict[str, str]:
        choice = self._choice
        query = {"container": self._container, "timestamps": "true"}
        if follows:
            query["follow"] = "true"
        if choice.is_previous:
            query["previous"] = "true"
        if since := self._lines.resume():
            return {**query, "sinceTime": since}
        tail, since_seconds = choice.tail, choice.since_seconds
        if self._opened_at is not None and (tail, since_seconds) != (None, None):
            # Nothing was there to show, so all that has come since then is new.
            passed = math.ceil(time.monotonic() - self._opened_at) + 1
            since_seconds = passed + (0 if since_seconds is None else since_seconds)
            tail = None
        if tail is not None:
            query["tailLines"] = str(tail)
        if since_seconds is not None:
            query["sinceSeconds"] = str(since_seconds)
        return query

    def _record_opened(self) -> None:
        if self._opened_at is None:
            self._opened_at = time.monotonic()

    def _print(self, lines: list[loglines.LogLine]) -> None:
        for line in lines:
            stamp = f"{line.stamp} " if self._choice.has_stamps and line.stamp else ""
            sys.stdout.write(f"[{self._pod}/{self._container}] {stamp}{_shown(line.text)}\n")
        if lines:
            self._printed += len(lines)
            sys.stdout.flush()

    def _say(self, text: str) -> None:
        """On standard error, unless it was said last."""
        if text != self._said:
            self._said = text
            self._complain(text)

    def _complain(self, text: str) -> None:
        output.complain(f"{self._pod}/{self._container}: {text}")


def _ending(trouble: kube_errors.ApiError) -> str:
    if isinstance(trouble, kube_errors.NotFound):
        return "the Pod was deleted, and its log with it"
    return _words(trouble)


def _words(trouble: kube_errors.ApiError) -> str:
    """What the server said, which names the Pod itself; without an answer, what was tried."""
    return trouble.server_message or str(trouble)


def _is_cut(trouble: kube_errors.ApiError) -> bool:
    """Whether the connection ended or was silent, rather than the server said no."""
    return isinstance(trouble, kube_errors.Unavailable) and not trouble.status


def _shown(text: str) -> str:
    parts = _PASSED_ON.split(text)
    parts[::2] = map(output.one_line, parts[::2])
    return "".join(parts)
