"""Members of a ScheduleSet: they are stored, refused, found, listed and counted."""

from __future__ import annotations

import asyncio
import uuid

import msgspec
import pytest

from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import keys
from duepoint.delayqueue.members import values
from duepoint.delayqueue.members.values import Outcome
from duepoint.schedules import definition, points
from duepoint.schedules import rule as rules
from duepoint.schedules.sets import setrecord, setspec
from tests.support import queueing
from tests.support.redisserver import EACH_KIND

BLOB = b'{"target":{"kind":"stream","name":"ticks"}}'
DAILY = rules.Rule(timing=rules.Timing(schedules=("0 9 * * *",)))
ONCE = rules.Rule(timing=rules.Timing(schedules=rules.ONCE))


@pytest.fixture(params=EACH_KIND)
def server(request, shared_servers):
    return shared_servers(request.param)


def a_set(queue, **changes):
    fields = {
        "namespace": "shop",
        "name": "reminders",
        "uid": str(uuid.uuid4()),
        "generation": 1,
        "state": setrecord.SetState.READY,
        "spread": 0,
        "target": queue.signed_blobs.digest("shop", BLOB),
        "settings": setspec.SetSettings(),
        **changes,
    }
    return setrecord.SetRecord(**fields)


@pytest.fixture
async def stored_set(harness):
    made = a_set(harness.queue)
    await harness.queue.sets.store(made, BLOB, queueing.EPOCH)
    return made


def a_write(name="a", rule=DAILY, **fields):
    return values.MemberWrite(id=name, rule=rule, **fields)


async def outcomes(harness, set_, *writes):
    return [one.outcome for one in await harness.queue.members.put(set_, writes)]


async def test_a_set_is_read_back_as_it_was_stored(harness, stored_set):
    assert await harness.queue.sets.read("shop", "reminders") == stored_set
    assert await harness.queue.sets.all() == [stored_set]
    assert await harness.queue.sets.read("shop", "others") is None


async def test_a_member_is_read_back_as_it_was_written(harness, stored_set):
    payload = b'{"customer":7}'
    (written,) = await harness.queue.members.put(stored_set, [a_write(payload=payload)])
    (found,) = await harness.queue.members.lookups.get(stored_set, ["a"])
    assert (found.id, found.tag, found.rule, found.payload) == ("a", written.tag, DAILY, payload)
    assert found.due_us == written.due_us > harness.now_us()
    assert (found.state, found.claimed) == (definition.State.ARMED, False)


async def test_a_new_timing_counts_after_what_the_former_one_ran(harness, stored_set, monkeypatch):
    each, other = (
        rules.Rule(timing=rules.Timing(schedules=(text,)))
        for text in ("* * * * * *", "*/2 * * * * *")
    )
    await harness.queue.members.put(stored_set, [a_write(rule=each)])
    now_us = harness.now_us()
    times = iter((now_us - 5_000_000, now_us - 4_000_000))  # it began and was sent; a clock behind
    monkeypatch.setattr(harness.queue.index.clock, "now_us", lambda: next(times, now_us))
    (written,) = await harness.queue.members.put(stored_set, [a_write(rule=other)])
    assert (written.outcome, written.due_us > now_us) == (Outcome.REPLACED, True)


async def test_another_payload_leaves_the_next_slot_alone(harness, stored_set):
    (first,) = await harness.queue.members.put(stored_set, [a_write()])
    (again,) = await harness.queue.members.put(stored_set, [a_write()])
    assert again == msgspec.structs.replace(first, outcome=Outcome.UNCHANGED)
    (second,) = await harness.queue.members.put(stored_set, [a_write(payload=b"1")])
    assert (second.outcome, second.due_us) == (Outcome.REPLACED, first.due_us)
    assert second.tag != first.tag
    (found,) = await harness.queue.members.lookups.get(stored_set, ["a"])
    assert (found.payload, found.due_us) == (b"1", first.due_us)


async def test_another_expression_starts_anew(harness, stored_set):
    await harness.queue.members.put(stored_set, [a_write()])
    (before,) = await harness.queue.members.lookups.get(stored_set, ["a"])
    hourly = rules.Rule(timing=rules.Timing(schedules=("0 * * * *",)))
    (second,) = await harness.queue.members.put(stored_set, [a_write(rule=hourly)])
    (found,) = await harness.queue.members.lookups.get(stored_set, ["a"])
    assert (found.rule, found.due_us) == (hourly, second.due_us)
    assert (found.uid, found.created_us) == (before.uid, before.created_us)
    assert (await harness.queue.sets.counts(stored_set)).armed == 1


