"""What is counted of dead letters stays right, whoever takes one away and whoever has buried it."""

from __future__ import annotations

import pytest

from duepoint.delayqueue import quotas
from duepoint.delayqueue.messages import DeadLetter, Settlement
from tests.support import queueing


@pytest.fixture
async def harness(redis_server, key_prefix):
    quota = quotas.Quotas(letters=5, letter_bytes=1_000_000)
    made = await queueing.redis_harness(redis_server.url, key_prefix, shards=1, quotas=quota)
    yield made
    await made.close()


async def bury(harness, *texts: str, namespace: str = "team") -> None:
    for text in texts:
        await harness.arm(namespace=namespace, name=f"s-{text}", due_in=-1)
        (claim,) = await harness.claim_all()
        entry = {"namespace": namespace, "message": text, "slot_us": "1767225600000000"}
        entry |= {"uid": f"uid-of-s-{text}"}
        letter = DeadLetter(member=b"", entry=entry)
        chain = queueing.moved(claim.points[0], 3_600)
        await harness.queue.settlements.settle(claim, Settlement(dead=(letter,), chains=(chain,)))


async def letters(harness) -> list:
    return [letter async for letter in harness.queue.dead_letters.all()]


async def texts(harness) -> list[str]:
    return [letter.entry["message"] for letter in await letters(harness)][::-1]


async def counted(harness) -> tuple[int, dict[bytes, bytes]]:
    """How many letters are counted, and the sums that say something."""
    names = harness.server.shard((await harness.shards())[0])
    client = harness.server.redis
    order = await client.zlexcount(names.letters, "(", "+")
    sums = await client.hgetall(names.letter_sums)
    return order, {name: value for name, value in sums.items() if name}


async def test_purged_letters_are_not_counted_any_more(harness):
    await bury(harness, "1", "2", "3")
    assert await harness.queue.dead_letters.purge(await letters(harness)) == 3
    assert await counted(harness) == (0, {})
    await bury(harness, "4", "5", "6", "7", "8")
    assert await texts(harness) == ["4", "5", "6", "7", "8"]


async def test_a_letter_that_is_purged_twice_is_gone_once(harness):
    await bury(harness, "1")
    found = await letters(harness)
    assert [await harness.queue.dead_letters.purge(found) for _ in range(2)] == [1, 0]
    assert await counted(harness) == (0, {})


async def test_a_replayed_letter_is_not_counted_any_more(harness):
    from duepoint.delayqueue import deadletters

    await bury(harness, "1", "2")
    newest = (await letters(harness))[0]
    slot = deadletters.slot_of(newest)
    sight = await harness.queue.upcoming.schedule_view("team", uid=slot.uid)
    answer = await harness.queue.dead_letters.replay(newest, slot, (sight.shard, sight.known), 1)
    assert answer is deadletters.Replayed.APPLIED
    count, sums = await counted(harness)
    assert count == 1
    assert await texts(harness) == ["1"]
    await harness.queue.dead_letters.purge(await letters(harness))
    assert (await counted(harness))[1] == {}
    assert sums[b"b:team"]
