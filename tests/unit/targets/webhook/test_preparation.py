"""What deliveries of a webhook share, and when it is made anew."""

from __future__ import annotations

import pytest

from duepoint.schedules import actions
from duepoint.targets import endpoints, target
from duepoint.targets.webhook import preparation
from tests.fakes import fakeclock
from tests.support import firings, vaults
from tests.unit.targets.test_endpoints import FOUND, GONE, MOVED, Server

SECRET = actions.SecretKey(name="token", key="key")
BEARER = actions.WebhookAction(
    url="https://hooks.example.com/x", auth=actions.Bearer(secret=SECRET)
)
FROM_SECRET = actions.WebhookAction(url_secret=actions.SecretKey(name="chat", key="url"))
SERVICE = actions.WebhookAction(
    service=actions.ServiceRef(name="billing", port=80, path="/", scheme="http")
)


@pytest.fixture
def clock():
    return fakeclock.FakeClock()


def a_preparer(clock, source=None, *answers):
    services = endpoints.ServiceCache(Server(*(answers or (GONE,))), clock)
    return preparation.Preparer(services, source or vaults.a_vault(clock=clock), None)


async def read(preparer, action) -> preparation.Prepared:
    made = await preparer.read(firings.a_firing(action), 5)
    assert isinstance(made, preparation.Prepared)
    return made


def sent(made: preparation.Prepared) -> bytes:
    return made.head.request((), None)


def test_the_deliveries_of_a_webhook_share_their_head(clock):
    preparer, action = a_preparer(clock), firings.a_webhook(headers=[("X-Team", "a")])
    first = preparer.at_hand(firings.a_firing(action))
    assert first is not None
    assert preparer.at_hand(firings.a_firing(action, payload=1, slot_us=5)) is first
    assert sent(first).startswith(b"POST /x HTTP/1.1\r\nHost: hooks.example.com\r\n")
    assert b"\r\nX-Team: a\r\n" in sent(first)


def test_namespaces_share_nothing(clock):
    preparer, action = a_preparer(clock), firings.a_webhook()
    first = preparer.at_hand(firings.a_firing(action, namespace="a"))
    second = preparer.at_hand(firings.a_firing(action, namespace="b"))
    assert first is not None
    assert second is not None
    assert (first.endpoint.namespace, second.endpoint.namespace) == ("a", "b")


@pytest.mark.parametrize("action", [BEARER, FROM_SECRET, SERVICE], ids=["token", "URL", "Service"])
async def test_what_has_to_be_read_is_at_hand_once_it_was(action, clock):
    api = await vaults.api_with(
        vaults.a_secret("token", key="abc"),
        vaults.a_secret("chat", url="https://chat.example.com/x?key=abcdefgh"),
    )
    preparer = a_preparer(clock, vaults.a_vault(api, clock), FOUND)
    assert preparer.at_hand(firings.a_firing(action)) is None
    made = await read(preparer, action)
    assert preparer.at_hand(firings.a_firing(action)) is made
    await clock.advance(3600)
    assert preparer.at_hand(firings.a_firing(action)) is None


async def test_a_secret_that_was_changed_is_in_the_next_head(clock):
    api = await vaults.api_with(vaults.a_secret("token", key="old-token"))
    preparer = a_preparer(clock, vaults.a_vault(api, clock))
    assert b"Bearer old-token\r\n" in sent(await read(preparer, BEARER))
    await api.apply("secrets", vaults.a_secret("token", key="new-token"))
    preparer.forget_credentials("default")
    assert preparer.at_hand(firings.a_firing(BEARER)) is None
    made = await read(preparer, BEARER)
    assert b"Bearer new-token\r\n" in sent(made)
    assert preparer.at_hand(firings.a_firing(BEARER)) is made


async def test_another_service_port_or_a_move_is_another_endpoint(clock):
    preparer = a_preparer(clock, None, FOUND, MOVED)
    first = await read(preparer, SERVICE)
    assert first.endpoint.route is not None
    assert first.endpoint.route.endpoints == (("10.0.0.1", 80),)
    preparer.forget_service("default", SERVICE.service)
    assert preparer.at_hand(firings.a_firing(SERVICE)) is None
    second = await read(preparer, SERVICE)
    assert second.endpoint.route is not None
    assert second.endpoint.route.endpoints == (("10.0.0.2", 80),)
    assert preparer.at_hand(firings.a_firing(SERVICE)) is second


async def test_a_service_that_is_read_for_another_webhook_counts_for_this_one(clock):
    preparer = a_preparer(clock, None, FOUND, MOVED)
    first = await read(preparer, SERVICE)
    preparer.forget_service("default", SERVICE.service)
    await read(preparer, firings.a_webhook(service=SERVICE.service))
    found = preparer.at_hand(firings.a_firing(SERVICE))
    assert found is not None
    assert found is not first
    assert found.endpoint.route.endpoints == (("10.0.0.2", 80),)


async def test_a_head_that_cannot_be_sent_is_trouble_that_only_an_edit_mends(clock):
    action = firings.a_webhook(headers=[("X-Team", "a\r\nb: c")])
    preparer = a_preparer(clock)
    assert preparer.at_hand(firings.a_firing(action)) is None
    trouble = await preparer.read(firings.a_firing(action), 5)
    assert isinstance(trouble, target.Trouble)
    assert trouble.final
    assert trouble.message == "hooks.example.com: the URL cannot be called"


async def test_what_is_kept_is_bounded(clock, monkeypatch):
    monkeypatch.setattr(preparation, "_MOST_BYTES", 20_000)
    preparer = a_preparer(clock)
    webhooks = [firings.a_webhook(f"https://hooks.example.com/{n}") for n in range(20)]
    made = [preparer.at_hand(firings.a_firing(one)) for one in webhooks]
    again = [preparer.at_hand(firings.a_firing(one)) for one in reversed(webhooks)]
    assert again[0] is made[-1]
    assert again[-1] is not made[0]
