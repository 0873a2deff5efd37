"""A term of the operator on real servers."""

from __future__ import annotations

import asyncio
import json
import time

from duepoint.controller.leadership import Timings
from duepoint.delayqueue import layouts, messages
from duepoint.kube import schedules
from duepoint.runs import run as runs
from duepoint.schedules.definition import State
from tests.integration.controller.conftest import Installation, condition
from tests.support.builders import JOB_TEMPLATE


async def test_an_applied_schedule_becomes_ready_with_its_generation(installation: Installation):
    async with installation.leading():
        await installation.create()
        status = await installation.until_ready(1)
        assert condition(status, "Ready")["reason"] == "Armed"
        assert status["nextScheduleTime"].endswith("-01-01T00:00:00Z")
        assert len(status["upcomingTimes"]) == 5
        held = await installation.until_held("nightly")
        assert held["nightly"].state is State.ARMED


async def test_apply_to_ready_is_quick_once_the_operator_is_up(installation: Installation):
    async with installation.leading():
        await installation.create("first")
        await installation.until_ready(1, "first")
        took = []
        for number in range(10):
            began = time.monotonic()
            await installation.create(f"s{number}")
            await installation.until_ready(1, f"s{number}")
            took.append(time.monotonic() - began)
        # half a second at most on a calm machine; here it waits for nothing
        assert sorted(took)[5] < 10.0


async def test_an_edit_is_applied_and_only_one_of_the_timing_moves_the_chain(
    installation: Installation,
):
    async with installation.leading():
        await installation.create()
        await installation.until_ready(1)
        first = (await installation.definitions())["nightly"]
        await installation.edit(payload={"a": 1})
        await installation.until_ready(2)
        second = (await installation.definitions())["nightly"]
        assert second.timing_version == first.timing_version
        assert second.target != first.target
        await installation.edit(schedule="0 0 1 2 *")
        await installation.until_ready(3)
        third = (await installation.definitions())["nightly"]
        assert third.timing_version != first.timing_version


async def test_suspend_and_resume(installation: Installation):
    async with installation.leading():
        await installation.create()
        await installation.until_ready(1)
        await installation.edit(suspend=True)
        status = await installation.until_ready(2)
        assert condition(status, "Ready")["reason"] == "Suspended"
        assert "nextScheduleTime" not in status
        assert (await installation.definitions())["nightly"].state is State.SUSPENDED
        await installation.edit(suspend=False)
        status = await installation.until_ready(3)
        assert condition(status, "Ready")["reason"] == "Armed"


async def test_a_deletion_leaves_nothing_in_the_queue_within_a_second(installation: Installation):
    async with installation.leading():
        await installation.create()
        await installation.until_ready(1)
        await installation.delete()
        await installation.until_held(seconds=5)


async def test_what_is_deleted_edited_and_made_between_two_terms_is_put_right(
    installation: Installation,
):
    async with installation.leading():
        for name in ("stays", "goes", "changes"):
            await installation.create(name)
            await installation.until_ready(1, name)
    await installation.delete("goes")
    await installation.edit("changes", schedule="0 0 1 2 *")
    await installation.create("comes")
    stays = await installation.object("stays")
    async with installation.leading():
        await installation.until_held("stays", "changes", "comes")
        await installation.until_ready(2, "changes")
        await installation.until_ready(1, "comes")
        # in order before, so not even its status was written
        assert (await installation.object("stays"))["metadata"] == stays["metadata"]


async def test_an_emptied_redis_is_filled_again(installation: Installation):
    installation.timings = Timings(look_seconds=0.5)
    async with installation.leading():
        await installation.create()
        await installation.until_ready(1)
        installation.empty_redis()
        await installation.until_held("nightly")
        assert condition((await installation.object())["status"], "Ready")["status"] == "True"


async def test_an_emptied_redis_is_cut_as_it_was_though_the_settings_say_otherwise(
    installation: Installation,
):
    async with installation.leading():
        await installation.create()
        await installation.until_ready(1)
    assert installation.lease_notes["duepoint.dev/queue-layout"] == "1/4"
    installation.empty_redis()
    async with installation.leading(shards=16):
        await installation.until_held("nightly")
        assert (await installation.queue.layouts.read()).shards == 4


async def test_an_impossible_date_is_stalled_with_field_and_reason(installation: Installation):
    async with installation.leading():
        await installation.create(schedule="0 0 30 2 *")
        status = await installation.until(lambda status: condition(status, "Stalled") is not None)
        stalled = condition(status, "Stalled")
        assert stalled["reason"] == "NeverFires"
        assert "spec.schedule" in stalled["message"]
        assert status["observedGeneration"] == 1
        assert condition(status, "Ready")["status"] == "False"
        event = await installation.until_told("InvalidSchedule")
        assert event["regarding"]["name"] == "nightly"
        assert event["type"] == "Warning"
        assert "spec.schedule" in event["note"]
        await installation.edit(schedule="0 0 28 2 *")
        status = await installation.until_ready(2)
        assert condition(status, "Stalled") is None


async def test_a_template_with_a_misspelt_field_is_stalled(installation: Installation):
    bad = json.loads(json.dumps(JOB_TEMPLATE))
    bad["spec"]["template"]["spec"]["containers"][0]["imagePullPolize"] = "Always"
    async with installation.leading():
        await installation.create(jobTemplate=bad)
        status = await installation.until(lambda status: condition(status, "Stalled") is not None)
        assert condition(status, "Stalled")["reason"] == "InvalidJobTemplate"
        assert "imagePullPolize" in condition(status, "Stalled")["message"]
        await installation.edit(jobTemplate=None, webhook={"url": "https://hooks.example.com/x"})
        await installation.until_ready(2)


