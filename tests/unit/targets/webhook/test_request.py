"""What a webhook sends, and to whom."""

from __future__ import annotations

import json
import time

import pytest

import duepoint
from duepoint.kube import errors as kube_errors
from duepoint.kube import services
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason
from duepoint.targets import outcome
from duepoint.targets.target import webhook_id
from tests.support import builders, firings, receiver, webhooktargets


@pytest.fixture
async def hears():
    async with receiver.listening() as listening:
        yield listening


@pytest.fixture
async def target():
    async with webhooktargets.a_target() as (target, _):
        yield target


async def send(target, hears, *, path="/hook", payload=None, firing=None, **webhook):
    action = firings.a_webhook(f"http://127.0.0.1:{hears.port}{path}", **webhook)
    given = await target.fire(firings.a_firing(action, payload=payload, **(firing or {})))
    return given, hears.requests[-1]


async def test_a_delivery_carries_its_identity(target, hears):
    given, request = await send(target, hears, payload={"a": 1})

    assert isinstance(given, outcome.Delivered)
    assert given.http_status == 204
    assert request.method == "POST"
    assert request.target == "/hook"
    assert request.header("webhook-id") == webhook_id(builders.UID, firings.SLOT_US)
    assert abs(int(request.header("webhook-timestamp")) - time.time()) < 5
    assert request.header("content-type") == "application/json"
    assert request.header("user-agent") == f"duepoint/{duepoint.__version__}"
    assert request.header("host") == f"127.0.0.1:{hears.port}"
    assert json.loads(request.body)["data"]["payload"] == {"a": 1}


async def test_the_users_headers_are_added_and_may_replace_the_usual_ones(target, hears):
    headers = (
        ("X-Team", "a"),
        ("X-Team", "b"),
        ("Content-Type", "application/vnd.x+json"),
        ("User-Agent", "me/1"),
    )
    _, request = await send(target, hears, headers=headers)
    values = [value for name, value in request.headers if name.lower() == "x-team"]
    assert values == ["a", "b"]
    assert request.header("content-type") == "application/vnd.x+json"
    assert request.header("user-agent") == "me/1"
    assert len([name for name, _ in request.headers if name.lower() == "content-type"]) == 1


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\0b"])
async def test_a_header_that_would_end_the_line_sends_nothing(target, hears, value):
    action = firings.a_webhook(f"http://127.0.0.1:{hears.port}/", headers=(("X-A", value),))
    given = await target.fire(firings.a_firing(action))
    assert given.reason is Reason.INVALID_SPEC
    assert isinstance(given, outcome.Rejected)
    assert hears.requests == []


@pytest.mark.parametrize(
    "path", ["/a/../b", "/%2e%2e/%41?x=%20&y=a+b", "//double", "?q=1", "/a;b=c,d@e'f"]
)
async def test_the_path_goes_out_as_it_was_written(target, hears, path):
    _, request = await send(target, hears, path=path)
    assert request.target == (path if path.startswith("/") else f"/{path}")


async def test_the_environments_proxy_is_not_asked(target, hears, monkeypatch):
    async with receiver.listening() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        given, _ = await send(target, hears)
        assert isinstance(given, outcome.Delivered)
        assert proxy.connections == 0


async def test_a_service_is_dialled_by_its_address_and_called_by_its_name(hears):
    known = webhooktargets.FixedServices(
        {("shop", "billing"): webhooktargets.a_service(("127.0.0.1", hears.port), namespace="shop")}
    )
    async with webhooktargets.a_target(known=known) as (target, guard):
        action = firings.a_webhook(service=actions.ServiceRef(name="billing", path="/run?x=1"))
        given = await target.fire(firings.a_firing(action, namespace="shop"))

        assert isinstance(given, outcome.Delivered)
        assert hears.requests[0].header("host") == "billing.shop.svc"
        assert hears.requests[0].target == "/run?x=1"
        assert guard.opened == [("127.0.0.1", hears.port)]


async def test_of_several_endpoints_one_that_answers_is_enough(hears):
    found = webhooktargets.a_service(("127.0.0.2", hears.port), ("127.0.0.1", hears.port))
    known = webhooktargets.FixedServices({("default", "billing"): found})
    allowed = ["127.0.0.1/32", "127.0.0.2/32"]
    async with webhooktargets.a_target(known=known, allowed=allowed) as (target, _):
        action = firings.a_webhook(service=actions.ServiceRef(name="billing"))
        assert isinstance(await target.fire(firings.a_firing(action)), outcome.Delivered)


async def test_endpoints_that_users_wrote_need_the_allow_list():
    found = webhooktargets.a_service(("10.0.0.1", 80), vouched=False)
    known = webhooktargets.FixedServices({("default", "billing"): found})
    async with webhooktargets.a_target(known=known) as (target, guard):
        action = firings.a_webhook(service=actions.ServiceRef(name="billing"))
        given = await target.fire(firings.a_firing(action))
        assert given.reason is Reason.BLOCKED_ADDRESS
        assert "DUEPOINT_EGRESS_ALLOWED_CIDRS" in given.message
        assert guard.opened == []


@pytest.mark.parametrize(
    ("found", "kind", "reason"),
    [
        pytest.param(None, outcome.Retry, Reason.NETWORK, id="not there"),
        pytest.param(
            services.ServiceUnresolved(message="no", may_heal=False),
            outcome.Rejected,
            Reason.BLOCKED_ADDRESS,
            id="external name",
        ),
        pytest.param(
            services.ServiceUnresolved(message="none"),
            outcome.Retry,
            Reason.NETWORK,
            id="no endpoints",
        ),
        pytest.param(
            kube_errors.Unavailable("away"),
            outcome.Retry,
            Reason.API_UNAVAILABLE,
            id="API server away",
        ),
        pytest.param(
            kube_errors.Forbidden("no", is_about_rights=True),
            outcome.Retry,
            Reason.FORBIDDEN,
            id="no rights",
        ),
    ],
)
async def test_a_service_that_cannot_be_called(found, kind, reason):
    known = webhooktargets.FixedServices({("default", "billing"): found})
    async with webhooktargets.a_target(known=known) as (target, guard):
        action = firings.a_webhook(service=actions.ServiceRef(name="billing"))
        given = await target.fire(firings.a_firing(action))
        assert isinstance(given, kind)
        assert given.reason is reason
        assert known.forgotten == [("default", "billing")]
        assert guard.opened == []


TRACEPARENT = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"


async def test_the_users_own_context_replaces_it(target, hears):
    headers = (("Traceparent", "00-mine"),)
    _, request = await send(target, hears, headers=headers, firing={"traceparent": TRACEPARENT})

    names = [value for name, value in request.headers if name.lower() == "traceparent"]
    assert names == ["00-mine"]
