"""kopf's operator in a thread and an event loop of its own, started again when it dies.

Stopping kopf cancels every task of its loop that is younger than itself, so it has a loop to
itself. It exits on 5xx and 403 after its backoffs, on 404, on a repeated 401 and on errors inside
the stream: each of its lives is followed by another, after a jittered wait. Objects cross over in
bundles by ``call_soon_threadsafe``; what a life hands over after its end is dropped.

Both loops share one interpreter. While kopf lists, its loop polls its selector every few
milliseconds and has the interpreter's lock back before our thread has woken up: the lock counts as
given away, so the forced switch that the interpreter makes after 5 ms never comes. Our loop stood
still for half a second at a time, and probes with it. So kopf's thread gives way by itself.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import kopf
import uvloop

from duepoint import services, telemetry
from duepoint.controller.observed import Observed
from duepoint.controller.term import TermContext
from duepoint.controller.watching import kopfsetup
from duepoint.controller.watching.kopfsetup import ObservedChange
from duepoint.kube import schedules
from duepoint.kube.credentials import Credentials, Login

#: A life as long as this begins the waits anew.
_HEALTHY_SECONDS = 60.0
#: How long the end of a term waits for the thread; kopf stops in 0.01 s when nothing hangs.
_STOP_SECONDS = 2.5

#: kopf's thread gives way after so many changes, which take it some 6 ms, and for so long: a sleep
#: of no length would not always leave the processor.
_CHANGES_BETWEEN_TURNS = 16
_TURN_SECONDS = 0.0001

#: Of us among other operators of kopf, whom a standalone one neither seeks nor informs. Its type is
#: not among kopf's public names.
_IDENTITY: Any = "duepoint"


class KopfThread:
    """The service; hands each object, and news of lists, to callbacks in our loop.

    Args:
        observe: takes every change of a Schedule, without its texts.
        observe_run: takes every change of a ScheduleRun, likewise.
        observe_set: takes every change of a ScheduleSet, likewise.
    """

    def __init__(
        self,
        term: TermContext,
        *,
        credentials: Credentials,
        observe: Callable[[Observed], None],
        observe_run: Callable[[Observed], None],
        observe_set: Callable[[Observed], None],
    ) -> None:
        self._credentials = credentials
        self._term = term
        self._takers = {
            schedules.PLURAL: observe,
            schedules.RUN_PLURAL: observe_run,
            schedules.SET_PLURAL: observe_set,
        }
        self.lives = 0

    async def run(self) -> None:
        """Keep kopf alive until cancelled."""
        kopfsetup.quieten()
        waits = _backoff()
        while True:
            began = self._term.clock.monotonic()
            trouble = await self._live_once()
            if self._term.health.unwell("watch", trouble):
                telemetry.logger.warning("watch ended; it is begun again", error=trouble)
            if self._term.clock.monotonic() - began > _HEALTHY_SECONDS:
                waits = _backoff()
            await self._term.clock.sleep(next(waits))

    async def _live_once(self) -> str:
        """One life of kopf's operator; why it ended."""
        self.lives += 1
        loop = asyncio.get_running_loop()
        life = KopfLife(loop, self.take)
        ended: asyncio.Future[str] = loop.create_future()
        is_ready: concurrent.futures.Future[None] = concurrent.futures.Future()
        is_ready.add_done_callback(lambda _: life.call(self._began, life))
        thread = threading.Thread(
            target=self._thread_main, args=(life, loop, ended, is_ready), name="kopf", daemon=True
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
        is_ready: concurrent.futures.Future[None],
    ) -> None:
        async def login() -> Login:
            # The credentials belong to our loop; this coroutine runs in kopf's.
            asked = asyncio.run_coroutine_threadsafe(self._credentials.login(), loop)
            return await asyncio.wrap_future(asked)

        async def operate() -> None:
            logins = kopfsetup.Logins(login)
            try:
                registry = kopfsetup.registry(life.deliver, logins)
                namespaces = self._term.namespaces
                await kopf.operator(**_chosen(registry, life.stop, namespaces, is_ready))
            finally:
                await logins.close()

        trouble = "it ended by itself"
        try:
            uvloop.run(operate())
        except BaseException as error:  # noqa: BLE001 - any end of the thread is reported
            trouble = f"{type(error).__name__}: {error}"[:500]
        life.call(_set_result, ended, trouble)

    def _began(self, life: KopfLife) -> None:
        if not life.is_over:
            self._term.health.well("watch")
            self._term.events.watch_listed()

    def take(self, change: ObservedChange) -> None:
        """Hand a change to the service of its kind."""
        if change.is_listed:
            self._term.events.watch_listed()
        self._takers[change.plural](change.seen)


class KopfLife:
    """The bridge between kopf's thread and our loop, for one life.

    Args:
        loop: ours.
        take: takes each change, in our loop.
        give_way: sleeps in kopf's thread so that ours has its turn.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        take: kopfsetup.Deliver,
        give_way: Callable[[float], None] = time.sleep,
    ) -> None:
        self.stop = threading.Event()
        self.is_over = False
        self._loop = loop
        self._take = take
        self._bundle: deque[ObservedChange] = deque()
        self._lock = threading.Lock()
        self._is_called = False
        self._give_way = give_way
        self._delivered = 0

    def deliver(self, change: ObservedChange) -> None:
        """Called in kopf's thread."""
        self._bundle.append(change)
        self._delivered += 1
        if self._delivered % _CHANGES_BETWEEN_TURNS == 0:
            self._give_way(_TURN_SECONDS)
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
        chosen = _chosen(registry, stop, (), concurrent.futures.Future())
        tasks = await kopf.spawn_tasks(**chosen)
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
    is_ready: concurrent.futures.Future[None],
) -> dict[str, Any]:
    """What kopf is started with."""
    return {
        "registry": registry,
        "settings": kopfsetup.settings(),
        "standalone": True,
        # Else kopf asks for the name of the user, and in a Pod the user has none.
        "identity": _IDENTITY,
        "stop_flag": stop,
        "ready_flag": is_ready,
        "namespaces": namespaces,
        "clusterwide": not namespaces,
    }


def _set_result(future: asyncio.Future[str], value: str) -> None:
    if not future.done():
        future.set_result(value)


def _backoff() -> Iterator[float]:
    return services.backoff(first_seconds=0.5, most_seconds=20.0)
