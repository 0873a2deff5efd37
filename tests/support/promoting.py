"""The scene of ``fallingback`` under Sentinel: a replica that was cut off is promoted."""

from __future__ import annotations

from tests.support import redisusers
from tests.support.fallingback import Scene, Wanted, wait_until_chains_wait
from tests.support.sentinels import NAME, Watched
from tests.support.stack import Stack
from tests.support.waiting import wait_until


class UnderSentinel:
    """Servers under Sentinel, with the interface that a Stack needs."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched

    def url_of(self, role: str) -> str:
        login = f"{redisusers.name(role)}:{redisusers.password(role).replace(' ', '%20')}"
        return f"{self._watched.scheme}://{login}@{self._watched.hosts}/{NAME}"


class PromotedScene(Scene):
    """A scene whose older state is that of a replica cut off from its primary."""

    def __init__(self, stack: Stack, wanted: Wanted, watched: Watched, **settings: str) -> None:
        super().__init__(stack, wanted, **settings)
        self._primary, self._replica = watched.servers

    def _snapshot(self) -> bytes:
        with self._primary.client() as client:
            wait_until_chains_wait(client)
            assert client.execute_command("WAIT", 1, 10_000) == 1
            self._replica.pause()
            client.execute_command("CLIENT", "KILL", "TYPE", "replica")  # its socket would fill
        return b""

    def _kill(self) -> None:
        self._primary.kill()

    def _come_back(self, before: bytes) -> None:
        self._replica.resume()
        wait_until(self._is_promoted, "the replica is the primary")

    def _is_promoted(self) -> bool:
        with self._replica.client() as client:
            return bool(client.info("replication")["role"] == "master")
