"""Time that passes only when nothing else can happen, so that minutes take milliseconds."""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")


class _Selector(selectors.DefaultSelector):
    """Instead of waiting for a timer, says that its time has come."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("nothing will ever happen again")
        self.now += max(0.0, timeout)
        return super().select(0)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer whenever no callback is ready."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now


class VirtualClock:
    """The loop's time as one machine sees it: its clocks may run at a wrong rate."""

    def __init__(self, rate: float = 1.0) -> None:
        self._rate = rate

    def now_us(self) -> int:
        return round(self.monotonic() * 1e6)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time() * self._rate

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self._rate)


def run(main: Coroutine[Any, Any, ResultT]) -> ResultT:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a test of this coroutine function that runs it on such a loop."""

    @functools.wraps(test)
    def running(*arguments: Any, **named: Any) -> None:
        run(test(*arguments, **named))

    return running
