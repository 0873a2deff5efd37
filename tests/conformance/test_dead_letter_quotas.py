"""The quota of dead letters: a lane's bytes are bounded, and evict no other lane's letters."""

from __future__ import annotations

import pytest

from duepoint.delayqueue import quotas
from duepoint.delayqueue.messages import DeadLetter, Settlement
from tests.support import queueing

#: With one shard a shard's share is the quota.
QUOTAS = quotas.Quotas(letter_bytes=4_000)


@pytest.fixture
def queue_options():
    return {"shards": 1, "quotas": QUOTAS}


async def bury(harness, namespace: str, *texts: str, **more: str) -> None:
    """Store dead letters of this namespace, each with a text of its own."""
    name = f"of-{namespace}"
    await harness.arm(namespace=namespace, name=name, due_in=-1)
    letters = [
        DeadLetter(
            member=b"", entry={"namespace": namespace, "name": name, "message": text, **more}
        )
        for text in texts
    ]
    for claim in await harness.claim_all():
        await harness.queue.settlements.settle(
            claim,
            Settlement(dead=tuple(letters), finished=tuple(point.member for point in claim.points)),
        )
    await harness.queue.writer.remove(
        harness.definition(namespace=namespace, name=name).id,
        f"uid-of-{name}",
        namespace,
        queueing.EPOCH,
    )


async def kept(harness, namespace: str) -> list[str]:
    """Return the texts of its dead letters, oldest first."""
    found = harness.queue.dead_letters.newest()
    letters = [letter.entry async for letter in found]
    return [entry["message"] for entry in letters[::-1] if entry["namespace"] == namespace]


async def test_dead_letters_take_a_bounded_number_of_bytes(harness):
    await bury(harness, "quiet", "a")
    await bury(harness, "noisy", "1" * 1_500, "2" * 1_500, "3" * 1_500, "4" * 1_500)
    assert [text[0] for text in await kept(harness, "noisy")] == ["2", "3", "4"]
    assert await kept(harness, "quiet") == ["a"]


async def test_one_letter_that_is_larger_than_all_may_be_is_kept(harness):
    await bury(harness, "noisy", "1", "2" * 9_000)
    assert [text[0] for text in await kept(harness, "noisy")] == ["2"]
    await bury(harness, "noisy", "3")
    assert [text[0] for text in await kept(harness, "noisy")] == ["2", "3"]


async def test_letters_of_members_leave_those_of_schedules_alone(harness):
    await bury(harness, "noisy", "a", "b")
    await bury(harness, "noisy", *(str(number) * 900 for number in range(1, 9)), set_id="a/set")
    assert [text[0] for text in await kept(harness, "noisy")] == ["a", "b", *"5678"]


async def test_letters_that_are_purged_make_room(harness):
    await bury(harness, "noisy", "1" * 1_500, "2" * 1_500, "3" * 1_500)
    found = [letter async for letter in harness.queue.dead_letters.newest()]
    assert [await harness.queue.dead_letters.purge(found[:1]) for _ in range(2)] == [1, 0]
    await bury(harness, "noisy", "4" * 1_500)
    assert [text[0] for text in await kept(harness, "noisy")] == ["1", "2", "4"]
    assert (await harness.queue.inspection.totals()).dead == 3


async def test_two_namespaces_in_many_shards_have_each_their_own_quota(shared_servers, key_prefix):
    quota = quotas.Quotas(letter_bytes=8_000)  # two letters in each of four shards
    made = await queueing.redis_harness(
        shared_servers("valkey").url, key_prefix, shards=8, quotas=quota
    )
    for namespace, count in (("quiet", 2), ("noisy", 40)):
        for number in range(count):
            await bury_one(made, namespace, f"s-{number}", message="x" * 800)
    held = [letter.entry["namespace"] async for letter in made.queue.dead_letters.newest()]
    assert held.count("quiet") == 2
    assert 4 <= held.count("noisy") <= 12
    await made.close()


async def test_pages_of_a_namespace_go_on_where_the_last_one_ended(shared_servers, key_prefix):
    made = await queueing.redis_harness(shared_servers("valkey").url, key_prefix, shards=8)
    for number in range(7):
        await bury_one(made, "team", f"s-{number}")
        await bury_one(made, "other", f"s-{number}")
    page = await made.queue.dead_letters.page("team", limit=3)
    found = page.letters
    while page.cursor:
        page = await made.queue.dead_letters.page("team", limit=3, cursor=page.cursor)
        found += page.letters
    assert {letter.entry["name"] for letter in found} == {f"s-{number}" for number in range(7)}
    assert len(found) == 7
    assert [letter.given_up_us for letter in found] == sorted(
        (letter.given_up_us for letter in found), reverse=True
    )
    everyone = [letter.id async for letter in made.queue.dead_letters.newest()]
    assert len(everyone) == len(set(everyone)) == 14
    await made.close()


async def bury_one(harness, namespace: str, name: str, /, **more: str) -> None:
    await harness.arm(namespace=namespace, name=name)
    (claim,) = await harness.claim_all()
    entry = {"namespace": namespace, "name": name, "message": name, **more}
    letter = DeadLetter(member=claim.points[0].member, entry=entry)
    await harness.queue.settlements.settle(claim, Settlement(dead=(letter,)))
