"""The event loops of all simulated processes: one virtual clock, one seeded order.

The context of a callback names the ``Process`` that it belongs to, so whatever a process starts
belongs to it. Each process keeps asyncio's own order (first in, first out); a seeded generator
chooses which process takes the next turn. While anything can run, time stands still except for a
few microseconds for each turn; then it jumps to the next timer.

A killed process never runs again, not even its ``finally`` blocks, as after kill -9. A paused one
(SIGSTOP) keeps its callbacks waiting, and its timers are late.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import heapq
import itertools
import random
import sys
import warnings
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar
from unittest import mock

T = TypeVar("T")

#: A turn of the loop takes this long, so that a process that spins reaches the next timer.
TURN_US = 20
#: A history that takes more turns than this between two timers has a busy loop.
MOST_TURNS_BETWEEN_TIMERS = 200_000


class Stuck(AssertionError):
    """A process runs for ever while no timer comes due."""


class Process:
    """A simulated process from its start to its end; a restart makes another one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.paused_until_us: int | None = None
        self.clock_offset_us = 0
        self.ready: deque[Handle] = deque()
        #: Python closes a task that nothing refers to, and runs its ``finally`` blocks. Those of a
        #: killed process must not run, so its tasks stay here.
        self.tasks: list[asyncio.Task[Any]] = []
        self._most_tasks = 100

    def __repr__(self) -> str:
        return self.name

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Keep a reference to a task for as long as it runs."""
        self.tasks.append(task)
        if len(self.tasks) > self._most_tasks and not self.is_dead:
            self.tasks = [each for each in self.tasks if not each.done()]
            self._most_tasks = 2 * len(self.tasks) + 100


#: The process of the running context; work of the world (network, controllers) belongs to none.
running_process: contextvars.ContextVar[Process] = contextvars.ContextVar("process")


class Handle:
    """A callback that waits for its turn or its time; see ``asyncio.TimerHandle``.

    It never runs once it is cancelled or its process is dead. A history has ten thousand of them,
    so the loop reads the fields directly.
    """

    __slots__ = ("_when", "args", "callback", "context", "is_cancelled", "process")

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context,
        process: Process,
        when: float = 0.0,
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.process = process
        self.is_cancelled = False
        self._when = when

    def cancel(self) -> None:
        self.is_cancelled = True

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self._when


class _Task(asyncio.Task[Any]):
    """A task with a fixed hash: sets of tasks iterate by hash, and an address would be chance."""

    def __init__(self, coro: Any, *, number: int, **options: Any) -> None:
        self._number = number
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number


class _Future(asyncio.Future[Any]):
    def __init__(self, *, number: int, loop: SimulatedLoop) -> None:
        self._number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class SimulatedLoop(asyncio.AbstractEventLoop):
    """The event loop of all processes of one history; ``run`` takes the work of the world.

    Args:
        seed: chooses the order of turns.
    """

    def __init__(self, seed: int) -> None:
        self.world = Process("world")
        self.now_us = 0
        self._random = random.Random(f"order of {seed}")
        self._processes: list[Process] = [self.world]
        self._all: list[Process] = [self.world]
        self._timers: list[tuple[int, int, Handle]] = []
        self._numbers = itertools.count(1)
        self._context_of_world = self.context_of(self.world)
        self._is_closed = False
        self._turns = 0
        self.turns = 0
        self.failures: list[str] = []

    # -- processes ---------------------------------------------------------------------------

    def start(self, name: str, work: Coroutine[Any, Any, Any]) -> Process:
        """Start a new process that does this work."""
        process = Process(name)
        self._processes.append(process)
        self._all.append(process)
        self.context_of(process).run(self.create_task, work)
        return process

    def kill(self, process: Process) -> None:
        """End a process as kill -9 does: none of its code runs again."""
        process.is_dead = True
        process.ready.clear()
        self._processes = [each for each in self._processes if each is not process]

    def pause(self, process: Process, seconds: float) -> None:
        """Stop a process as SIGSTOP does, and continue it after these seconds."""
        until = self.now_us + round(seconds * 1e6)
        process.paused_until_us = max(until, process.paused_until_us or 0)

    def in_world_at(self, at_us: int, callback: Callable[..., object], *args: Any) -> Handle:
        """Call this at that instant, outside of all processes."""
        handle = Handle(callback, args, self._world_context(), self.world, at_us / 1e6)
        self._push(handle)
        return handle

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task that belongs to the world."""
        return self._world_context().run(self.create_task, work)

    def context_of(self, process: Process) -> contextvars.Context:
        """Return a context whose callbacks belong to this process."""
        context = contextvars.Context()
        context.run(running_process.set, process)
        return context

    def _world_context(self) -> contextvars.Context:
        return self._context_of_world.copy()

    # -- running -----------------------------------------------------------------------------

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run until this work of the world is done."""
        # Documented for authors of event loops, and the only way to become the running one.
        asyncio._set_running_loop(self)
        try:
            task = self.spawn(work)
            while not task.done():
                self._take_turn()
            return task.result()
        finally:
            asyncio._set_running_loop(None)

    def _take_turn(self) -> None:
        timers, now_us = self._timers, self.now_us
        while timers and timers[0][0] <= now_us:
            _, _, handle = heapq.heappop(timers)
            if not (handle.is_cancelled or handle.process.is_dead):
                handle.process.ready.append(handle)
        able = [each for each in self._processes if each.ready]
        for each in able:
            if each.paused_until_us is not None:
                able = [one for one in able if one.paused_until_us is None or self._goes_on(one)]
                break
        if not able:
            self._pass_time()
            return
        self._turns += 1
        self.turns += 1
        if self._turns > MOST_TURNS_BETWEEN_TIMERS:
            raise Stuck(f"these run for ever at one instant: {able}")
        process = able[0] if len(able) == 1 else self._random.choice(able)
        ready = process.ready
        for _ in range(len(ready)):
            if not ready:  # the process has been killed
                break
            handle = ready.popleft()
            if not handle.is_cancelled:
                handle.context.run(handle.callback, *handle.args)
                if process.paused_until_us is not None:
                    break
        self.now_us += TURN_US

    def _goes_on(self, process: Process) -> bool:
        """Whether a process that may be paused can run now."""
        until_us = process.paused_until_us
        if until_us is not None and self.now_us < until_us:
            return False
        process.paused_until_us = None
        return True

    def _pass_time(self) -> None:
        self._turns = 0
        ends = [
            each.paused_until_us
            for each in self._processes
            if each.ready and each.paused_until_us is not None
        ]
        timers = self._timers
        while timers and ((first := timers[0][2]).is_cancelled or first.process.is_dead):
            heapq.heappop(timers)
        if self._timers:
            ends.append(self._timers[0][0])
        if not ends:
            raise Stuck("nothing will ever happen again")
        self.now_us = max(self.now_us, min(ends))

    # -- what asyncio asks of a loop -----------------------------------------------------------

    def time(self) -> float:
        return self.now_us / 1e6

    def call_soon(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Handle:
        context = contextvars.copy_context() if context is None else context
        process = context.get(running_process, self.world)
        handle = Handle(callback, args, context, process)
        if not process.is_dead:
            process.ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Handle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Handle:
        context = contextvars.copy_context() if context is None else context
        process = context.get(running_process, self.world)
        handle = Handle(callback, args, context, process, when)
        self._push(handle)
        return handle

    def _push(self, handle: Handle) -> None:
        # rounded up: a sleeper must not wake before its time
        at_us = -int(-handle.when() * 1e6 // 1)
        heapq.heappush(self._timers, (at_us, next(self._numbers), handle))

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:
        return self.call_soon(callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(number=next(self._numbers), loop=self)

    def create_task(  # type: ignore[override]
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        task = _Task(coro, number=next(self._numbers), loop=self, name=name or "", context=context)
        given = contextvars.copy_context() if context is None else context
        given.get(running_process, self.world).keep(task)
        return task

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        """Run the function at once: a thread's timing would be chance."""
        del executor
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - it is the caller's
            done.set_exception(error)
        return done

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Ignore errors of dead processes; every other one is a defect."""
        error = context.get("exception")
        if error is not None and not self._is_closed:
            self.failures.append(f"{context.get('message')}: {error!r}")

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self._is_closed

    def is_closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        """Drop everything that is left; only ``finally`` blocks of coroutines still run.

        They run when Python collects the coroutines; their errors are not errors of the product.
        """
        self._is_closed = True
        self._timers.clear()
        self._processes = []
        with warnings.catch_warnings(), mock.patch.object(sys, "unraisablehook", _ignore):
            warnings.simplefilter("ignore")
            # A ``finally`` block may start a task; this loop drops it.
            asyncio._set_running_loop(self)
            try:
                for process in self._all:
                    process.is_dead = True
                    process.ready.clear()
                    process.tasks.clear()
                gc.collect()
                for process in self._all:
                    process.tasks.clear()
                gc.collect()  # objects that those blocks kept alive
            finally:
                asyncio._set_running_loop(None)


def _ignore(_what: object) -> None:
    pass