async def test_a_one_off_is_due_at_its_instant(harness, stored_set):
    at_us = harness.now_us() + 3_600_000_001
    (written,) = await harness.queue.members.put(
        stored_set, [a_write(rule=ONCE, at_us=at_us, payload=b"[]")]
    )
    (found,) = await harness.queue.members.lookups.get(stored_set, ["a"])
    assert (written.due_us, found.due_us, found.at_us) == (at_us, at_us, at_us)


async def test_a_suspended_member_has_no_due_until_it_is_resumed(harness, stored_set):
    timing = msgspec.structs.replace(DAILY.timing, suspend=True)
    suspended = msgspec.structs.replace(DAILY, timing=timing)
    (written,) = await harness.queue.members.put(stored_set, [a_write(rule=suspended)])
    (found,) = await harness.queue.members.lookups.get(stored_set, ["a"])
    assert (written.due_us, found.due_us, found.state) == (None, None, definition.State.SUSPENDED)
    (resumed,) = await harness.queue.members.put(stored_set, [a_write()])
    assert resumed.due_us > harness.now_us()


async def test_rows_of_one_call_are_taken_in_their_order(harness, stored_set):
    writes = [a_write(payload=b"1"), a_write("b"), a_write(payload=b"2"), a_write(payload=b"2")]
    answers = await outcomes(harness, stored_set, *writes)
    assert answers == [Outcome.CREATED, Outcome.CREATED, Outcome.REPLACED, Outcome.UNCHANGED]
    (found,) = await harness.queue.members.lookups.get(stored_set, ["a"])
    assert found.payload == b"2"


async def test_a_condition_wants_no_member_or_the_tag_that_stands_there(harness, stored_set):
    write = a_write("b", condition=values.IfAbsent())
    answers = await outcomes(harness, stored_set, write, write)
    assert answers == [Outcome.CREATED, Outcome.PRECONDITION]
    refused = a_write(condition=values.IfMatch("00000000"), payload=b"1")
    assert await outcomes(harness, stored_set, refused) == [Outcome.PRECONDITION]
    (first,) = await harness.queue.members.put(stored_set, [a_write()])
    (second,) = await harness.queue.members.put(stored_set, [refused])
    assert (second.outcome, second.tag) == (Outcome.PRECONDITION, first.tag)
    matching = a_write(condition=values.IfMatch(first.tag), payload=b"1")
    assert await outcomes(harness, stored_set, matching) == [Outcome.REPLACED]


async def test_a_removed_member_is_gone_with_its_points(harness, stored_set):
    await harness.queue.members.put(stored_set, [a_write(), a_write("b")])
    wanted = [values.MemberRemoval(id=name) for name in ("a", "a", "c")]
    answers = await harness.queue.members.remove(stored_set, wanted)
    assert [one.outcome for one in answers] == [Outcome.REMOVED, Outcome.ABSENT, Outcome.ABSENT]
    assert await harness.queue.members.lookups.get(stored_set, ["a"]) == [None]
    counted = await harness.queue.sets.counts(stored_set)
    assert (counted.members, counted.armed) == (1, 1)


async def test_an_id_created_again_is_another_life(harness, stored_set):
    await harness.queue.members.put(stored_set, [a_write()])
    (first,) = await harness.queue.members.lookups.get(stored_set, ["a"])
    await harness.queue.members.remove(stored_set, [values.MemberRemoval(id="a")])
    await harness.queue.members.put(stored_set, [a_write()])
    (second,) = await harness.queue.members.lookups.get(stored_set, ["a"])
    assert second.uid != first.uid


async def test_two_names_under_one_id_are_told_apart(harness, stored_set, monkeypatch):
    await harness.queue.members.put(stored_set, [a_write()])
    real = points.member_id(stored_set.identity, "a")
    low = int.from_bytes(real[6:])
    bucket = keys.place_of(real, keys.BUCKETS)
    monkeypatch.setattr(
        "duepoint.delayqueue.members.rows.Ids.of", lambda _self, _name: (real, low, bucket)
    )
    assert await outcomes(harness, stored_set, a_write("b")) == [Outcome.COLLISION]
    (removal,) = await harness.queue.members.remove(stored_set, [values.MemberRemoval(id="b")])
    assert removal.outcome is Outcome.ABSENT


