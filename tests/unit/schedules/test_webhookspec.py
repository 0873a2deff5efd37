"""The fields of a webhook that name Secrets: what is accepted, and what is told of the rest."""

from __future__ import annotations

import json

import pytest

from duepoint import errors
from duepoint.model import webhook as model
from duepoint.schedules import actions, spec
from tests.support import builders

REF = {"name": "hook", "key": "a"}


def parsed(**webhook) -> actions.WebhookAction:
    fields = {"schedule": "@daily", "webhook": {"url": "https://a.example/", **webhook}}
    found = spec.parse(
        json.dumps(fields).encode(),
        namespace="shop",
        name="report",
        uid=builders.UID,
        generation=1,
        created_us=0,
    ).action
    assert actions.decode(actions.encode(found)) == found
    assert isinstance(found.target, actions.WebhookAction)
    return found.target


def refused(**webhook) -> list[errors.FieldError]:
    with pytest.raises(errors.InvalidSpec) as found:
        parsed(**webhook)
    return list(found.value.errors)


def test_everything_that_may_be_named_is_kept_by_name():
    found = parsed(
        format="CloudEventsBinary",
        headers=[{"name": "X-Key", "valueFrom": {"secretKeyRef": REF}}],
        signing={"secretKeyRefs": [REF, {"name": "next", "key": "b.c"}]},
        auth={"bearer": {"secretKeyRef": REF}},
        tls={
            "caRef": {"configMap": "ca", "key": "ca.crt"},
            "clientCertificateSecretRef": {"name": "us"},
            "serverName": "inner.example",
            "insecureSkipVerify": True,
        },
    )
    key = model.SecretKeyRefFields(name="hook", key="a")
    assert found.headers[0].value_from.secret_key_ref == key
    assert found.signing.secret_key_refs == (key, model.SecretKeyRefFields(name="next", key="b.c"))
    assert found.auth.bearer.secret_key_ref == key
    assert found.tls == model.TlsFields(
        ca_ref=model.CaRefFields(config_map="ca", key="ca.crt"),
        client_certificate_secret_ref=model.SecretRefFields("us"),
        server_name="inner.example",
        insecure_skip_verify=True,
    )
    assert found.needs_secrets


@pytest.mark.parametrize(
    ("webhook", "path", "words"),
    [
        (
            {"auth": {"serviceAccountToken": {"serviceAccountName": "a", "audience": " "}}},
            "auth.serviceAccountToken.audience",
            "is empty",
        ),
        ({"url": "http://a.example/", "tls": {}}, "tls", "plain http"),
        ({"url": None, "service": {"name": "a"}, "tls": {}}, "tls", "scheme: https"),
        ({"format": "CloudEventsStructured", "method": "GET"}, "format", "GET has none"),
        (
            {"format": "CloudEventsBinary", "headers": [{"name": "CE-Id", "value": "x"}]},
            "headers[0].name",
            "CloudEventsBinary",
        ),
        (
            {
                "format": "CloudEventsStructured",
                "headers": [{"name": "Content-Type", "value": "x"}],
            },
            "headers[0].name",
            "CloudEventsStructured",
        ),
        (
            {"headers": [{"name": f"X-{n}", "value": "x" * 4_000} for n in range(20)]},
            "headers",
            "larger than 65536",
        ),
    ],
)
def test_what_is_wrong_is_named_with_what_to_write(webhook, path, words):
    found = refused(**webhook)
    assert [one.path for one in found] == [f"spec.webhook.{path}"]
    assert found[0].reason == "InvalidSpec" or "missing" in words
    assert words in found[0].message


@pytest.mark.parametrize(
    "webhook",
    [
        {"signing": {"secretKeyRefs": "x"}},
        {"auth": {"bearer": {}}},
        {"auth": {"serviceAccountToken": {"serviceAccountName": "a"}}},
        {"tls": {"caRef": {"secret": "x"}}},
    ],
)
def test_a_field_of_another_type_or_without_its_parts_is_named(webhook):
    (found,) = refused(**webhook)
    assert found.path.startswith("spec.webhook.")
