"""A term goes on beside what nobody of us wrote into the index, and mends what it can."""

from __future__ import annotations

import asyncio

import pytest

from duepoint.controller.leadership import Timings
from duepoint.delayqueue import messages, sharding
from tests.integration.controller.conftest import Installation


@pytest.fixture(autouse=True)
def looked_at_often(installation: Installation) -> None:
    installation.timings = Timings(look_seconds=0.3, sweep_seconds=0.3)


async def test_a_shard_that_is_gone_alone_is_made_again_and_filled(installation: Installation):
    async with installation.leading() as work:
        held = await two_armed(installation)
        gone = await shard_of(installation, held["first"])
        await installation.server.redis.delete(installation.server.shard(gone).meta)
        await until_exists(installation, installation.server.shard(gone).meta)
        await installation.until_held("first", "second")
        assert not work.done()


@pytest.mark.parametrize("key", ["heads", "leases", "occ", "dead"])
async def test_a_key_of_another_type_ends_no_term(installation: Installation, key: str):
    async with installation.leading() as work:
        held = await two_armed(installation)
        names = installation.server.shard(await shard_of(installation, held["first"]))
        await installation.server.redis.delete(getattr(names, key))
        await installation.server.redis.set(getattr(names, key), "no such type")
        other = await another_shard(installation, held["first"])
        await until_swept(installation, installation.server.shard(other).interned)
        assert not work.done()


async def test_definitions_whose_texts_are_lost_are_made_anew(installation: Installation):
    async with installation.leading():
        held = await two_armed(installation)
    names = installation.server.shard(await shard_of(installation, held["first"]))
    texts = await installation.server.redis.hgetall(names.interned)
    damaged = {field: text[:1] + b"\xff" for field, text in texts.items() if field[:2] == b"n:"}
    await installation.server.redis.hset(names.interned, mapping=damaged)
    for report in installation.servers.changes.on_upheaval:  # the server is another one now
        report()
    async with installation.leading():
        await installation.until_held("first", "second")


async def two_armed(installation: Installation) -> dict:
    for name in ("first", "second"):
        await installation.create(name)
        await installation.until_ready(1, name)
    return await installation.until_held("first", "second")


async def shard_of(installation: Installation, known) -> messages.ShardId:
    return sharding.shard_of(known.id, (await installation.queue.layouts.read()).shards)


async def another_shard(installation: Installation, known) -> messages.ShardId:
    layout = await installation.queue.layouts.read()
    return messages.ShardId((await shard_of(installation, known) + 1) % layout.shards)


async def until_swept(installation: Installation, texts: str) -> None:
    """Until a text that nothing names has its mark."""
    await installation.server.redis.hset(texts, "n:999", "rof nothing")
    async with asyncio.timeout(60):
        while not await installation.server.redis.hexists(texts, "m:999"):  # noqa: ASYNC110 - as below
            await asyncio.sleep(0.05)


async def until_exists(installation: Installation, key: str) -> None:
    async with asyncio.timeout(60):
        while not await installation.server.redis.exists(key):  # noqa: ASYNC110 - another's work
            await asyncio.sleep(0.05)
