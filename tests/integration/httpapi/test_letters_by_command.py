"""``duepoint dlq`` of somebody who has no Redis: through the HTTP API."""

from __future__ import annotations

import asyncio
import json

import pytest
from click.testing import CliRunner

from duepoint import cli
from tests.support import dashboardscene, givenup
from tests.support.dashboardscene import a_schedule, make


@pytest.fixture
async def scene(duepoint_plane, kube_namespace, own_server, tmp_path):
    async with dashboardscene.open_scene(
        duepoint_plane, kube_namespace, own_server, tmp_path
    ) as opened:
        yield opened


async def dlq(scene, *words, as_="editor", code=0):
    done = await asyncio.to_thread(
        CliRunner().invoke, cli.commands, ["dlq", *words, "-n", scene.namespace, "-o", "json"],
        env={
            "DUEPOINT_API_URL": f"http://127.0.0.1:{scene.port}",
            "DUEPOINT_API_TOKEN": scene.tokens[as_], "DUEPOINT_REDIS_URL": None,
        },
    )  # fmt: skip
    assert done.exit_code == code, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()] or done.stderr


async def test_letters_of_a_namespace_are_listed_and_replayed_without_redis(scene):
    uids = make(scene, a_schedule("report"), a_schedule("bill"))
    await givenup.give_up(scene.harness, scene.namespace, uids)
    listed = await dlq(scene, "list", as_="viewer")
    assert {row["schedule"] for row in listed} == {"report", "bill"}
    assert {row["message"] for row in listed} == {"connection refused"}
    (wished,) = await dlq(scene, "replay", "-s", "report", "--dry-run")
    assert (wished["schedule"], wished["result"]) == ("report", "would be replayed")
    (refused,) = await dlq(scene, "replay", "-s", "report", "--yes", as_="viewer", code=1)
    assert refused["why"] == "you may not run its Schedule: ask for the verb run on it"
    (done,) = await dlq(scene, "replay", "-s", "report", "--yes")
    assert done == {**wished, "result": "replayed"}
    (left,) = await dlq(scene, "list")
    assert left["schedule"] == "bill"
    assert "purged in Redis" in await dlq(scene, "purge", "-s", "bill", "--yes", code=2)
