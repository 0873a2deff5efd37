"""Every script of a shard refuses a shard that is not the one its caller knows."""

from __future__ import annotations

import pytest

from duepoint import errors
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages
from duepoint.delayqueue.wire import scripting
from tests.support import queueing

WITHOUT_SHARD = {
    *(
        "append",
        "beat",
        "open",
        "init",
        "rights",
        "compact",
        "ask",
        "announce",
        "progress",
    ),
    *("circuits", "stay", "enlist", "prepare", "setrecord"),
    *("request", "requestdone", "takechanges"),  # of the HTTP API; they touch no shard
}
OF_A_SHARD = sorted(set(scripting.names()) - WITHOUT_SHARD)
FENCED = {
    *("collect", "intern", "remove", "sweep", "upsert", "drain", "export", "rebury", "close"),
    *("compared", "trust", "enqueue", "withdraw", "filled", "setentry"),
}


async def _call(bench, name, **named):
    n = bench.names
    keys = [n.meta, *(f"{n.tag}:unused{number}" for number in range(12))]
    values = {"layout": 1, "epoch": 7, "lanes": [], **named}
    return await bench.run(scripting.ScriptCall(name, keys, **values))


async def _untouched(bench):
    return await bench.client.keys(f"{bench.names.tag}:unused*") == []


@pytest.mark.parametrize("name", OF_A_SHARD)
async def test_an_emptied_shard_is_told_apart_from_an_empty_one(bench, name):
    await bench.client.delete(bench.names.meta)
    with pytest.raises(queue_errors.Uninitialised):
        await _call(bench, name)
    assert await _untouched(bench)


@pytest.mark.parametrize("name", [*OF_A_SHARD, "init"])
async def test_another_layout_is_refused(bench, name):
    with pytest.raises(queue_errors.LayoutChanged):
        await _call(bench, name, layout=2)
    assert await _untouched(bench)


@pytest.mark.parametrize("name", OF_A_SHARD)
async def test_a_closed_shard_is_refused(bench, name):
    await bench.client.hset(bench.names.meta, "state", "closed")
    with pytest.raises(queue_errors.LayoutChanged):
        await _call(bench, name)


@pytest.mark.parametrize("name", [*OF_A_SHARD, "init"])
async def test_the_shard_of_another_cluster_is_refused(bench, name):
    await bench.client.hset(bench.names.meta, "owner", "theirs")
    with pytest.raises(queue_errors.Foreign, match=r"redis\.prefix"):
        await _call(bench, name, owner="ours")
    assert await _untouched(bench)


@pytest.mark.parametrize("name", sorted(FENCED | {"init"}))
async def test_an_older_term_is_fenced_off(bench, name):
    await bench.client.hset(bench.names.meta, "epoch", 8)
    with pytest.raises(queue_errors.Fenced):
        await _call(bench, name)
    assert await _untouched(bench)


async def test_a_newer_term_is_remembered(bench):
    call = bench.queue.index.call("intern", messages.ShardId(0), epoch=9)
    call.put(texts=call.run(["nx"]))
    await bench.run(call)
    assert await bench.client.hget(bench.names.meta, "epoch") == b"9"


async def test_numbers_of_a_former_life_are_refused(bench):
    with pytest.raises(queue_errors.LayoutChanged):
        await _call(bench, "upsert", incarnation="another life")
    assert await _untouched(bench)


async def test_a_stream_under_another_type_is_told(bench):
    stream = bench.server.keys.stream("default", "ticks")
    await bench.client.set(stream, "text")
    with pytest.raises(queue_errors.WrongType):
        await bench.queue.streams.append(queueing.an_entry())


async def test_a_mistake_in_a_call_is_a_bug_of_ours(bench):
    with pytest.raises(errors.Bug):
        await bench.run(scripting.ScriptCall("claim", [bench.names.meta], layout=1))
