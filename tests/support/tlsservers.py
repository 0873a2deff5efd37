"""Servers of each kind that clients reach over TLS.

Redis speaks TLS itself. The embedded Valkey is built without it, so a ``TlsEnd`` stands in front:
clients meet a real handshake, certificates and names, with a real server behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from tests.support.proxy import Proxy
from tests.support.rediscluster import RedisCluster
from tests.support.redisserver import RedisServer, free_port
from tests.support.tlsfiles import Authority, Issued


class _Front:
    """A proxy that runs in a thread of its own, at a port."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=f"front-{port}", daemon=True)
        self._is_listening = threading.Event()
        self._end: asyncio.Event

    def start(self) -> None:
        self._thread.start()
        if not self._is_listening.wait(60):
            raise TimeoutError(f"nothing listens on port {self.port}")

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._end = asyncio.Event()
        self._loop.set_exception_handler(lambda _loop, _context: None)  # handshakes that fail
        proxy = self._proxy()
        await proxy.accept()
        self._is_listening.set()
        await self._end.wait()
        await proxy.refuse()

    def _proxy(self) -> Proxy:
        raise NotImplementedError


class TlsEnd(_Front):
    """A proxy that terminates TLS on one port and passes the plain text on to another.

    It checks client certificates against ``authority`` if clients present them, and requires them
    after ``want_certificates``.
    """

    def __init__(self, behind: int, authority: Authority, issued: Issued, port: int) -> None:
        super().__init__(port)
        self._behind = behind
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.verify_mode = ssl.CERT_OPTIONAL
        self._context.load_verify_locations(authority.file)
        self.present(issued)

    def present(self, issued: Issued) -> None:
        """Show this certificate from the next connection on."""
        self._context.load_cert_chain(issued.certificate, issued.key)

    def want_certificates(self) -> None:
        """From the next connection on, one that shows none is ended."""
        self._context.verify_mode = ssl.CERT_REQUIRED

    def _proxy(self) -> Proxy:
        return Proxy("127.0.0.1", self._behind, port=self.port, tls=self._context)


class Switch(_Front):
    """A proxy that routes a connection by whether it begins as a TLS handshake."""

    def __init__(self, plain: int, tls: int, port: int) -> None:
        super().__init__(port)
        self._plain = plain
        self._tls = tls

    def _proxy(self) -> Proxy:
        return Proxy("127.0.0.1", self._plain, port=self.port, handshakes=self._tls)


class _Addressed:
    server: RedisServer
    port: int

    def url_of(self, role: str) -> str:
        plain = self.server.url_of(role)
        return plain.replace("redis://", "rediss://").replace(
            f":{self.server.port}/", f":{self.port}/"
        )


class TlsServer(Protocol):
    """A running server and its port for TLS.

    Attributes:
        server: the same server without TLS.
        port: its port for TLS.
    """

    server: RedisServer
    port: int

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def present(self, issued: Issued) -> None:
        """Show this certificate from the next connection on."""
        ...

    def want_certificates(self) -> None:
        """From the next connection on, one that shows none is ended."""
        ...

    def url_of(self, role: str) -> str:
        """Return the TLS URL of the operator's or the worker's user."""
        ...


class _BehindAnEnd(_Addressed):
    def __init__(self, kind: str, folder: Path, authority: Authority, issued: Issued) -> None:
        self.server = RedisServer(kind, folder)
        self.port = free_port()
        self._end = TlsEnd(self.server.port, authority, issued, self.port)
        self.present = self._end.present
        self.want_certificates = self._end.want_certificates

    def start(self) -> None:
        self.server.start()
        self._end.start()

    def stop(self) -> None:
        self._end.stop()
        self.server.stop()


class _ByItself(_Addressed):
    def __init__(self, kind: str, folder: Path, authority: Authority, issued: Issued) -> None:
        self.port = free_port()
        self.server = RedisServer(kind, folder, *tls_options(self.port, authority, issued))
        self.start = self.server.start
        self.stop = self.server.stop

    def present(self, issued: Issued) -> None:
        with self.server.client() as client:
            client.execute_command(
                "CONFIG", "SET", "tls-cert-file", str(issued.certificate),
                "tls-key-file", str(issued.key),
            )  # fmt: skip

    def want_certificates(self) -> None:
        with self.server.client() as client:
            client.config_set("tls-auth-clients", "yes")


def tls_options(port: int, authority: Authority, issued: Issued) -> tuple[str, ...]:
    """Return the options of a server that speaks TLS itself."""
    return (
        "--tls-port", str(port), "--tls-auth-clients", "optional",
        "--tls-ca-cert-file", str(authority.file), "--tls-cert-file", str(issued.certificate),
        "--tls-key-file", str(issued.key),
    )  # fmt: skip


@contextlib.contextmanager
def tls_server(
    kind: str, folder: Path, authority: Authority, issued: Issued
) -> Iterator[TlsServer]:
    """Yield a running server of this kind."""
    folder.mkdir(parents=True, exist_ok=True)
    made: TlsServer = (_BehindAnEnd if kind == "valkey" else _ByItself)(
        kind, folder, authority, issued
    )
    try:
        made.start()
        yield made
    finally:
        made.stop()


@contextlib.contextmanager
def tls_cluster(
    kind: str, folder: Path, authority: Authority, issued: Issued
) -> Iterator[list[int]]:
    """Yield a cluster whose nodes announce their ports for TLS, and those ports."""
    ports: list[int] = []

    def options() -> tuple[str, ...]:
        ports.append(free_port())
        if kind == "valkey":
            return ("--cluster-announce-port", str(ports[-1]))
        return (*tls_options(ports[-1], authority, issued), "--tls-cluster", "yes")

    cluster = RedisCluster(kind, folder, options=options)
    with contextlib.ExitStack() as running:
        running.callback(cluster.stop)
        cluster.start()
        if kind == "valkey":
            for node, port in zip(cluster.nodes, ports, strict=True):
                end = TlsEnd(node.port, authority, issued, port)
                running.callback(end.stop)
                end.start()
        yield ports