async def test_a_set_that_is_being_deleted_takes_no_members(harness, stored_set):
    await harness.queue.members.put(stored_set, [a_write()])
    deleting = msgspec.structs.replace(stored_set, state=setrecord.SetState.DELETING)
    await harness.queue.sets.store(deleting, BLOB, queueing.EPOCH)
    assert await outcomes(harness, deleting, a_write("b")) == [Outcome.DELETING]


async def test_a_caller_who_does_not_know_that_a_set_has_rows_changes_no_member(
    harness, stored_set
):
    """Its knowledge is up to a second old, and older if its process was paused."""
    await harness.queue.members.put(stored_set, [a_write()])
    managed = msgspec.structs.replace(stored_set, is_managed=True)
    await harness.queue.sets.store(managed, BLOB, queueing.EPOCH)
    assert await outcomes(harness, stored_set, a_write("b"), a_write()) == [Outcome.MANAGED] * 2
    removals = [values.MemberRemoval(id="a"), values.MemberRemoval(id="c")]
    removed = await harness.queue.members.remove(stored_set, removals)
    assert [one.outcome for one in removed] == [Outcome.MANAGED] * 2
    assert await outcomes(harness, managed, a_write("b"), a_write()) == [
        Outcome.CREATED,
        Outcome.UNCHANGED,
    ]


async def _all(harness, set_, **options):
    found, cursor = [], ""
    while True:
        page = await harness.queue.members.pages.page(set_, cursor, **options)
        assert len(page.members) <= options["limit"]
        found += [one.id for one in page.members]
        cursor = page.cursor
        if not cursor:
            return found


@pytest.mark.parametrize("spread", [0, 3])
async def test_pages_hold_every_member_once(harness, spread):
    made = a_set(harness.queue, spread=spread)
    await harness.queue.sets.store(made, BLOB, queueing.EPOCH)
    names = [f"member-{number}" for number in range(300)]
    await harness.queue.members.put(made, [a_write(name) for name in names])
    assert sorted(await _all(harness, made, limit=7)) == sorted(names)
    assert sorted(await _all(harness, made, limit=1_000)) == sorted(names)


async def test_pages_of_a_prefix_and_of_one_set_hold_no_other(harness, stored_set):
    other = a_set(harness.queue, name="others")
    await harness.queue.sets.store(other, BLOB, queueing.EPOCH)
    await harness.queue.members.put(other, [a_write("a-0")])
    await harness.queue.members.put(stored_set, [a_write(f"{c}-{n}") for c in "ab" for n in "123"])
    found = await _all(harness, stored_set, limit=2, prefix="a-")
    assert sorted(found) == ["a-1", "a-2", "a-3"]


async def test_a_cursor_of_another_set_is_refused(harness, stored_set):
    await harness.queue.members.put(stored_set, [a_write(str(n)) for n in range(10)])
    page = await harness.queue.members.pages.page(stored_set, limit=1)
    other = a_set(harness.queue, name="others")
    for set_, cursor in ((other, page.cursor), (stored_set, page.cursor[:-3])):
        with pytest.raises(queue_errors.InvalidCursor):
            await harness.queue.members.pages.page(set_, cursor, limit=1)


