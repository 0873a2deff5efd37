"""ScheduleSets through an operator's term, on a real API server and a real Valkey."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time

import pytest

from duepoint import errors
from duepoint.delayqueue.members import values
from tests.integration.controller.conftest import Installation, condition
from tests.integration.controller.setscene import YEARLY, SetScene


@pytest.fixture
def scene(installation: Installation) -> SetScene:
    return SetScene(installation)


async def test_rows_of_a_config_map_are_followed_and_come_back_after_a_loss(
    installation: Installation, scene: SetScene
):
    path = f"/api/v1/namespaces/{scene.namespace}/configmaps"
    rows = [{"id": f"c{number}", "schedule": "0 0 1 1 *"} for number in range(1_000)]
    data = {"rows.ndjson": "\n".join(json.dumps(row) for row in rows)}
    await scene.user.request("POST", path, {"metadata": {"name": "customers"}, "data": data})
    async with installation.leading():
        await scene.create(rows={"configMapRef": {"name": "customers"}})
        status = await scene.until_ready(1)
        assert status["rows"]["applied"] == 1_000
        assert await scene.counted() == 1_000
        assert (await scene.record()).is_managed
        data = {"rows.ndjson": json.dumps(rows[5]) + "\n" + json.dumps({"id": "x", "at": "noon"})}
        await scene.user.request(
            "PATCH",
            f"{path}/customers",
            {"data": data},
            content_type="application/merge-patch+json",
        )
        status = await scene.until(lambda status: condition(status, "RowsInvalid") is not None)
        assert "rows.ndjson: line 2: at" in condition(status, "RowsInvalid")["message"]
        assert await scene.counted() == 1
        installation.empty_redis()
        deadline = time.monotonic() + 60
        found = 0
        while found != 1:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)
            with contextlib.suppress(errors.DuepointError):  # the index is made anew
                found = await scene.counted()


class _Writers:
    """Programs that write members as the HTTP API does, with a record that may be old.

    Attributes:
        acknowledged: ids whose write was answered as stored.
    """

    def __init__(self, scene: SetScene) -> None:
        self._scene = scene
        self.acknowledged: set[str] = set()
        self._refused = asyncio.Event()
        self._accepted = asyncio.Event()

    async def run(self, number: int) -> None:
        loop = asyncio.get_running_loop()
        record, read_at, count = await self._scene.record(), loop.time(), 0
        while True:
            if loop.time() - read_at > 0.3 * number:
                record, read_at = await self._scene.record(), loop.time()
            await asyncio.sleep(0.002)
            if record.is_managed:
                continue  # as the API refuses it
            count += 1
            row = values.MemberWrite(id=f"w{number}-{count}", rule=YEARLY)
            (answer,) = await self._scene.queue.members.put(record, [row])
            if answer.outcome is values.Outcome.CREATED:
                self.acknowledged.add(row.id)
                self._accepted.set()
            else:
                assert answer.outcome is values.Outcome.MANAGED
                self._refused.set()

    async def until(self, *, refused: bool) -> None:
        """One more write was refused, or accepted."""
        event = self._refused if refused else self._accepted
        event.clear()
        await asyncio.wait_for(event.wait(), 60)


async def _members(scene: SetScene) -> set[str]:
    record = await scene.record()
    found, cursor = set(), ""
    while True:
        page = await scene.queue.members.pages.page(record, cursor, limit=1_000)
        found |= {member.id for member in page.members}
        if not (cursor := page.cursor):
            return found


async def test_no_write_survives_that_rows_do_not_name_and_none_is_lost_once_they_are_gone(
    installation: Installation, scene: SetScene
):
    rows = [{"id": f"r{number}", "schedule": "0 0 1 1 *"} for number in range(50)]
    named = {row["id"] for row in rows}
    async with installation.leading(), asyncio.TaskGroup() as group:
        await scene.create()
        await scene.until_ready(1)
        writers = _Writers(scene)
        writing = [group.create_task(writers.run(number)) for number in (1, 2, 3)]
        for generation in (2, 5, 8):
            await writers.until(refused=False)
            await scene.edit(rows={"inline": rows})
            await writers.until(refused=True)  # with a record of before
            await scene.until_ready(generation)
            assert await _members(scene) == named
            await scene.edit(rows={"inline": rows[:generation]})
            await scene.edit(rows=None)  # while the leader may be following the edit before
            writers.acknowledged.clear()
            await writers.until(refused=False)
            await scene.until_ready(generation + 2)
            acknowledged = set(writers.acknowledged)
            assert acknowledged <= await _members(scene)
        for one in writing:
            one.cancel()
        await asyncio.gather(*writing, return_exceptions=True)
