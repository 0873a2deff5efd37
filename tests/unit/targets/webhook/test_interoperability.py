"""What webhooks send, read by libraries that we did not write."""

from __future__ import annotations

import base64
import datetime as dt
import json

import pytest
import standardwebhooks
from cloudevents.core.bindings import http
from cryptography.hazmat.primitives.asymmetric import ed25519

from duepoint.model import webhook as model
from duepoint.targets import outcome
from tests.support import builders, firings, receiver, vaults, webhooktargets

OLD = "whsec_" + base64.b64encode(bytes(range(24))).decode()
NEW = "whsec_" + base64.b64encode(bytes(range(64))).decode()


@pytest.fixture
async def hears():
    async with receiver.listening() as listening:
        yield listening


def keys(*names):
    refs = tuple(model.SecretKeyRefFields(name="hook", key=name) for name in names)
    return model.SigningFields(refs)


async def sent(hears, *, payload=None, values=None, **webhook) -> receiver.Request:
    api = await vaults.api_with(vaults.a_secret("hook", **(values or {})))
    async with webhooktargets.a_target(source=vaults.a_vault(api)) as (target, _):
        action = firings.a_webhook(f"http://127.0.0.1:{hears.port}/hook", **webhook)
        given = await target.fire(firings.a_firing(action, payload=payload))
    assert isinstance(given, outcome.Delivered), given
    return hears.requests[-1]


def message(request):
    return http.HTTPMessage(headers={k.lower(): v for k, v in request.headers}, body=request.body)


@pytest.mark.parametrize("form", ["Standard", "Raw", "CloudEventsBinary", "CloudEventsStructured"])
async def test_standardwebhooks_verifies_every_format(hears, form):
    payload = {"text": 'ünï"code\n', "n": 1.5}
    request = await sent(hears, payload=payload, values={"a": NEW}, format=form, signing=keys("a"))
    found = standardwebhooks.Webhook(NEW).verify(request.body, dict(request.headers))
    assert found == json.loads(request.body)


async def test_while_secrets_rotate_both_the_old_and_the_new_one_verify(hears):
    request = await sent(hears, values={"old": OLD, "new": NEW}, signing=keys("old", "new"))
    for secret in (OLD, NEW):
        standardwebhooks.Webhook(secret).verify(request.body, dict(request.headers))
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        standardwebhooks.Webhook(vaults.WHSEC).verify(request.body, dict(request.headers))


@pytest.mark.parametrize("part", ["body", "webhook-id", "webhook-timestamp"])
async def test_standardwebhooks_refuses_what_was_changed_on_the_way(hears, part):
    request = await sent(hears, values={"a": NEW}, signing=keys("a"))
    headers = dict(request.headers)
    body = request.body + b" " * (part == "body")
    if part != "body":
        headers[part] = "msg_0" if part == "webhook-id" else str(int(headers[part]) - 1)
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        standardwebhooks.Webhook(NEW).verify(body, headers)


@pytest.mark.parametrize("libsodium", [False, True], ids=["seed", "seed and public key"])
async def test_the_library_for_ed25519_verifies_asymmetric_signatures(hears, libsodium):
    private = ed25519.Ed25519PrivateKey.generate()
    raw = private.private_bytes_raw() + private.public_key().public_bytes_raw() * libsodium
    whsk = "whsk_" + base64.b64encode(raw).decode()
    request = await sent(hears, values={"a": whsk, "b": NEW}, signing=keys("a", "b"))

    entries = (request.header("webhook-signature") or "").split(" ")
    version, _, signature = entries[0].partition(",")
    assert version == "v1a"
    start = f"{request.header('webhook-id')}.{request.header('webhook-timestamp')}."
    private.public_key().verify(base64.b64decode(signature), start.encode() + request.body)
    # Whoever knows only the shared secret is content as well.
    standardwebhooks.Webhook(NEW).verify(request.body, dict(request.headers))


@pytest.mark.parametrize("form", ["CloudEventsBinary", "CloudEventsStructured"])
async def test_the_cloudevents_library_reads_both_modes(hears, form):
    request = await sent(hears, payload={"a": ["ü", 1]}, format=form)
    event = http.from_http_event(message(request))

    slot = dt.datetime.fromtimestamp(firings.SLOT_US / 1_000_000, dt.UTC)
    assert event.get_specversion() == "1.0"
    assert event.get_type() == "dev.duepoint.schedule.fired"
    assert event.get_source() == "/namespaces/default/schedules/report"
    assert event.get_id() == f"{builders.UID}-{firings.SLOT_US // 1_000_000}"
    assert event.get_time() == slot
    assert event.get_datacontenttype() == "application/json"
    data = event.get_data()
    assert data["payload"] == {"a": ["ü", 1]}
    assert data["schedule"]["name"] == "report"


async def test_structured_mode_names_its_content_type_and_binary_mode_the_datas(hears):
    binary = await sent(hears, format="CloudEventsBinary")
    structured = await sent(hears, format="CloudEventsStructured")
    assert binary.header("content-type") == "application/json"
    assert (structured.header("content-type") or "").startswith("application/cloudevents+json")
    assert structured.header("ce-id") is None
