"""Sets that follow their rows, in the object or in a ConfigMap."""

from __future__ import annotations

import asyncio
import json
from itertools import groupby, pairwise

import msgspec
import pytest

from duepoint.controller.schedulesets import setrows
from duepoint.kube import times
from duepoint.schedules.sets import members
from tests.unit.controller.setworld import NAME, SetWorld
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


def count_rows(monkeypatch):
    """The texts of all rows that are read from now on."""
    read, row = [], members.RowReader.row

    def counted(reader, text, **options):
        read.append(text)
        return row(reader, text, **options)

    monkeypatch.setattr(members.RowReader, "row", counted)
    return read


def stored(world):
    uid = world.set_object()["metadata"]["uid"]
    return world.members(uid)


async def test_a_set_is_made_equal_to_rows_of_the_object(world):
    async with world.leader():
        await world.apply_set(rows={"inline": daily("a", "b")})
        await world.clock.settle()
        assert set(stored(world)) == {"a", "b"}
        assert world.record().is_managed
        assert world.set_ready() == ("True", "Armed")
        await world.apply_set(
            rows={"inline": [*daily("b"), {**daily("c")[0], "payload": {"n": 1}}]}
        )
        await world.clock.settle()
        assert set(stored(world)) == {"b", "c"}
        assert json.loads(stored(world)["c"].payload) == {"n": 1}
        rows = world.set_status()["rows"]
        assert rows == {"desired": 2, "applied": 2, "failed": 0, "source": "inline"}


async def test_without_rows_the_members_stay_and_may_be_changed_again(world):
    async with world.leader():
        await world.apply_set(rows={"inline": daily("a")})
        await world.clock.settle()
        await world.apply_set()
        await world.clock.settle()
        assert set(stored(world)) == {"a"}
        assert not world.record().is_managed
        assert "rows" not in world.set_status()


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


async def test_a_config_map_is_followed(world):
    await config_map(world, rows=lines(*daily("a", "b")))
    async with world.leader():
        await world.apply_set(**CONFIG)
        await world.clock.settle()
        assert set(stored(world)) == {"a", "b"}
        await config_map(world, rows=lines(*daily("b", "c")), more=lines(*daily("d")))
        await world.clock.advance(11)
        assert set(stored(world)) == {"b", "c", "d"}
        await world.clock.advance(21)
        writes = world.set_status_writes()
        await world.clock.advance(60)
        assert world.set_status_writes() == writes
        assert world.set_status()["rows"]["source"] == "ConfigMap customers"


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
        assert condition["reason"] == "ConfigMapMissing"
        assert set(stored(world)) == {"a"}
        assert world.set_ready()[0] == "True"


async def test_rows_that_are_no_json_or_stand_twice_are_named_by_their_line(world):
    await config_map(world, rows=lines(*daily("a")) + "\nnot json\n" + lines(*daily("b", "b")))
    async with world.leader():
        await world.apply_set(**CONFIG)
        await world.clock.settle()
        message = world.set_condition("RowsInvalid")["message"]
        assert "rows: line 3" in message
        assert "rows: line 5: the id b stands at rows: line 4, too" in message
        assert set(stored(world)) == {"a"}


async def test_too_many_rows_change_nothing(world):
    await config_map(world, rows=lines(*daily("a", "b", "c")))
    async with world.leader():
        await world.apply_set(limits={"members": 2}, **CONFIG)
        await world.clock.settle()
        assert stored(world) == {}
        assert "has 3 rows; write at most 2" in world.set_condition("RowsInvalid")["message"]


async def test_too_many_rows_are_counted_and_not_read(world, monkeypatch):
    """A ConfigMap is looked at every ten seconds, for as long as it is wrong."""
    read = count_rows(monkeypatch)
    await config_map(world, rows=lines(*daily("a", "b", "c")))
    async with world.leader():
        await world.apply_set(limits={"members": 2}, **CONFIG)
        await world.clock.advance(60)
        assert read == []


async def test_others_get_their_turns_while_many_rows_are_read(world, monkeypatch):
    """Reading them takes seconds, and a leader that is not heard of for ten ends its term."""
    read = count_rows(monkeypatch)
    rows = [{"id": f"m{n}", "schedule": f"{n % 60} {n // 60} * * *"} for n in range(1000)]
    await config_map(world, rows=lines(*rows))
    at_turns = [0]

    async def beat():
        while len(read) < len(rows):
            at_turns.append(len(read))
            await asyncio.sleep(0)

    async with world.leader():
        beating = asyncio.create_task(beat())
        await world.apply_set(**CONFIG)
        await world.clock.settle()
        async with asyncio.timeout(60):
            await beating
    assert max(later - former for former, later in pairwise([*at_turns, len(read)])) <= 200


async def test_a_one_off_whose_time_has_passed_is_not_run_again(world):
    async with world.leader():
        soon = times.time_text(world.clock.now_us() + 30_000_000)
        rows = {"inline": [{"id": "once", "at": soon}]}
        await world.apply_set(rows=rows)
        await world.clock.settle()
        assert set(stored(world)) == {"once"}
        await world.lose_members()  # it has fired and is gone
        await world.clock.advance(60)
        await world.apply_set(rows=rows, suspend=True)
        await world.clock.settle()
        assert stored(world) == {}
        assert world.set_status()["rows"]["failed"] == 0