async def test_a_good_template_is_ready_and_made_no_job(installation: Installation):
    async with installation.leading():
        await installation.create(jobTemplate=JOB_TEMPLATE)
        await installation.until_ready(1)
        jobs = f"/apis/batch/v1/namespaces/{installation.namespace}/jobs"
        assert json.loads(await installation.user.request("GET", jobs))["items"] == []


async def test_outcomes_of_the_streams_reach_the_status_and_leave_the_stream(
    installation: Installation,
):
    async with installation.leading():
        made = await installation.create()
        await installation.until_ready(1)
        now_us = time.time_ns() // 1000
        event = runs.RunEvent(
            uid=made["metadata"]["uid"],
            namespace=installation.namespace,
            name="nightly",
            generation=1,
            slot_us=now_us,
            trigger="Schedule",
            state=runs.RunState.SUCCEEDED,
            reason="Succeeded",
            at_us=now_us,
            started_us=now_us,
            finished_us=now_us + 250_000,
            settled_us=now_us,
            http_status=204,
            attempts=1,
        )
        held = (await installation.definitions())["nightly"]
        runs_key, ran = _stream_of(installation, held)
        with installation._server.client() as client:
            client.xadd(runs_key, {"o": runs.pack([event])})
            client.execute_command("SPUBLISH", ran, "")
            status = await installation.until(lambda status: "lastRun" in status)
            assert status["runs"]["succeeded"] == 1
            assert status["lastRun"]["httpStatus"] == 204
            deadline = time.monotonic() + 10
            while client.xlen(runs_key):
                assert time.monotonic() < deadline
                await asyncio.sleep(0.02)


async def test_the_watch_comes_back_when_its_rights_do(installation: Installation):
    role = (
        f"/apis/rbac.authorization.k8s.io/v1/namespaces/{installation.namespace}"
        "/rolebindings/operator"
    )
    binding = json.loads(await installation.user.request("GET", role))
    async with installation.leading() as work:
        await installation.create()
        await installation.until_ready(1)
        await installation.user.request("DELETE", role)
        await installation.create("unseen")
        for name in ("resourceVersion", "uid", "creationTimestamp"):
            binding["metadata"].pop(name)
        await asyncio.sleep(0)
        await installation.user.request("POST", role.rpartition("/")[0], binding)
        await installation.until_ready(1, "unseen")
        assert not work.done()
        await installation.until_held("nightly", "unseen")


def _stream_of(installation: Installation, held) -> tuple[str, str]:
    from duepoint.delayqueue import sharding

    layout = installation.queue.layouts.known()
    names = installation.server.shard(sharding.shard_of(held.id, layout.shards))
    return names.runs, names.ran


async def test_two_installations_over_the_same_schedules_are_told(
    installation: Installation, another_installation: Installation
):
    other = another_installation
    async with installation.leading(), other.leading(installation="other"):
        await installation.create()

        generation = 1
        while not any("installation" in one.health.troubles() for one in (installation, other)):
            assert generation < 30
            await installation.until_ready(generation)
            await asyncio.sleep(1)  # both write what they did of it, in any order
            await installation.edit(payload={"edited": generation})
            generation += 1


async def test_an_operator_leaves_the_index_of_another_cluster_alone_and_says_what_to_set(
    installation: Installation,
):
    theirs = layouts.Owner(cluster="uid-of-another", home="uid-of-another-namespace")
    installation.queue.layouts.belong_to(theirs)
    await installation.queue.start()
    await installation.queue.membership.open(4, messages.Epoch(1), by="a/duepoint-operator")
    async with installation.leading():
        await installation.create()
        trouble = await _trouble_of_queue(installation)
        assert "another cluster" in trouble
        assert "redis.prefix" in trouble
        assert await installation.definitions() == {}


async def test_the_second_installation_of_a_cluster_does_not_take_the_index_of_the_first(
    installation: Installation, another_installation: Installation
):
    other = another_installation
    other._prefix = installation._prefix
    async with installation.leading():
        await installation.create()
        await installation.until_ready(1)  # now the index is of the first
        async with other.leading(installation="other"):
            trouble = await _trouble_of_queue(other)
            assert "duepoint-operator looked after it" in trouble
            await installation.edit(payload={"edited": 1})
            await installation.until_ready(2)


async def _trouble_of_queue(installation: Installation) -> str:
    deadline = time.monotonic() + 60
    while (trouble := installation.health.troubles().get("queue", "starting")) == "starting":
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    return trouble


async def test_an_object_nested_without_end_is_stalled_and_hides_no_other(
    installation: Installation,
):
    levels = 3_000
    payload = '{"a":' * levels + "1" + "}" * levels
    body = (
        '{"apiVersion": "duepoint.dev/v1alpha1", "kind": "Schedule", "metadata": {"name": "deep"}, '
        f'"spec": {{"schedule": "@daily", "stream": {{"name": "a"}}, "payload": {payload}}}}}'
    )
    path = schedules.collection(installation.namespace)
    async with installation.leading():
        await installation.create("before")
        await installation.until_ready(1, "before")
        await installation.user.request("POST", path, body.encode())
        await installation.create("after")
        await installation.until_ready(1, "after")
        told = await installation.until_told("InvalidSchedule")
        assert told["regarding"]["name"] == "deep"
        assert "spec.payload: is nested deeper than 100 levels" in told["note"]
    async with installation.leading():  # found by the list, too
        await installation.edit("after", payload={"a": 1})
        await installation.until_ready(2, "after")
