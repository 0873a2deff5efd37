"""A term of the operator on real servers."""

from __future__ import annotations

import asyncio
import json
import time

from duepoint.delayqueue import layouts, messages
from duepoint.kube import schedules
from tests.integration.controller.conftest import Installation


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


async def test_an_emptied_redis_is_cut_as_it_was_though_the_settings_say_otherwise(
    installation: Installation,
):
    async with installation.leading():
        await installation.create()
        await installation.until_ready(1)
    note = json.loads(installation.lease_notes["duepoint.dev/queue-layout"])
    assert (note["number"], note["shards"]) == (1, 4)
    installation.empty_redis()
    async with installation.leading(shards=16):
        await installation.until_held("nightly")
        assert (await installation.queue.layouts.read()).shards == 4


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
            assert "duepoint-operator used this index" in trouble
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
        told = await installation.until_told("InvalidSpec")
        assert told["regarding"]["name"] == "deep"
        assert "spec.payload: is nested deeper than 100 levels" in told["note"]
    async with installation.leading():  # found by the list, too
        await installation.edit("after", payload={"a": 1})
        await installation.until_ready(2, "after")
