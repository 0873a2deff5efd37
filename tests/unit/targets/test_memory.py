"""How long a Secret or a token is believed, and how much of them is kept."""

from __future__ import annotations

import asyncio

import pytest

from duepoint.kube import errors, secrets
from duepoint.targets import memory as memories
from duepoint.targets.secretaccess import references
from tests.fakes import fakeclock
from tests.support import vaults

AWAY = errors.Unavailable("no answer")
MISSING = errors.NotFound("no such Secret")


class Server:
    """Answers in turn, the last for ever."""

    def __init__(self, *answers, size=1):
        self.answers = list(answers)
        self.size = size
        self.asked = []

    async def __call__(self, namespace, key):
        self.asked.append((namespace, key))
        await asyncio.sleep(0)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return memories.Life(value=answer, fresh_seconds=60, usable_seconds=3600, size=self.size)


@pytest.fixture
def clock():
    return fakeclock.FakeClock()


async def test_a_value_is_believed_for_a_minute(clock):
    server = Server("old", "new")
    memory = memories.Memory(server, clock)
    assert await memory.get("shop", "key") == "old"
    await clock.advance(59)
    assert await memory.get("shop", "key") == "old"
    await clock.advance(2)
    assert await memory.get("shop", "key") == "new"


async def test_a_hundred_deliveries_at_once_share_one_request(clock):
    server = Server("value")
    memory = memories.Memory(server, clock)
    assert set(await asyncio.gather(*(memory.get("a", "k") for _ in range(100)))) == {"value"}
    assert len(server.asked) == 1


async def test_a_hundred_deliveries_that_miss_share_one_request_too(clock):
    server = Server(MISSING)
    memory = memories.Memory(server, clock)
    found = await asyncio.gather(
        *(memory.get("a", "k") for _ in range(100)), return_exceptions=True
    )
    assert all(isinstance(one, errors.NotFound) for one in found)
    assert len(server.asked) == 1


async def test_what_is_missing_is_looked_for_again_after_two_seconds(clock):
    memory = memories.Memory(Server(MISSING, "there"), clock)
    for _ in range(2):
        with pytest.raises(errors.NotFound):
            await memory.get("a", "k")
    await clock.advance(2)
    assert await memory.get("a", "k") == "there"


async def test_an_outage_is_bridged_for_an_hour_and_no_longer(clock):
    memory = memories.Memory(Server("value", AWAY), clock)
    await memory.get("a", "k")
    await clock.advance(3590)
    assert await memory.get("a", "k") == "value"
    await clock.advance(11)
    with pytest.raises(errors.Unavailable):
        await memory.get("a", "k")


async def test_during_an_outage_the_api_server_is_not_asked_for_every_delivery(clock):
    server = Server("value", AWAY)
    memory = memories.Memory(server, clock)
    await memory.get("a", "k")
    await clock.advance(61)
    for _ in range(50):
        await memory.get("a", "k")
    assert len(server.asked) == 2


async def test_a_secret_that_was_deleted_is_not_used_any_more(clock):
    memory = memories.Memory(Server("value", MISSING, AWAY), clock)
    await memory.get("a", "k")
    await clock.advance(61)
    with pytest.raises(errors.NotFound):
        await memory.get("a", "k")
    await clock.advance(2)
    with pytest.raises(errors.Unavailable):
        await memory.get("a", "k")


async def test_what_did_not_work_is_read_anew_in_that_namespace_alone(clock):
    server = Server("value")
    memory = memories.Memory(server, clock)
    for namespace in ("a", "b"):
        await memory.get(namespace, "k")
    memory.forget("a")
    for namespace in ("a", "b"):
        await memory.get(namespace, "k")
    assert server.asked == [("a", "k"), ("b", "k"), ("a", "k")]


