"""kopf's operator in a thread and an event loop of its own, started again when it dies.

Stopping kopf cancels every task of its loop that is younger than itself, so it has a loop to
itself. It exits on 5xx and 403 after its backoffs, on 404, on a repeated 401 and on errors inside
the stream: each of its lives is followed by another, after a jittered wait. Objects cross over in
bundles by ``call_soon_threadsafe``; what a life hands over after its end is dropped.

A life has begun once the API server has answered kopf's list of each collection: its watches start
at these versions, so a comparison that begins now misses nothing. Each later list follows a watch
that was cut off, and asks for a comparison too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import kopf
import uvloop

from duepoint import services, telemetry
from duepoint.controller.term import TermContext
from duepoint.controller.watching import kopfsetup
from duepoint.controller.watching.kopfsetup import ObservedChange
from duepoint.kube import schedules
from duepoint.kube.credentials import Credentials, Login

#: How long the end of a term waits for the thread; kopf stops in 0.01 s when nothing hangs.
_STOP_SECONDS = 2.5
#: How often what outlives the cancellation by kopf is cancelled again.
_CANCEL_SECONDS = 0.2

#: Of us among other operators of kopf, whom a standalone one neither seeks nor informs. Its type is
#: not among kopf's public names.
_IDENTITY: Any = "duepoint"


class KopfThread:
    """The service; hands each change to its service in our loop, and says when kopf has listed."""

    def __init__(self, term: TermContext, *, credentials: Credentials) -> None:
        self._credentials = credentials
        self._term = term
        self._waits = _backoff()
        self.lives = 0

    async def run(self) -> None:
        """Keep kopf alive until cancelled."""
        kopfsetup.quieten()
        while True:
            trouble = await self._live_once()
            if self._term.health.unwell("watch", trouble):
                telemetry.logger.warning("watch ended; it is begun again", error=trouble)
            await self._term.clock.sleep(next(self._waits))

    async def _live_once(self) -> str:
        """One life of kopf's operator; why it ended."""
        self.lives += 1
        loop = asyncio.get_running_loop()
        life = KopfLife(loop, self.take)
        ended: asyncio.Future[str] = loop.create_future()
        thread = threading.Thread(
            target=self._thread_main, args=(life, loop, ended), name="kopf", daemon=True
        )
        thread.start()
        try:
            return await asyncio.shield(ended)
        finally:
            life.stop.set()
            life.is_over = True
            if not ended.done():
                await asyncio.wait({ended}, timeout=_STOP_SECONDS)

    def _thread_main(
        self,
        life: KopfLife,
        loop: asyncio.AbstractEventLoop,
        ended: asyncio.Future[str],
    ) -> None:
        unlisted = {
            schedules.collection(namespace, plural=plural)
            for plural in kopfsetup.PLURALS
            for namespace in self._term.namespaces or (None,)
        }

        def note_listed(path: str) -> None:
            unlisted.discard(path)
            if not unlisted:
                life.call(self._note_listed, life)

        async def login() -> Login:
            # The credentials belong to our loop; this coroutine runs in kopf's.
            asked = asyncio.run_coroutine_threadsafe(self._credentials.login(), loop)
            return await asyncio.wrap_future(asked)

        async def operate() -> None:
            logins = kopfsetup.Logins(login, note_listed)
            is_ending = asyncio.Event()
            ender = asyncio.create_task(_end_tasks(is_ending, asyncio.all_tasks()))
            try:
                registry = kopfsetup.registry(life.deliver, logins, is_ending.set)
                await kopf.operator(**_chosen(registry, life.stop, self._term.namespaces))
            finally:
                ender.cancel()
                life.stop.set()  # a thread of kopf's waits for it, and the loop for that thread
                await logins.close()

        trouble = "it ended by itself"
        try:
            uvloop.run(operate())
        except BaseException as error:  # noqa: BLE001 - any end of the thread is reported
            trouble = f"{type(error).__name__}: {error}"[:500]
        life.call(_set_result, ended, trouble)

    def _note_listed(self, life: KopfLife) -> None:
        if not life.is_over:
            self._waits = _backoff()
            self._term.health.well("watch")
            self._term.services.resync.request()

    def take(self, change: ObservedChange) -> None:
        """Hand a change to the service of its kind."""
        self._term.services.observe(change.plural, change.seen)


class KopfLife:
    """The bridge between kopf's thread and our loop, for one life.

    Args:
        loop: ours.
        take: takes each change, in our loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, take: kopfsetup.Deliver) -> None:
        self.stop = threading.Event()
        self.is_over = False
        self._loop = loop
        self._take = take
        self._bundle: deque[ObservedChange] = deque()
        self._lock = threading.Lock()
        self._is_called = False

    def deliver(self, change: ObservedChange) -> None:
        """Called in kopf's thread."""
        self._bundle.append(change)
        with self._lock:
            if self._is_called or self.is_over:
                return
            self._is_called = True
        self.call(self._hand_over)

    def call(self, function: Callable[..., object], *args: object) -> None:
        """Have a function called in our loop, from any thread."""
        with contextlib.suppress(RuntimeError):  # our loop is closed: the process is ending
            self._loop.call_soon_threadsafe(function, *args)

    def _hand_over(self) -> None:
        """Called in our loop."""
        with self._lock:
            self._is_called = False
        while self._bundle and not self.is_over:
            self._take(self._bundle.popleft())


async def rehearse() -> None:
    """Start kopf in a thread, and end it before it does anything; raises what its start raised.

    A standby needs kopf for the first time when it leads. It would be ready until then, and a
    rolling update replace a leader that works by Pods in which kopf cannot start.
    """
    registry, stop = kopf.OperatorRegistry(), threading.Event()

    @kopf.on.startup(registry=registry)
    async def hold(**_: Any) -> None:  # noqa: ANN401 - kopf's keywords
        await asyncio.Event().wait()  # it looks at the cluster after this

    async def start() -> None:
        tasks = await kopf.spawn_tasks(**_chosen(registry, stop, ()))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    logging.getLogger("kopf").setLevel(logging.CRITICAL)  # it warns of its own end
    stop.set()  # else a thread of kopf's waits for it, and the end for that thread
    try:
        await asyncio.to_thread(lambda: uvloop.run(start()))
    finally:
        kopfsetup.quieten()


def _chosen(
    registry: kopf.OperatorRegistry,
    stop: threading.Event,
    namespaces: tuple[str, ...],
) -> dict[str, Any]:
    """What kopf is started with."""
    return {
        "registry": registry,
        "settings": kopfsetup.settings(),
        "standalone": True,
        # Else kopf asks for the name of the user, and in a Pod the user has none.
        "identity": _IDENTITY,
        "stop_flag": stop,
        "namespaces": namespaces,
        "clusterwide": not namespaces,
    }


async def _end_tasks(is_ending: asyncio.Event, ours: set[asyncio.Task[Any]]) -> None:
    """Cancel kopf's tasks until they end, once it is ending.

    kopf cancels each once and waits for it without end, and its watcher may lose that
    cancellation: it suppresses any while it ends a task of its own.
    """
    await is_ending.wait()
    while True:
        await asyncio.sleep(_CANCEL_SECONDS)
        for task in asyncio.all_tasks() - ours - {asyncio.current_task()}:
            task.cancel()


def _set_result(future: asyncio.Future[str], value: str) -> None:
    if not future.done():
        future.set_result(value)


def _backoff() -> Iterator[float]:
    return services.backoff(first_seconds=0.5, most_seconds=20.0)
