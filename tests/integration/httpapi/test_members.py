"""Operations of the HTTP API, on the real process, Valkey and API server."""

from __future__ import annotations

import json

from redis import asyncio as redis_asyncio

from duepoint.schedules.sets import setrecord
from tests.support import queueing

NDJSON = {"Content-Type": "application/x-ndjson"}
AT = {"at": "2090-12-24T18:00:00Z", "payload": {"customer": 4711}}


async def test_a_header_that_decides_is_taken_or_refused(scene):
    path = scene.member("a")
    await scene.ask("PUT", path, AT)
    tag, absent, key = {"If-Match": '"00000000"'}, {"If-None-Match": "*"}, {"Idempotency-Key": "1"}
    safe = {"Duepoint-Durability": "replicas=1"}
    cases = [
        ("PATCH", path, {"suspend": True}, absent),
        ("DELETE", path, None, absent),
        ("POST", f"{path}/trigger", {}, tag),
        ("POST", f"{path}/trigger", {}, safe),
        ("POST", f"{scene.base}/schedules", AT, absent),
        ("POST", f"{scene.base}/schedules", AT, tag),
        ("POST", f"{scene.base}/deadletters:replay", {"ids": ["1.0.1-1"]}, safe),
        ("POST", f"{scene.base}/schedules:bulkDelete", b'{"id":"a"}', {**NDJSON, **key}),
        ("POST", f"{scene.base}/schedules:bulkUpsert", b'{"id":"b"}', {**NDJSON, **tag}),
    ]
    for method, where, body, headers in cases:
        refused = await scene.ask(method, where, body, headers=headers)
        assert refused.code == "InvalidParameter", (method, where, headers)
        assert refused.json["field"] in headers
    assert list(await scene.members()) == ["a"]
    assert (await scene.ask("GET", path, headers={**tag, **key})).status == 200


async def test_a_one_off_gets_an_id_and_a_repeat_with_its_key_the_same_answer(scene):
    key = {"Idempotency-Key": "order-77"}
    path = f"{scene.base}/schedules"
    made = await scene.ask("POST", path, {"delay": "1h"}, headers=key)
    assert made.status == 201
    assert made.headers["location"] == scene.member(made.json["id"])
    again = await scene.ask("POST", path, {"delay": "1h"}, headers=key)
    assert again.headers["idempotency-replayed"] == "true"
    assert (again.status, again.body) == (made.status, made.body)
    other = await scene.ask("POST", path, {"delay": "2h"}, headers=key)
    assert other.code == "Conflict"
    assert len(await scene.members()) == 1
    refused = await scene.ask("POST", path, {"schedule": "@daily"})
    assert refused.json["field"] == "schedule"


async def test_a_member_that_never_runs_by_itself_stays_and_is_triggered(scene):
    made = await scene.ask("PUT", scene.member("hand"), {"schedule": "@never"})
    assert (made.status, made.json["state"], made.json.get("nextDueTime")) == (
        201, "Completed", None,
    )  # fmt: skip
    run = await scene.ask("POST", scene.member("hand") + "/trigger", {"payload": 1})
    assert run.status == 202
    kept = await scene.ask("GET", scene.member("hand"))
    assert (kept.status, kept.json["schedule"]) == (200, "@never")
    path = f"{scene.base}/schedules:bulkUpsert"
    row = b'{"id":"hand","schedule":"@never"}'
    answer = await scene.ask("POST", path, row, headers={"Content-Type": "application/x-ndjson"})
    assert answer.lines[0]["outcome"] == "Unchanged"


async def test_nothing_is_triggered_while_the_member_or_its_set_rests_or_goes(scene):
    await scene.ask("PUT", scene.member("a"), {**AT, "suspend": True})
    await scene.ask("PUT", scene.member("b"), AT)
    assert (await scene.ask("POST", scene.member("a") + "/trigger")).code == "NotActive"
    assert (await scene.ask("POST", scene.member("none") + "/trigger")).code == "NoSuchMember"
    for state, code in (("SUSPENDED", "NotActive"), ("DELETING", "SetDeleting")):
        await scene.store(state=setrecord.SetState[state])
        assert (await scene.ask("POST", scene.member("b") + "/trigger")).code == code


async def test_a_set_that_takes_no_changes_says_why(scene):
    cases = {
        "SetDeleting": {"state": setrecord.SetState.DELETING},
        "NotActive": {"state": setrecord.SetState.STALLED},
        "Conflict": {"state": setrecord.SetState.READY, "is_managed": True},
    }
    for code, changes in cases.items():
        await scene.store(**changes)
        assert (await scene.ask("PUT", scene.member("a"), AT)).code == code
        assert (await scene.ask("DELETE", scene.member("a"))).code == code
        assert (await bulk(scene, "bulkUpsert", [{"id": "a", **AT}])).code == code
    assert await scene.members() == {}


async def test_durability_that_is_not_there_is_refused_before_the_change(scene):
    for wish in ("aof", "replicas=1"):
        headers = {"Duepoint-Durability": wish}
        refused = await scene.ask("PUT", scene.member("a"), AT, headers=headers)
        assert refused.code == "DurabilityUnavailable"
    for wish in ("disk", "replicas=0", "timeout=5", "replicas=1, replicas=x"):
        headers = {"Duepoint-Durability": wish}
        refused = await scene.ask("PUT", scene.member("a"), AT, headers=headers)
        assert refused.code == "InvalidParameter", wish
    assert await scene.members() == {}


async def bulk(scene, verb, rows, **options):
    body = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    headers = {"Content-Type": "application/x-ndjson"}
    return await scene.ask("POST", f"{scene.base}/schedules:{verb}", body, headers=headers)


async def test_a_set_that_is_not_stored_again_yet_is_not_said_to_be_missing(scene, own_server):
    queue = scene.harness.queue
    path = f"{scene.base}/schedules/m"
    first, second = (path.replace(scene.record.name, name) for name in ("first", "second"))
    assert (await scene.ask("GET", first)).code == "NotFound"
    async with redis_asyncio.Redis.from_url(own_server.url) as client:
        assert await client.delete(queue.index.keys.sets) == 1
    refused = await scene.ask("GET", second)
    assert (refused.status, refused.code) == (503, "Unavailable")
    assert refused.headers["retry-after"]
    await queue.sets.mark_complete(queueing.EPOCH)
    assert (await scene.ask("GET", second)).code == "NotFound"