@pytest.mark.parametrize("answer", ["value", MISSING], ids=["found", "missing"])
async def test_a_namespace_cannot_push_out_another(clock, answer):
    server = Server("value", answer)
    memory = memories.Memory(server, clock)
    await memory.get("quiet", "k")
    for number in range(1000):
        await asyncio.gather(memory.get("loud", number), return_exceptions=True)
    assert len(memory._namespaces["loud"]) <= memories.MOST_OF_NAMESPACE
    asked = len(server.asked)
    await memory.get("quiet", "k")
    assert len(server.asked) == asked


async def test_large_objects_are_bounded_by_their_bytes(clock, monkeypatch):
    monkeypatch.setattr(memories, "MOST_BYTES", 10 << 20)
    memory = memories.Memory(Server("value", size=1 << 20), clock)
    for namespace in range(20):
        for key in range(10):
            await memory.get(str(namespace), key)
    assert memory._bytes.total() <= 10 << 20
    kept = [known.size for keys in memory._namespaces.values() for known in keys.values()]
    assert sum(kept) == memory._bytes.total()
    assert all(len(keys) <= 4 for keys in memory._namespaces.values())


async def test_large_objects_of_some_namespaces_push_out_no_small_one_of_another(
    clock, monkeypatch
):
    monkeypatch.setattr(memories, "MOST_BYTES", 10 << 20)
    server = Server("value", size=1000)
    memory = memories.Memory(server, clock)
    await memory.get("quiet", "k")
    server.size = 1 << 20
    for namespace in range(20):
        for key in range(4):
            await memory.get(str(namespace), key)
    asked = len(server.asked)
    await memory.get("quiet", "k")
    assert len(server.asked) == asked
    assert memory._bytes.total() <= 10 << 20


async def test_a_cancelled_look_leaves_the_way_open(clock):
    memory = memories.Memory(Server("value"), clock)
    waiting = asyncio.create_task(memory.get("a", "k"))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await memory.get("a", "k") == "value"


class Hanging:
    """Answers the first request, and further ones as they are released.

    Attributes:
        hung: the requests without an answer.
    """

    def __init__(self, first):
        self.first = first
        self.hung = []

    async def __call__(self, namespace, key):
        if self.first is not None:
            answer, self.first = self.first, None
        else:
            self.hung.append(asyncio.get_running_loop().create_future())
            answer = await self.hung[-1]
        return memories.Life(value=answer, size=1)


async def test_while_the_api_server_hangs_an_attempt_of_a_second_gets_the_last_answer(clock):
    server = Hanging("value")
    memory = memories.Memory(server, clock)
    await memory.get("a", "k")
    await clock.advance(61)
    assert memories.PATIENCE_SECONDS < 1
    async with asyncio.timeout(20):
        assert await memory.get("a", "k") == "value"
    assert len(server.hung) == 1


async def test_many_keys_of_a_hanging_api_server_take_no_more_time_than_one(clock, monkeypatch):
    monkeypatch.setattr(memories, "PATIENCE_SECONDS", 1.0)
    server = Server("value")
    memory = memories.Memory(server, clock)
    keys = range(20)
    for key in keys:
        await memory.get("a", key)
    await clock.advance(61)
    memory._look = Hanging(None)
    async with asyncio.timeout(15):  # one after the other they take 20
        assert [await memory.get("a", key) for key in keys] == ["value"] * len(keys)


async def test_what_is_read_for_an_attempt_that_ended_serves_the_next(clock):
    server = Hanging("old")
    memory = memories.Memory(server, clock)
    await memory.get("a", "k")
    memory.forget("a")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await memory.get("a", "k")
    server.hung[0].set_result("new")
    assert await memory.get("a", "k") == "new"
    assert len(server.hung) == 1


