"""What a webhook refers to, from the objects to the request, and what is said where it lacks."""

from __future__ import annotations

import base64
import json
import ssl
import warnings

import pytest

from duepoint.kube import errors as kube_errors
from duepoint.kube import secrets
from duepoint.model import webhook as model
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason
from duepoint.targets import memory as memories
from duepoint.targets import outcome, target
from duepoint.targets.secretaccess import references
from duepoint.targets.webhook import credentials
from tests.fakes import fakeclock, fakekubernetes
from tests.support import certificates, firings, receiver, vaults, webhooktargets


def bearer(name: str) -> model.AuthFields:
    key = model.SecretKeyRefFields(name=name, key="token")
    return model.AuthFields(bearer=model.BearerFields(key))


def signing(name: str, key: str) -> model.SigningFields:
    return model.SigningFields((model.SecretKeyRefFields(name=name, key=key),))


def login(name: str) -> model.AuthFields:
    return model.AuthFields(basic=model.BasicFields(model.SecretRefFields(name)))


def account(audience: str) -> model.AuthFields:
    token = model.ServiceAccountTokenFields("caller", audience)
    return model.AuthFields(service_account_token=token)


def certificate(name: str, **fields) -> model.TlsFields:
    return model.TlsFields(client_certificate_secret_ref=model.SecretRefFields(name), **fields)


BEARER, SIGNING = bearer("api"), signing("hook", "a")
WHO = 'User "system:serviceaccount:duepoint-system:duepoint-worker" cannot get resource "secrets"'


@pytest.fixture
async def hears():
    async with receiver.listening() as listening:
        yield listening


async def send(hears, source, **webhook):
    async with webhooktargets.a_target(source=source) as (target, _):
        action = actions.WebhookAction(url=f"http://127.0.0.1:{hears.port}/", **webhook)
        return await target.fire(firings.a_firing(action))


async def vault_of(*objects, **rules):
    return vaults.a_vault(await vaults.api_with(*objects), **rules)


# -- what is sent ------------------------------------------------------------------------------


# -- what is said where something is missing ------------------------------------------------------


@pytest.mark.parametrize(
    ("objects", "webhook", "words"),
    [
        pytest.param(
            [], {"auth": BEARER},
            ["spec.webhook.auth.bearer.secretKeyRef", "Secret default/api does not exist"],
            id="no such Secret",
        ),
        pytest.param(
            [vaults.a_secret("api", tokne="x")], {"auth": BEARER},
            ["Secret default/api has no key token"], id="no such key",
        ),
        pytest.param(
            [vaults.a_secret("api")], {"auth": BEARER},
            ["has no key token"], id="an empty Secret",
        ),
        pytest.param(
            [vaults.a_secret("api", token=b"canary\xff")], {"auth": BEARER},
            ["key token", "binary"], id="binary",
        ),
        pytest.param(
            [vaults.a_secret("api", token="canary\r\nX-Evil: 1")], {"auth": BEARER},
            ["one line"], id="two lines",
        ),
        pytest.param(
            [vaults.a_secret("api", token="c" * 20_000)], {"auth": BEARER},
            ["20000 bytes"], id="too long",
        ),
        pytest.param(
            [vaults.a_secret("hook", a="canary")], {"signing": SIGNING},
            ["spec.webhook.signing.secretKeyRefs[0]", "key a", "whsec_"], id="no signing secret",
        ),
        pytest.param(
            [vaults.a_secret("login", username="a:canary", password="b")],
            {"auth": login("login")},
            ["spec.webhook.auth.basic.secretRef", "key username"], id="a colon in the user",
        ),
        pytest.param(
            [vaults.a_secret("login", username="a")],
            {"auth": login("login")},
            ["has no key password"], id="no password",
        ),
        pytest.param(
            [],
            {"tls": model.TlsFields(ca_ref=model.CaRefFields(key="ca.crt", config_map="ca"))},
            ["spec.webhook.tls.caRef", "ConfigMap default/ca does not exist"], id="no CA",
        ),
        pytest.param(
            [vaults.a_secret("ca", ca="canary")],
            {"tls": model.TlsFields(ca_ref=model.CaRefFields(key="ca", secret="ca"))},
            ["spec.webhook.tls.caRef", "PEM"], id="a CA that is none",
        ),
        pytest.param(
            [vaults.a_secret("us", tls__crt="canary", tls__key="canary")],
            {"tls": certificate("us")},
            ["spec.webhook.tls.clientCertificateSecretRef", "tls.crt"], id="no certificate",
        ),
    ],
)  # fmt: skip
async def test_what_is_missing_is_named_tried_again_and_not_repeated(
    hears, objects, webhook, words
):
    retry = actions.RetryRule(retry_on=())
    given = await send(hears, await vault_of(*objects), retry=retry, **webhook)
    assert isinstance(given, outcome.Retry)
    assert given.reason is Reason.SECRET_UNAVAILABLE
    for word in words:
        assert word in given.message
    assert "canary" not in given.message
    assert "tokne" not in given.message
    assert hears.connections == 0


