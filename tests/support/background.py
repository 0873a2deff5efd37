"""Asynchronous resources in a thread of their own, for tests that are not asynchronous."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

FoundT = TypeVar("FoundT")
AnswerT = TypeVar("AnswerT")

Run = Callable[[Coroutine[Any, Any, Any]], Any]


@contextlib.contextmanager
def living(
    make: Callable[[], AbstractAsyncContextManager[FoundT]], *, seconds: float = 300.0
) -> Iterator[tuple[FoundT, Run]]:
    """Yield a resource, and a function that runs a coroutine in its loop and returns the result.

    ``seconds``: the limit for making the resource, and for each coroutine.
    """
    began: concurrent.futures.Future[tuple[FoundT, asyncio.AbstractEventLoop, asyncio.Event]]
    began = concurrent.futures.Future()

    async def live() -> None:
        over = asyncio.Event()
        async with make() as found:
            began.set_result((found, asyncio.get_running_loop(), over))
            await over.wait()

    def run_loop() -> None:
        try:
            asyncio.run(live())
        except BaseException as error:
            if began.done():
                raise
            began.set_exception(error)

    thread = threading.Thread(target=run_loop, name="background")
    thread.start()
    try:
        found, loop, over = began.result(seconds)
    except BaseException:
        thread.join()
        raise

    def run(coroutine: Coroutine[Any, Any, AnswerT]) -> AnswerT:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(seconds)

    try:
        yield found, run
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
