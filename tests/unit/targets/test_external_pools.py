"""Connections to other Redis servers are kept with a share for each namespace."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import pytest

from duepoint.targets.stream import external
from tests.support import othertargets, vaults


class Connection:
    """Answers at once, unless ``answer`` is waited for."""

    made: ClassVar[list[Connection]] = []

    def __init__(self, host, answer):
        self.host = host
        self.is_open = True
        self.answer = answer
        self.made.append(self)

    async def execute(self, *_):
        await self.answer.wait()
        return b"1-1"

    def close(self):
        self.is_open = False


@pytest.fixture
def answer():
    return asyncio.Event()


@pytest.fixture
async def streams(monkeypatch, answer):
    async def opened(_dialler, host, _port, _tls):
        return Connection(host, answer)

    monkeypatch.setattr(Connection, "made", [])
    monkeypatch.setattr(external.RedisConnection, "open", opened)
    monkeypatch.setattr(external, "_MOST_SERVERS", 4)
    secrets = [
        vaults.a_secret(f"it-{number}", "loud", url=f"redis://loud-{number}") for number in range(8)
    ]
    api = await vaults.api_with(vaults.a_secret("it", "quiet", url="redis://quiet"), *secrets)
    return external.ExternalStreams(othertargets.a_reader(api), lambda _: None)


async def test_many_servers_of_a_namespace_close_no_other_namespaces_connections(streams, answer):
    answer.set()
    assert await streams.append("quiet", "it", ("XADD",)) == "1-1"
    for number in range(8):
        assert await streams.append("loud", f"it-{number}", ("XADD",)) == "1-1"
    assert await streams.append("quiet", "it", ("XADD",)) == "1-1"
    hosts = [made.host for made in Connection.made if made.is_open]
    assert hosts == ["quiet", "loud-5", "loud-6", "loud-7"]
