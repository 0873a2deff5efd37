"""A thread with an event loop on which every connection goes through a dialler.

aiokafka connects to whatever host the brokers advertise and has no setting for how. Like every
library on asyncio it does so by ``loop.create_connection``, a documented method of a documented
class. So it runs on a loop of its own whose method asks the dialler of the current context, and
whose other ways to a network refuse: a library that starts to dial differently connects to nothing.
The dialler itself runs on the loop that the thread was started from.
"""

from __future__ import annotations

import asyncio
import contextvars
import socket
import ssl as tls
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NoReturn, TypeVar

from duepoint.net import dialling

T = TypeVar("T")

#: host, port, whether TLS follows -> a connected socket; raises OSError.
Dial = Callable[[str, int, bool], Awaitable[socket.socket]]

_dial: contextvars.ContextVar[Dial | None] = contextvars.ContextVar("dial", default=None)


def dial_by(dial: Dial) -> None:
    """From here on this task, and the tasks it creates, connect by this function."""
    _dial.set(dial)


class GuardedLoop(asyncio.SelectorEventLoop):
    """Connects by the dialler of the context, and in no other way."""

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        *,
        ssl: tls.SSLContext | None = None,
        **options: Any,  # noqa: ANN401 - of the library; none is known
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """See ``asyncio.loop.create_connection``; raises what the dialler raises."""
        dial = _dial.get()
        if dial is None or host is None or port is None or options:
            _refuse()
        made = await dial(host, int(port), ssl is not None)
        try:
            return await super().create_connection(
                protocol_factory, sock=made, ssl=ssl, server_hostname=host if ssl else None
            )
        except BaseException:
            made.close()
            raise

    async def sock_connect(self, sock: socket.socket, address: Any) -> NoReturn:  # noqa: ANN401, ARG002
        """Refuses."""
        _refuse()

    async def create_datagram_endpoint(self, *_: Any, **__: Any) -> NoReturn:  # noqa: ANN401
        """Refuses."""
        _refuse()

    async def create_unix_connection(self, *_: Any, **__: Any) -> NoReturn:  # noqa: ANN401
        """Refuses."""
        _refuse()


class GuardedThread:
    """Runs coroutines on a guarded loop, for callers on another loop."""

    def __init__(self) -> None:
        self._stopped = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_running = threading.Event()
        self._thread = threading.Thread(target=self._run, name="guarded loop", daemon=True)

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine that runs on the guarded loop."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._started()))

    async def close(self) -> None:
        """Cancel what runs there, and end the thread."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(self._stopped.set)
            await asyncio.to_thread(self._thread.join)

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._thread.start()
            self._is_running.wait()
        assert self._loop is not None  # noqa: S101 - the thread has set it
        return self._loop

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=GuardedLoop) as runner:
            self._loop = runner.get_loop()
            self._is_running.set()
            runner.run(self._wait_until_stopped())

    async def _wait_until_stopped(self) -> None:
        await self._stopped.wait()


def _refuse() -> NoReturn:
    raise dialling.Blocked("a connection was about to be opened past the egress rules")