async def test_rows_come_back_after_an_emptied_redis(world):
    async with world.leader() as term:
        await world.apply_set(rows={"inline": daily("a", "b")})
        await world.clock.advance(11)
        await world.lose_redis()
        term.sets.request()
        await world.clock.advance(21)
        assert set(stored(world)) == {"a", "b"}
        assert world.set_condition("DataLost") is None


async def test_ten_thousand_rows_are_followed_in_parts(world):
    async with world.leader():
        names = [f"r{number}" for number in range(10_000)]
        await world.apply_set(rows={"inline": daily(*names)})
        for _ in range(12):  # more turns than one settling allows
            await world.clock.settle()
        assert len(stored(world)) == 10_000
        await world.apply_set(rows={"inline": daily("r1")})
        await world.clock.advance(5)
        assert set(stored(world)) == {"r1"}


async def test_members_without_rows_are_removed_page_by_page(world):
    """A set that gets rows late may have millions, more than a leader can hold."""
    done = []

    def noted(name, call):
        async def called(*args, **options):
            done.append(name)
            return await call(*args, **options)

        return called

    async with world.leader():
        await world.apply_set()
        await world.put(3_500)
        population = world.queue.members
        population.pages.page = noted("page", population.pages.page)
        population.remove = noted("remove", population.remove)
        await world.apply_set(rows={"inline": daily("m1", "new")})
        await world.clock.settle()
        assert set(stored(world)) == {"m1", "new"}
    assert max(len(list(group)) for name, group in groupby(done) if name == "page") == 1


async def test_sets_of_a_few_rows_do_not_wait_until_large_ones_are_emptied(world, monkeypatch):
    monkeypatch.setattr(setrows, "_MOST_REMOVED", 2_000)
    async with world.leader():
        for name in ("large-1", "large-2"):
            await world.apply_set(name)
            await world.put(6_000, name)
        left = []
        put = world.queue.members.put

        async def noted(record, rows):
            left.extend(
                len(world.members(world.set_object(large)["metadata"]["uid"]))
                for large in ("large-1", "large-2")
                if record.name == NAME
            )
            return await put(record, rows)

        world.queue.members.put = noted
        for name in ("large-1", "large-2", NAME):
            await world.apply_set(name, rows={"inline": daily("a")})
        await world.clock.advance(5)
        assert len(left) == 2
        assert min(left) > 1_000
        await world.clock.advance(30)
        for name in ("large-1", "large-2", NAME):
            assert world.set_ready(name) == ("True", "Armed")
            assert len(world.members(world.set_object(name)["metadata"]["uid"])) == 1


async def test_what_is_kept_of_a_set_is_small(world):
    """Of rows, templates and headers of hundreds of sets nothing stays in memory."""
    container = {"name": "x", "image": "x", "env": [{"name": "LONG", "value": "x" * 100_000}]}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    job = {"spec": {"ttlSecondsAfterFinished": 60, "template": template}}
    headers = [{"name": f"X-{number}", "value": "x" * 1_000} for number in range(30)]
    async with world.leader():
        await world.apply_set("rows", rows={"inline": daily(*(f"r{n}" for n in range(1_000)))})
        await world.apply_set("job", jobTemplate=job, payload="x" * 4_000)
        await world.apply_set("hook", webhook={"url": "https://x.example", "headers": headers})
        await world.clock.advance(5)
        for name in ("rows", "job", "hook"):
            assert world.set_ready(name) == ("True", "Armed")
            state = world.sets.states.get(world.set_object(name)["metadata"]["uid"])
            assert len(msgspec.json.encode((state.seen, state.spec))) < 2_000
        assert world.set_status("job")["target"] == "Job"
        assert world.set_status("hook")["target"] == "Webhook https://x.example"


async def test_rows_of_the_object_are_read_again_where_redis_lost_their_members(world):
    async with world.leader() as term:
        await world.apply_set(rows={"inline": daily("a")})
        await world.clock.advance(20)
        await world.lose_members()
        world.queue.hide("*:sets")
        term.sets.request()
        await world.clock.advance(20)
        assert set(stored(world)) == {"a"}


async def test_a_namespace_of_many_large_sets_keeps_the_rows_of_another_one_not_waiting(world):
    many = daily(*(f"r{number}" for number in range(1_000)))
    async with world.leader():
        for number in range(12):
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
        for number in range(12):
            await world.apply_set(f"loud-{number}", rows={"inline": many})
        await world.apply_set("quiet", namespace="quiet", rows={"inline": daily("b")})
        for _ in range(80):
            await world.clock.advance(1)
    assert "quiet" in written[:5]
    assert set(written) == {"quiet", *(f"loud-{number}" for number in range(12))}


async def test_a_look_at_the_object_while_rows_are_written_does_not_begin_anew(world):
    """The index may be suspect again and again while the servers are slow."""
    async with world.leader() as term:
        put = world.queue.members.put

        async def suspect(record, rows):
            term.sets.request()
            for _ in range(50):
                await world.clock.sleep(0)
            return await put(record, rows)

        world.queue.members.put = suspect
        await world.apply_set(rows={"inline": daily(*(f"r{number}" for number in range(1_200)))})
        await world.clock.advance(5)
        for _ in range(10):
            await world.clock.settle()  # reading and writing give others their turns
        await world.clock.advance(5)
        assert world.set_ready() == ("True", "Armed")
        assert len(stored(world)) == 1_200