async def test_a_missing_right_is_told_with_the_very_command(hears):
    api = await vaults.api_with()
    refusal = kube_errors.Forbidden(WHO, is_about_rights=True)
    api.fail_next(refusal, resource="secrets")
    given = await send(hears, vaults.a_vault(api, reader_role="dp-secret-reader"), auth=BEARER)
    assert given.reason is Reason.SECRET_UNAVAILABLE
    assert given.message.endswith(
        "kubectl create rolebinding dp-secret-reader -n default "
        "--clusterrole=dp-secret-reader --serviceaccount=duepoint-system:duepoint-worker"
    )
    assert given.message.startswith("spec.webhook.auth.bearer.secretKeyRef: ")


async def test_after_a_401_the_secrets_are_read_anew(hears):
    hears.answer = receiver.in_turn(receiver.status(401), receiver.status(204))
    api = await vaults.api_with(vaults.a_secret("api", token="old"))
    source = vaults.a_vault(api)
    await send(hears, source, auth=BEARER)
    await api.apply("secrets", {**vaults.a_secret("api", token="new")})
    await send(hears, source, auth=BEARER)
    sent = [request.header("authorization") for request in hears.requests]
    assert sent == ["Bearer old", "Bearer new"]


# -- nothing is repeated --------------------------------------------------------------------------

CANARY = 'canary"/ä secret'


@pytest.mark.parametrize(
    "spelled",
    [
        CANARY,
        base64.b64encode(CANARY.encode()).decode(),
        json.dumps(CANARY),
        json.dumps({"deep": CANARY}),
        base64.b64encode(f"user:{CANARY}".encode()).decode(),
    ],
    ids=["plain", "base64", "json", "json object", "as it was sent"],
)
async def test_a_receiver_that_echoes_a_secret_is_not_quoted(hears, spelled):
    hears.answer = receiver.status(500, f"you said {spelled}, didn't you".encode())
    source = await vault_of(vaults.a_secret("login", username="user", password=CANARY))
    given = await send(hears, source, auth=login("login"))
    assert given.message == "answered 500"
    assert "canary" not in repr(given)


async def test_credentials_do_not_show_themselves(hears):
    whsec = "whsec_" + base64.b64encode(b"canary-canary-canary-canary").decode()
    source = await vault_of(vaults.a_secret("hook", a=whsec, token="canary", key="canary"))
    webhook = firings.a_webhook(
        auth=bearer("hook"),
        signing=SIGNING,
    )
    found = await source.of("default", webhook)
    assert isinstance(found, credentials.WebhookCredentials)
    shown = repr(
        (found, secrets.Data({"a": b"canary"}), secrets.Token(text="canary", expires_us=0))
    )
    assert "canary" not in shown


# -- what no Secret mends -------------------------------------------------------------------------


async def test_unverified_tls_needs_the_operators_leave():
    webhook = firings.a_webhook(tls=model.TlsFields(insecure_skip_verify=True))
    refused = await (await vault_of()).of("default", webhook)
    assert isinstance(refused, target.Trouble)
    assert refused.final
    assert refused.reason is Reason.INVALID_SPEC
    assert "DUEPOINT_WEBHOOK_INSECURE=tls" in refused.message
    allowed = await (await vault_of(is_insecure_allowed=True)).of("default", webhook)
    assert isinstance(allowed, credentials.WebhookCredentials)


def token_with(**claims) -> str:
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{payload}.sig"


async def vault_with_tokens(token, clock=None, *, audiences="billing", own=()):
    ticking = clock or fakeclock.FakeClock()

    async def look(namespace, key):
        made = secrets.Token(text=token, expires_us=0)
        return memories.Life(value=made, fresh_seconds=450, usable_seconds=580, size=1)

    api = fakekubernetes.FakeKubernetes()
    await api.apply("serviceaccounts", vaults.an_account("caller", audiences))
    return credentials.Vault(
        references.objects_of(api, ticking),
        memories.Memory(look, ticking),
        own_audiences=lambda: own,
    )


