"""Sets that follow their rows, in the object or in a ConfigMap."""

from __future__ import annotations

import json

import pytest

from tests.unit.controller.setworld import SetWorld
from tests.unit.controller.world import NAMESPACE

CONFIG = {"rows": {"configMapRef": {"name": "customers"}}}


@pytest.fixture
def world():
    return SetWorld()


async def config_map(world, **data):
    manifest = {"metadata": {"namespace": NAMESPACE, "name": "customers"}, "data": data}
    await world.api.apply("configmaps", manifest)


def lines(*rows):
    return "\n".join(json.dumps(row) for row in rows) + "\n"


def daily(*names):
    return [{"id": name, "schedule": "0 9 * * *"} for name in names]


def stored(world):
    uid = world.set_object()["metadata"]["uid"]
    return world.members(uid)


async def test_a_wrong_row_is_named_and_its_member_stays_as_it_was(world):
    async with world.leader():
        await world.apply_set(rows={"inline": daily("a", "b")})
        await world.clock.settle()
        wrong = {"id": "a", "schedule": "61 * * * *"}
        await world.apply_set(rows={"inline": [wrong, *daily("c")]})
        await world.clock.settle()
        assert set(stored(world)) == {"a", "c"}
        condition = world.set_condition("RowsInvalid")
        assert condition["status"] == "True"
        assert "spec.rows.inline[0]: schedule" in condition["message"]
        assert world.set_status()["rows"]["failed"] == 1
        assert "RowsInvalid" in [event.reason for event in world.news]
        await world.apply_set(rows={"inline": daily("a", "c")})
        await world.clock.settle()
        assert world.set_condition("RowsInvalid") is None


async def test_a_missing_config_map_or_key_leaves_the_members_and_says_so(world):
    await config_map(world, rows=lines(*daily("a")))
    async with world.leader():
        await world.apply_set(**CONFIG)
        await world.clock.settle()
        await world.apply_set(rows={"configMapRef": {"name": "customers", "key": "other"}})
        await world.clock.settle()
        assert "has no key other" in world.set_condition("RowsInvalid")["message"]
        await world.apply_set(rows={"configMapRef": {"name": "nowhere"}})
        await world.clock.settle()
        condition = world.set_condition("RowsInvalid")
        assert condition["reason"] == "RowsInvalid"
        assert set(stored(world)) == {"a"}
        assert world.set_ready()[0] == "True"


async def test_rows_that_are_no_json_or_stand_twice_are_named_by_their_line(world):
    await config_map(world, rows=lines(*daily("a")) + "\nnot json\n" + lines(*daily("b", "b")))
    async with world.leader():
        await world.apply_set(**CONFIG)
        await world.clock.settle()
        message = world.set_condition("RowsInvalid")["message"]
        assert "rows: line 3" in message
        assert "rows: line 5: the id b is also at rows: line 4" in message
        assert set(stored(world)) == {"a"}


async def test_a_namespace_of_many_large_sets_keeps_the_rows_of_another_one_not_waiting(world):
    many = daily(*(f"r{number}" for number in range(1_000)))
    async with world.leader():
        for number in range(6):
            await world.apply_set(f"loud-{number}", rows={"inline": daily("a")})
        await world.apply_set("quiet", namespace="quiet", rows={"inline": daily("a")})
        await world.clock.advance(5)
        written = []
        put = world.queue.members.put

        async def noted(record, rows):
            written.append(record.name)
            for _ in range(200):
                await world.clock.sleep(0)
            return await put(record, rows)

        world.queue.members.put = noted
        for number in range(6):
            await world.apply_set(f"loud-{number}", rows={"inline": many})
        before = len(written)
        await world.apply_set("quiet", namespace="quiet", rows={"inline": daily("b")})
        for _ in range(40):
            await world.clock.advance(1)
    assert "quiet" in written[before : before + 8]  # what two workers have begun, and one more
    assert set(written) == {"quiet", *(f"loud-{number}" for number in range(6))}


async def test_too_many_rows_change_nothing(world):
    await config_map(world, rows=lines(*daily("a", "b", "c")))
    async with world.leader():
        await world.apply_set(limits={"members": 2}, **CONFIG)
        await world.clock.settle()
        assert stored(world) == {}
        assert "has 3 rows; write at most 2" in world.set_condition("RowsInvalid")["message"]
