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


async def test_an_outage_is_bridged_for_an_hour_and_no_longer(clock):
    memory = memories.Memory(Server("value", AWAY), clock)
    await memory.get("a", "k")
    await clock.advance(3590)
    assert await memory.get("a", "k") == "value"
    await clock.advance(11)
    with pytest.raises(errors.Unavailable):
        await memory.get("a", "k")


async def test_a_secret_that_was_deleted_is_not_used_any_more(clock):
    memory = memories.Memory(Server("value", MISSING, AWAY), clock)
    await memory.get("a", "k")
    await clock.advance(61)
    with pytest.raises(errors.NotFound):
        await memory.get("a", "k")
    await clock.advance(2)
    with pytest.raises(errors.Unavailable):
        await memory.get("a", "k")


@pytest.mark.parametrize("answer", ["value", MISSING], ids=["found", "missing"])
async def test_a_namespace_cannot_push_out_another(clock, monkeypatch, answer):
    monkeypatch.setattr(memories, "MOST_BYTES", 1 << 20)
    server = Server("value", answer)
    memory = memories.Memory(server, clock)
    await memory.get("quiet", "k")
    for number in range(1000):
        await asyncio.gather(memory.get("loud", number), return_exceptions=True)
    assert len(memory._entries) < 1000
    asked = len(server.asked)
    await memory.get("quiet", "k")
    assert len(server.asked) == asked


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
    assert memory._entries.size <= 10 << 20


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


async def test_an_answer_that_is_not_base64_is_not_quoted(clock):
    api = await vaults.api_with()
    broken = {"metadata": {"name": "x", "namespace": "shop"}, "data": {"k": "canary~"}}
    await api.apply("secrets", broken)
    with pytest.raises(errors.Unavailable) as refused:
        await secrets.read(api, "Secret", "shop", "x")
    assert "canary" not in str(refused.value)
    assert refused.value.__cause__ is None
