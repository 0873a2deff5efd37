"""Servers under Sentinel that clients reach over TLS, Sentinels and servers alike.

The embedded Valkey is built without TLS, and a Sentinel announces one port of a server to clients,
other Sentinels and replicas alike. So a ``Switch`` listens at that port. It sends a connection that
begins as a TLS handshake to a ``TlsEnd`` in front of the server, any other to the server itself:
clients use TLS, and the servers talk to one another without it.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.redisserver import RedisServer, free_port
from tests.support.sentinels import Watched
from tests.support.tlsfiles import Authority, Issued
from tests.support.tlsservers import Switch, TlsEnd


class TlsWatched(Watched):
    """A ``Watched`` whose servers and Sentinels all present the same certificate."""

    def __init__(self, kind: str, folder: Path, authority: Authority, issued: Issued) -> None:
        self._authority = authority
        self._issued = issued
        self._told: dict[int, int] = {}
        self._fronts: list[TlsEnd | Switch] = []
        self._of_servers: list[TlsEnd] = []
        super().__init__(kind, folder)

    scheme = "rediss+sentinel"

    def _server(self, folder: Path, *options: str) -> RedisServer:
        told = free_port()
        server = super()._server(folder, "--replica-announce-port", str(told), *options)
        self._told[server.port] = told
        return server

    def port_of(self, server: RedisServer) -> int:
        return self._told[server.port]

    @property
    def hosts(self) -> str:
        return ",".join(f"127.0.0.1:{self._told[port]}" for port in self._ports)

    def start(self) -> None:
        for port, told in self._told.items():
            end = self._end(port, free_port())
            self._of_servers.append(end)
            self._front(Switch(port, end.port, told))
        for port in self._ports:
            self._told[port] = self._end(port, free_port()).port
        super().start()

    def stop(self) -> None:
        super().stop()
        for front in self._fronts:
            front.stop()

    def present_to_clients_of_servers(self, issued: Issued) -> None:
        """Make the servers, not the Sentinels, present this one from the next connection on."""
        for end in self._of_servers:
            end.present(issued)

    def _end(self, behind: int, port: int) -> TlsEnd:
        end = TlsEnd(behind, self._authority, self._issued, port)
        self._front(end)
        return end

    def _front(self, front: TlsEnd | Switch) -> None:
        self._fronts.append(front)
        front.start()
