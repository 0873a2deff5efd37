"""Every script of a shard refuses a shard that is not the one its caller knows."""

from __future__ import annotations

import pytest

from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue.wire import scripting

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
    *("put", "drop"),  # of several shards, see below
    "readmembers",  # as any command that reads: a shard that is not there has none
}
OF_A_SHARD = sorted(set(scripting.names()) - WITHOUT_SHARD)
FENCED = {
    *("collect", "intern", "rearm", "drain", "depart", "arrive", "departed", "rebury", "close"),
    *("putagain", "trust", "enqueue", "withdraw", "setentry"),
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


@pytest.mark.parametrize(
    ("meta", "known", "said"),
    [
        (None, {}, b"UNINIT"),
        ({}, {"layout": 2}, b"WRONGLAYOUT"),
        ({"state": "closed"}, {}, b"WRONGLAYOUT"),
        ({}, {"incarnation": "another"}, b"WRONGLAYOUT"),
        ({"owner": "theirs"}, {}, b"FOREIGN"),
    ],
    ids=["emptied", "another layout", "closed", "made anew", "of another cluster"],
)
async def test_members_of_a_shard_that_is_another_are_not_written_and_others_are(
    bench, meta, known, said
):
    """One script has parts of several shards: here both are of one, as its caller knows it."""
    n = bench.names
    unused = [f"{n.tag}:unused{number}" for number in range(11)]
    good = f"{n.tag}:good"
    await bench.client.copy(n.meta, good)
    for shard in (n.meta, good):
        await bench.client.hset(shard, "s5", "e")
    if meta is None:
        await bench.client.delete(n.meta)
    elif meta:
        await bench.client.hset(n.meta, mapping=meta)
    row = ["12345678", "a record", "", ""]
    parts = [
        {"keys": 1, "layout": 1, "lane": "5", "numbers": [], "groups": [12, 2, 5], **known},
        {"keys": 13, "layout": 1, "lane": "5", "numbers": [], "groups": [24, 2, 5]},
    ]
    keys = [n.meta, *unused, good, *unused[:10], f"{n.tag}:bucket"]
    call = scripting.ScriptCall("put", keys, layout=1, owner="ours")
    call.put(parts=parts)
    call.run(row)
    refused, written = await bench.run(call)
    assert refused.startswith(said)
    assert written == [b"+"]
    assert await _untouched(bench)
    assert await bench.client.hgetall(f"{n.tag}:bucket") == {b"12345678": b"a record"}


@pytest.mark.parametrize("name", sorted(FENCED | {"init"}))
async def test_an_older_term_is_fenced_off(bench, name):
    await bench.client.hset(bench.names.meta, "epoch", 8)
    with pytest.raises(queue_errors.Fenced):
        await _call(bench, name)
    assert await _untouched(bench)
