"""What deliveries of a webhook share, and when it is made anew."""

from __future__ import annotations

import pytest

from duepoint.schedules import actions
from duepoint.targets import endpoints
from duepoint.targets.webhook import request
from tests.fakes import fakeclock
from tests.support import firings, vaults
from tests.unit.targets.test_endpoints import GONE, Server

SECRET = actions.SecretKey(name="token", key="key")
BEARER = actions.WebhookAction(
    url="https://hooks.example.com/x", auth=actions.Bearer(secret=SECRET)
)


@pytest.fixture
def clock():
    return fakeclock.FakeClock()


def a_preparer(clock, source=None, *answers):
    services = endpoints.ServiceCache(Server(*(answers or (GONE,))), clock)
    return request.Preparer(services, source or vaults.a_vault(clock=clock), None)


async def read(preparer, action) -> request.Prepared:
    made = await preparer.read(firings.a_firing(action), 5)
    assert isinstance(made, request.Prepared)
    return made


def sent(made: request.Prepared) -> bytes:
    return made.head.request((), None)


def test_namespaces_share_nothing(clock):
    preparer, action = a_preparer(clock), firings.a_webhook()
    first = preparer.at_hand(firings.a_firing(action, namespace="a"))
    second = preparer.at_hand(firings.a_firing(action, namespace="b"))
    assert first is not None
    assert second is not None
    assert (first.endpoint.namespace, second.endpoint.namespace) == ("a", "b")


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