async def test_what_did_not_work_is_not_used_again_while_the_newer_is_being_read(
    clock, monkeypatch
):
    monkeypatch.setattr(memories, "PATIENCE_SECONDS", 0.01)
    server = Hanging("old")
    memory = memories.Memory(server, clock)
    await memory.get("a", "k")
    memory.forget("a")
    asked = asyncio.create_task(memory.get("a", "k"))
    await asyncio.sleep(0.05)
    assert not asked.done()
    server.hung[0].set_result("new")
    assert await asked == "new"


async def test_a_read_that_began_before_an_answer_failed_is_not_believed(clock):
    server = Hanging("old")
    memory = memories.Memory(server, clock)
    await memory.get("a", "k")
    await clock.advance(61)
    before = asyncio.create_task(memory.get("a", "k"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    memory.forget("a")
    server.hung[0].set_result("old")
    assert await before == "old"
    after = asyncio.create_task(memory.get("a", "k"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    server.hung[1].set_result("new")
    assert await after == "new"


class TokenServer:
    """An API server that makes tokens of ten minutes."""

    def __init__(self, clock):
        self.clock = clock
        self.made = 0
        self.away = False

    async def request(self, verb, path, body=None, **_):
        if self.away:
            raise AWAY
        assert (verb, path) == ("POST", "/api/v1/namespaces/shop/serviceaccounts/caller/token")
        assert body["spec"] == {"audiences": ["billing"], "expirationSeconds": 600}
        self.made += 1
        seconds = self.clock.now_us() // 1_000_000 + 600
        expires = secrets.times.time_text(seconds * 1_000_000)
        status = f'{{"token":"token-{self.made}","expirationTimestamp":"{expires}"}}'
        return f'{{"status":{status}}}'.encode()


async def test_a_token_is_renewed_before_it_expires_and_never_used_after(clock):
    server = TokenServer(clock)
    tokens = references.tokens_of(server, clock)
    key = ("caller", "billing")
    assert (await tokens.get("shop", key)).text == "token-1"
    await clock.advance(440)
    assert (await tokens.get("shop", key)).text == "token-1"
    await clock.advance(20)
    assert (await tokens.get("shop", key)).text == "token-2"
    server.away = True
    await clock.advance(580)
    assert (await tokens.get("shop", key)).text == "token-2"
    await clock.advance(20)
    with pytest.raises(errors.Unavailable):
        await tokens.get("shop", key)


async def test_binary_keys_of_a_configmap_are_read_like_text(clock):
    api = await vaults.api_with()
    await api.apply(
        "configmaps",
        {
            "metadata": {"name": "ca", "namespace": "shop"},
            "data": {"text": "a"},
            "binaryData": {"raw": vaults.encoded(b"\xff")},
        },
    )
    found = await references.objects_of(api, clock).get("shop", ("ConfigMap", "ca"))
    assert found.values == {"text": b"a", "raw": b"\xff"}


async def test_an_answer_that_is_not_base64_is_not_quoted(clock):
    api = await vaults.api_with()
    broken = {"metadata": {"name": "x", "namespace": "shop"}, "data": {"k": "canary~"}}
    await api.apply("secrets", broken)
    with pytest.raises(errors.Unavailable) as refused:
        await secrets.read(api, "Secret", "shop", "x")
    assert "canary" not in str(refused.value)
    assert refused.value.__cause__ is None


async def test_a_key_that_is_let_go_while_it_is_asked_for_counts_no_bytes(clock):
    answers = asyncio.Event()
    size = memories.MOST_BYTES_OF_NAMESPACE // 4 + 1

    async def look(_, key):
        if key == "slow":
            await answers.wait()
        return memories.Life(value=key, size=size)

    memory = memories.Memory(look, clock)
    slow = asyncio.create_task(memory.get("a", "slow"))
    await asyncio.sleep(0)
    for number in range(8):  # more than a namespace may keep: the oldest goes
        await memory.get("a", f"key-{number}")
    held = memory._bytes.total()
    answers.set()
    assert await slow == "slow"
    assert memory._bytes.total() == held <= memories.MOST_BYTES_OF_NAMESPACE