@pytest.mark.parametrize(
    "audience",
    [
        "https://kubernetes.default.svc.cluster.local",
        "https://kubernetes.default.svc",
        "https://kubernetes.default.svc/",
        "kubernetes.default.svc",
        "kubernetes",
        "https://issuer.example",
        "as-in-our-own-token",
    ],
)
async def test_no_token_is_sent_that_would_open_the_api_server(audience):
    """Even where the owner of the account lists the audience."""
    source = await vault_with_tokens(
        token_with(iss="https://issuer.example"),
        audiences=audience,
        own=credentials.audiences_of(token_with(aud=["as-in-our-own-token", "other"])),
    )
    auth = account(audience)
    refused = await source.of("default", firings.a_webhook(auth=auth))
    assert isinstance(refused, target.Trouble)
    assert refused.final
    assert "spec.webhook.auth.serviceAccountToken.audience" in refused.message


@pytest.mark.parametrize("audiences", ["", "Billing", "billing.example", "*"])
async def test_no_token_is_asked_for_an_audience_that_its_account_does_not_list(hears, audiences):
    auth = account("billing")
    source = await vault_with_tokens(token_with(), audiences=audiences)
    given = await send(hears, source, auth=auth)
    assert given.reason is Reason.SECRET_UNAVAILABLE
    assert given.message.endswith(
        "kubectl annotate --overwrite serviceaccount caller -n default "
        "duepoint.dev/token-audiences=billing"
    )
    assert hears.connections == 0


# -- where a Secret may go ------------------------------------------------------------------------

EVERY_USE = {
    "a header": {
        "headers": (
            model.HeaderFields(
                name="X-Key",
                value_from=model.FromSecretFields(model.SecretKeyRefFields(name="it", key="token")),
            ),
        )
    },
    "a bearer token": {"auth": bearer("it")},
    "a login": {"auth": login("it")},
    "a signature": {"signing": signing("it", "whsec")},
    "a client certificate": {"tls": certificate("it")},
}


@pytest.mark.parametrize("send_to", [None, "", "hooks.example", "127.0.0.1:1", "*.0.0.1 ::1"])
@pytest.mark.parametrize("use", EVERY_USE.values(), ids=EVERY_USE)
async def test_a_secret_goes_nowhere_without_its_owners_word(hears, use, send_to):
    whsec = vaults.WHSEC
    it = vaults.a_secret(
        "it", send_to=send_to, token="canary", username="a", password="canary", whsec=whsec
    )
    given = await send(hears, await vault_of(it), **use)
    assert isinstance(given, outcome.Retry)
    assert given.reason is Reason.SECRET_UNAVAILABLE
    assert given.message.endswith(
        "kubectl annotate --overwrite secret it -n default duepoint.dev/send-to=127.0.0.1"
    )
    assert hears.connections == 0


# -- a URL that is a credential -------------------------------------------------------------------

FROM_SECRET = model.FromSecretFields(model.SecretKeyRefFields(name="chat", key="url"))


async def fire_at_secret(source, **webhook):
    async with webhooktargets.a_target(source=source) as (target, guard):
        action = actions.WebhookAction(url_from=FROM_SECRET, **webhook)
        first = await target.fire(firings.a_firing(action))
        return first, await target.fire(firings.a_firing(action, attempt=2)), guard


@pytest.mark.parametrize(
    "url",
    ["canary", "ftp://canary/", "http://canary/#x", "http://u:canary@a/", "http://canary:99999/"],
)
async def test_what_is_no_url_in_a_secret_is_said_without_repeating_it(url):
    given, _, guard = await fire_at_secret(await vault_of(vaults.a_secret("chat", url=url)))
    assert given.reason is Reason.SECRET_UNAVAILABLE
    assert given.message.startswith(
        "spec.webhook.urlFrom.secretKeyRef: key url of Secret default/chat"
    )
    assert "canary" not in given.message
    assert guard.opened == []


async def test_a_url_in_a_secret_is_judged_by_the_guard_and_needs_its_owners_word(hears):
    blocked = await vault_of(vaults.a_secret("chat", url="http://10.0.0.1/canary"))
    given, _, guard = await fire_at_secret(blocked)
    assert given.reason is Reason.BLOCKED_ADDRESS
    assert guard.opened == []
    for send_to in (None, "hooks.example"):
        url = f"http://127.0.0.1:{hears.port}/"
        withheld = await vault_of(vaults.a_secret("chat", send_to=send_to, url=url))
        given, *_ = await fire_at_secret(withheld)
        assert given.reason is Reason.SECRET_UNAVAILABLE
    assert hears.connections == 0


