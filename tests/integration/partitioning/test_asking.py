"""``duepoint queue partition`` watches to the end, through what happens meanwhile."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Self

import pytest

from duepoint.delayqueue import keys
from tests.integration.partitioning.scene import Scene
from tests.support import queueing
from tests.support.redisserver import RedisServer


@pytest.fixture
async def scene(own_server):
    """Four shards on a server that may be killed; nobody leads."""
    made = Scene(own_server.url, keys.DEFAULT_PREFIX)
    queue = await made.open(read=False)
    await queue.membership.open(4, queueing.EPOCH)
    yield made
    await made.close()


class Watching:
    """The command, asked for so many shards."""

    def __init__(self, url: str, shards: int) -> None:
        self._url, self._shards = url, shards

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "duepoint", "queue", "partition",
            "--shards", str(self._shards), "--redis-url", self._url, "-o", "json",
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def row(self):
        return json.loads(await self._process.stdout.readline())

    async def end(self):
        """Its exit code, last row and complaint."""
        output, complaint = await self._process.communicate()
        rows = [json.loads(line) for line in output.splitlines()]
        return self._process.returncode, rows[-1], complaint.decode()


@pytest.mark.parametrize("other", [4, 8], ids=["as it was", "another number"])
async def test_a_wish_that_somebody_replaced_is_not_told_as_fulfilled(scene, own_server, other):
    async with Watching(own_server.url, 16) as watching:
        assert (await watching.row())["wantedShards"] == 16
        await scene.opened[0].resharding.ask(other)
        code, last, complaint = await watching.end()
    assert code == 1
    assert (last["wantedShards"] or last["shards"]) == other
    assert complaint == f"duepoint: another command has asked for {other} shards since\n"


async def test_a_server_that_starts_again_does_not_end_the_watching(tmp_path):
    server = RedisServer("valkey", tmp_path, "--appendonly", "yes")
    server.start()
    scene = Scene(server.url, keys.DEFAULT_PREFIX)
    try:
        queue = await scene.open(read=False)
        await queue.membership.open(4, queueing.EPOCH)
        async with Watching(server.url, 8) as watching:
            assert (await watching.row())["wantedShards"] == 8
            server.kill()
            await asyncio.sleep(1)
            server.start()
            await scene.partition(await scene.open(), 8)
            code, last, complaint = await watching.end()
        assert (code, last["shards"], complaint) == (0, 8, "")
    finally:
        await scene.close()
        server.stop()