async def test_what_is_due_in_a_window_comes_by_due(harness, stored_set):
    begin = harness.now_us() + 3_600_000_000
    writes = [a_write(f"m{n}", rule=ONCE, at_us=begin + n // 2) for n in range(20)]
    await harness.queue.members.put(stored_set, writes)
    found, cursor = [], ""
    while True:
        page = await harness.queue.members.pages.due(
            stored_set, begin + 1, begin + 9, limit=3, cursor=cursor
        )
        found += page.members
        cursor = page.cursor
        if not cursor:
            break
    assert sorted(one.id for one in found) == sorted(f"m{n}" for n in range(2, 18))
    assert [one.due_us for one in found] == sorted(one.due_us for one in found)


@pytest.mark.parametrize("limit", [7, 400])
async def test_thousands_that_are_due_at_one_instant_are_all_listed_once(
    harness, stored_set, limit
):
    at_us = harness.now_us() + 3_600_000_000
    writes = [a_write(f"m{n}", rule=ONCE, at_us=at_us) for n in range(1_500)]
    writes.append(a_write("later", rule=ONCE, at_us=at_us + 1))
    await harness.queue.members.put(stored_set, writes)
    found, cursor = [], ""
    while True:
        page = await harness.queue.members.pages.due(
            stored_set, 0, at_us + 2, limit=limit, cursor=cursor
        )
        found += [one.id for one in page.members]
        if cursor and len(found) < 100:  # the last of a page may be gone before the next
            gone = values.MemberRemoval(id=found[-1])
            await harness.queue.members.remove(stored_set, [gone])
        cursor = page.cursor
        if not cursor:
            break
    assert len(found) == len(set(found))
    assert set(found) == {write.id for write in writes}


async def test_counts_say_what_is_next(harness, stored_set):
    nothing = await harness.queue.sets.counts(stored_set)
    assert (nothing.members, nothing.armed, nothing.next_due_us) == (0, 0, None)
    at_us = harness.now_us() + 60_000_000
    writes = [a_write(rule=ONCE, at_us=at_us + 1), a_write("b", rule=ONCE, at_us=at_us)]
    await harness.queue.members.put(stored_set, writes)
    counted = await harness.queue.sets.counts(stored_set)
    assert (counted.members, counted.armed, counted.in_flight) == (2, 2, 0)
    assert counted.next_due_us == at_us
    assert counted.oldest_overdue_us is None


async def test_the_members_of_a_suspended_set_are_not_claimed(harness, stored_set):
    past = harness.now_us() - 1_000_000
    await harness.queue.members.put(stored_set, [a_write(rule=ONCE, at_us=past)])
    suspended = msgspec.structs.replace(stored_set, state=setrecord.SetState.SUSPENDED)
    await harness.queue.sets.store(suspended, BLOB, queueing.EPOCH)
    assert await harness.claim_all() == []
    assert await outcomes(harness, suspended, a_write("b", rule=ONCE, at_us=past)) == [
        Outcome.CREATED
    ]
    assert await harness.claim_all() == []
    await harness.queue.sets.store(stored_set, BLOB, queueing.EPOCH)
    claims = await harness.claim_all()
    assert sum(len(claim.points) for claim in claims) == 2


async def test_a_member_that_is_due_earlier_wakes_a_sleeping_worker(harness, stored_set):
    await harness.queue.members.put(stored_set, [a_write(f"later-{n}") for n in range(40)])
    wakeups = harness.queue.wakeups()
    await wakeups.start()
    seen = await wakeups.wait_until_due(5.0)
    while seen:  # a subscription that is confirmed later rings once more
        for answer in await harness.queue.claims.claim(seen, worker="sleeper"):
            wakeups.note(answer)
        try:
            async with asyncio.timeout(0.5):
                seen = await wakeups.wait_until_due(60.0)
        except TimeoutError:
            break
    sleeping = asyncio.create_task(wakeups.wait_until_due(60.0))
    await harness.queue.members.put(stored_set, [a_write("now", ONCE, at_us=harness.now_us())])
    async with asyncio.timeout(60):
        (shard,) = await sleeping
    (answer,) = await harness.queue.claims.claim([shard], worker="sleeper")
    assert answer.claim is not None
    assert len(answer.claim.points) == 1
    await wakeups.close()


@pytest.mark.parametrize("kind", EACH_KIND)
async def test_a_claim_is_shared_out_by_namespace_however_many_sets_each_has(
    kind, shared_servers, key_prefix
):
    harness = await queueing.redis_harness(shared_servers(kind).url, key_prefix, shards=1)
    queue, now_us = harness.queue, harness.now_us()
    for number in range(9):
        of_shop = a_set(queue, name=f"set-{number}")
        await queue.sets.store(of_shop, BLOB, queueing.EPOCH)
        overdue = [a_write(f"m{n}", ONCE, at_us=now_us - 60_000_000) for n in range(10)]
        await queue.members.put(of_shop, overdue)
    for number in range(30):
        await harness.arm(
            namespace="bank", name=f"n{number}", uid=f"of-a-neighbour-{number}", due_in=-1
        )
    neighbours = {points.schedule_id(f"of-a-neighbour-{n}", "bank") for n in range(30)}
    (answer,) = await harness.look(batch=40)
    claimed = [point.schedule_id for point in answer.claim.points]
    assert (len(claimed), len(neighbours.intersection(claimed))) == (40, 20)
    (answer,) = await harness.look(batch=40)
    claimed = [point.schedule_id for point in answer.claim.points]
    assert (len(claimed), len(neighbours.intersection(claimed))) == (40, 10)
    await harness.close()