# -- TLS ------------------------------------------------------------------------------------------

CA = certificates.authority()
TRUST = model.CaRefFields(key="ca.crt", secret="ca")


async def over_tls(
    tmp_path, tls, *, host="127.0.0.1", signed=("127.0.0.1",), objects=(), **serving
):
    context = CA.signs(*signed, expired=serving.pop("expired", False)).serving(tmp_path, **serving)
    trusted = vaults.a_secret("ca", ca__crt=CA.pem)
    source = await vault_of(trusted, *objects, is_insecure_allowed=True)
    lookup = webhooktargets.answering(receiver_example=["127.0.0.1"])
    async with (
        receiver.listening(tls=context) as hears,
        webhooktargets.a_target(source=source, lookup=lookup) as (target, guard),
    ):
        action = firings.a_webhook(f"https://{host}:{hears.port}/", tls=tls)
        first = await target.fire(firings.a_firing(action))
        second = await target.fire(firings.a_firing(action, attempt=2))
    return first, second, hears, guard


async def test_a_receiver_signed_by_ones_own_ca_is_trusted_and_its_connection_kept(tmp_path):
    first, second, hears, _ = await over_tls(tmp_path, model.TlsFields(ca_ref=TRUST))
    assert isinstance(first, outcome.Delivered)
    assert isinstance(second, outcome.Delivered)
    assert hears.connections == 1


@pytest.mark.parametrize(
    ("tls", "serving"),
    [
        (model.TlsFields(), {}),
        (model.TlsFields(ca_ref=TRUST), {"signed": ("other.example",)}),
        (model.TlsFields(ca_ref=TRUST), {"expired": True}),
        (model.TlsFields(ca_ref=TRUST, server_name="else.example"), {}),
    ],
    ids=["unknown authority", "wrong name", "expired", "wrong serverName"],
)
async def test_a_certificate_that_does_not_fit_is_refused_before_anything_is_sent(
    tmp_path, tls, serving
):
    first, _, hears, _ = await over_tls(tmp_path, tls, **serving)
    assert isinstance(first, outcome.Retry)
    assert first.reason is Reason.NETWORK
    assert "certificate is refused" in first.message
    assert hears.requests == []


async def test_we_show_our_certificate_to_those_who_ask_for_it(tmp_path):
    ours = CA.signs("duepoint.example")
    secret = vaults.a_secret("us", tls__crt=ours.certificate, tls__key=ours.key)
    tls = certificate("us", ca_ref=TRUST)
    first, *_ = await over_tls(tmp_path, tls, objects=(secret,), client_ca=CA.pem)
    assert isinstance(first, outcome.Delivered)
    refused, _, hears, _ = await over_tls(tmp_path, model.TlsFields(ca_ref=TRUST), client_ca=CA.pem)
    assert isinstance(refused, outcome.Retry)
    assert hears.requests == []


async def test_another_namespaces_open_connection_is_never_used(tmp_path):
    """Both name one receiver and one authority; neither may ride on the other's connection."""
    context = CA.signs("127.0.0.1").serving(tmp_path)
    objects = [vaults.a_secret("ca", namespace, ca__crt=CA.pem) for namespace in ("a", "b")]
    source = await vault_of(*objects)
    async with (
        receiver.listening(tls=context) as hears,
        webhooktargets.a_target(source=source) as (target, guard),
    ):
        action = firings.a_webhook(
            f"https://127.0.0.1:{hears.port}/", tls=model.TlsFields(ca_ref=TRUST)
        )
        for namespace in ("a", "b", "a"):
            given = await target.fire(firings.a_firing(action, namespace=namespace))
            assert isinstance(given, outcome.Delivered)
        assert len(guard.opened) == 2


async def test_tls_older_than_1_2_is_not_spoken(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context = CA.signs("127.0.0.1").serving(tmp_path)
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    source = await vault_of(vaults.a_secret("ca", ca__crt=CA.pem))
    async with (
        receiver.listening(tls=context) as hears,
        webhooktargets.a_target(source=source) as (target, _),
    ):
        action = firings.a_webhook(
            f"https://127.0.0.1:{hears.port}/", tls=model.TlsFields(ca_ref=TRUST)
        )
        given = await target.fire(firings.a_firing(action))
    assert isinstance(given, outcome.Retry)
    assert given.reason is Reason.NETWORK
    assert hears.requests == []
