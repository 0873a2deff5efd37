"""The logs of a run's containers, each shown by a ``kubectl logs`` of its own.

Once, container by container; or followed side by side, also of Pods and attempts that start later.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from duepoint import errors
from duepoint.cli import cluster as clusters
from duepoint.cli import options, output
from duepoint.cli.schedules import runpods
from duepoint.cli.schedules.runpods import Container
from duepoint.kube import errors as kube_errors

#: Logs that are followed at a time; further ones begin as these end.
MOST_AT_ONCE = 10
#: The Pods are listed so often while a run is followed.
_LOOK_SECONDS = 1.0
_FAILED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LogChoice:
    """What is shown.

    Attributes:
        container: only this one; None = all.
        options: for kubectl, as they were given.
    """

    container: str | None
    options: tuple[str, ...]


class PodLogs:
    """Shows the logs of one Job; raises errors.InvalidSetting if there is no kubectl."""

    def __init__(
        self,
        server: clusters.ClusterSession,
        place: options.Place,
        job_name: str,
        choice: LogChoice,
    ) -> None:
        self._server = server
        self._job_name = job_name
        self._choice = choice
        self._kubectl = [_kubectl(), "logs", f"--namespace={server.namespace}", "--prefix"]
        self._kubectl += choice.options
        if place.kubeconfig is not None:
            self._kubectl.append(f"--kubeconfig={place.kubeconfig}")
        if place.context is not None:
            self._kubectl.append(f"--context={place.context}")
        self._has_said: set[str] = set()

    async def show(self, pods: list[runpods.Pod]) -> int:
        """Show what is there, and return an exit code: 0 unless a log could not be read."""
        code = 0
        for pod in pods:
            for one in self._chosen(pod):
                if one.starts:
                    code = await self._run(one) or code
                elif not pod.is_over:
                    trouble = f" ({one.trouble})" if one.trouble else ""
                    self._say(f"{one.pod}/{one.name} has not started{trouble}; -f waits for it")
                    code = _FAILED
        return code

    async def follow(self) -> int | None:
        """Show the logs until the Job and its containers are over.

        Returns an exit code, or None if the Job has had no Pod.
        """
        begun: dict[Container, asyncio.Task[int]] = {}
        turns = asyncio.Semaphore(MOST_AT_ONCE)
        async with _ended_with(begun):
            while True:
                is_over, pods = await self._look()
                if not pods and not begun and not is_over:
                    self._say(f"waiting for a Pod of Job {self._job_name}")
                for one in (each for pod in pods for each in self._chosen(pod)):
                    if one.starts:
                        started = Container(pod=one.pod, name=one.name, starts=one.starts)
                        if started not in begun:
                            begun[started] = asyncio.create_task(self._in_turn(started, turns))
                    elif one.trouble and not is_over:
                        self._say(f"waiting for {one.pod}/{one.name}: {one.trouble}")
                if is_over:
                    return max(await asyncio.gather(*begun.values()), default=None)
                await asyncio.sleep(_LOOK_SECONDS)

    async def _look(self) -> tuple[bool, list[runpods.Pod]]:
        """Whether the Job is over, and its Pods; an API server that is away is waited for."""
        while True:
            try:
                is_over = await runpods.is_over(self._server, self._job_name)
                return is_over, await runpods.pods_of(self._server, self._job_name)
            except kube_errors.Unavailable as trouble:
                self._say(f"the Pods cannot be listed now ({trouble}); trying again")
                await asyncio.sleep(_LOOK_SECONDS)

    async def _in_turn(self, one: Container, turns: asyncio.Semaphore) -> int:
        if turns.locked():
            self._say(f"{MOST_AT_ONCE} logs are followed at a time; the others as these end")
        async with turns:
            return await self._run(one, "--follow")

    def _chosen(self, pod: runpods.Pod) -> list[Container]:
        """The containers that were chosen; raises errors.InvalidSetting."""
        wanted = self._choice.container
        found = [each for each in pod.containers if wanted in (None, each.name)]
        if not found:
            known = " or ".join(each.name for each in pod.containers)
            message = f"Pod {pod.metadata.name} has no container {errors.quoted(wanted)}"
            raise errors.InvalidSetting("--container", f"{message}; write {known}")
        return found

    async def _run(self, one: Container, *more: str) -> int:
        words = [*self._kubectl, *more, one.pod, f"--container={one.name}"]
        process = await asyncio.create_subprocess_exec(*words)
        try:
            return 0 if await process.wait() in (0, -signal.SIGPIPE) else _FAILED
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()
                await process.wait()

    def _say(self, text: str) -> None:
        """On standard error, once."""
        if text not in self._has_said:
            self._has_said.add(text)
            output.complain(text)


@contextlib.asynccontextmanager
async def _ended_with(tasks: dict[Container, asyncio.Task[int]]) -> AsyncIterator[None]:
    """End what is under way when the block ends."""
    try:
        yield
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)


def _kubectl() -> str:
    """The kubectl on the PATH, else the one beside our interpreter."""
    own = Path(sys.executable).with_name("kubectl")
    found = shutil.which("kubectl") or (str(own) if own.exists() else None)
    if found is None:
        raise errors.InvalidSetting(
            "kubectl", "is not on the PATH; logs are read by it, so install it"
        )
    return found
