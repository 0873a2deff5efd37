"""Dead letters of one namespace: so many, so many bytes, and nobody else's go for them."""

from __future__ import annotations

import pytest

from duepoint.delayqueue import messages, quotas
from duepoint.delayqueue.messages import DeadLetter, Settlement
from tests.support import queueing

#: With one shard a shard's share is the quota.
QUOTAS = quotas.Quotas(letters=5, letter_bytes=4_000)


@pytest.fixture(params=("valkey", "cluster"))
async def harness(request, shared_servers, shared_clusters, key_prefix):
    servers = (shared_servers, shared_clusters)
    async with queueing.harness_of_quotas(request.param, servers, key_prefix, QUOTAS) as made:
        yield made


async def bury(harness, namespace: str, *texts: str, **more: str) -> None:
    """Letters of this namespace, each under a text of its own."""
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
    """The texts of its letters, oldest first."""
    letters = await harness.queue.dead_letters.newest(messages.ShardId(0), count=1_000)
    return [
        letter.entry["message"]
        for letter in letters[::-1]
        if letter.entry["namespace"] == namespace
    ]


def numbers(first: int, last: int) -> list[str]:
    return [str(number) for number in range(first, last + 1)]


async def test_of_too_many_dead_letters_the_oldest_of_that_namespace_go(harness):
    await bury(harness, "quiet", "a", "b")
    await bury(harness, "noisy", *numbers(1, 9))
    await bury(harness, "noisy", *numbers(10, 12))
    assert await kept(harness, "noisy") == numbers(8, 12)
    assert await kept(harness, "quiet") == ["a", "b"]


async def test_dead_letters_take_a_bounded_number_of_bytes(harness):
    await bury(harness, "quiet", "a")
    await bury(harness, "noisy", "1" * 1_500, "2" * 1_500, "3" * 1_500)
    assert [text[0] for text in await kept(harness, "noisy")] == ["2", "3"]
    assert await kept(harness, "quiet") == ["a"]


async def test_a_full_shard_loses_the_oldest_letters_of_the_largest_group(harness, monkeypatch):
    monkeypatch.setattr(quotas, "SHARD_LETTERS", 6)
    await bury(harness, "noisy", *(str(number) * 500 for number in range(1, 5)))
    await bury(harness, "quiet", "a", "b", "c")
    assert [text[0] for text in await kept(harness, "noisy")] == ["2", "3", "4"]
    assert await kept(harness, "quiet") == ["a", "b", "c"]


async def test_letters_of_members_leave_those_of_schedules_alone(harness):
    await bury(harness, "noisy", "a", "b")
    await bury(harness, "noisy", *numbers(1, 9), set_id="a-set")
    assert await kept(harness, "noisy") == ["a", "b", *numbers(5, 9)]
    await bury(harness, "noisy", "c", "d", "e", "f")
    assert await kept(harness, "noisy") == ["b", *numbers(5, 9), "c", "d", "e", "f"]


async def test_two_namespaces_in_many_shards_have_each_their_own_quota(shared_servers, key_prefix):
    quota = quotas.Quotas(letters=8, letter_bytes=1_000_000)  # two in each of four shards
    made = await queueing.redis_harness(
        shared_servers("valkey").url, key_prefix, shards=8, quotas=quota
    )
    for namespace, count in (("quiet", 4), ("noisy", 40)):
        for number in range(count):
            await bury_one(made, namespace, f"s-{number}")
    letters = [letter async for letter in made.queue.dead_letters.all()]
    held = [letter.entry["namespace"] for letter in letters]
    assert held.count("noisy") == 8
    assert 0 < held.count("quiet") <= 4
    dropped = await made.queue.dead_letters.dropped()
    assert dropped["noisy"] == 32
    assert dropped.get("quiet", 0) == 4 - held.count("quiet")
    await made.close()


async def test_members_in_all_shards_have_no_larger_quota_than_schedules_in_four(
    shared_servers, key_prefix
):
    quota = quotas.Quotas(letters=8, letter_bytes=1_000_000)
    made = await queueing.redis_harness(
        shared_servers("valkey").url, key_prefix, shards=8, quotas=quota
    )
    for number in range(60):
        await bury_one(made, f"n-{number}", f"s-{number}", namespace="noisy", set_id="set")
    shards = [letter.shard async for letter in made.queue.dead_letters.all()]
    assert 4 < len(shards) == len(set(shards)) <= 8
    assert await made.queue.dead_letters.dropped() == {"noisy": 60 - len(shards)}
    await made.close()


async def bury_one(harness, namespace: str, name: str, /, **more: str) -> None:
    await harness.arm(namespace=namespace, name=name)
    (claim,) = await harness.claim_all()
    entry = {"namespace": namespace, "name": name, "message": name, **more}
    letter = DeadLetter(member=claim.points[0].member, entry=entry)
    await harness.queue.settlements.settle(claim, Settlement(dead=(letter,)))
