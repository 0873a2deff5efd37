"""`duepoint webhook test` with a cluster: Secrets, tokens, Services by the user's rights."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest
import standardwebhooks
from click.testing import CliRunner

from duepoint import cli
from duepoint.kube import api, credentials
from duepoint.kube import errors as kube_errors
from duepoint.kube import secrets as kube_secrets
from tests.support import receiver, vaults


def manifest(namespace: str, **webhook) -> str:
    document = {
        "apiVersion": "duepoint.dev/v1alpha1",
        "kind": "Schedule",
        "metadata": {"name": "nightly", "namespace": namespace},
        "spec": {"schedule": "@daily", "webhook": webhook},
    }
    return json.dumps(document)


async def run(control_plane, text, *arguments):
    command = (
        "webhook", "test", "-f", "-", "--kubeconfig", str(control_plane.kubeconfig), *arguments,
    )  # fmt: skip
    return await asyncio.to_thread(CliRunner().invoke, cli.commands, command, input=text)


@pytest.fixture
async def write(control_plane, kube_namespace):
    admin = control_plane.admin()
    document = vaults.a_secret("hook", kube_namespace, a=vaults.WHSEC)
    path = f"/api/v1/namespaces/{kube_namespace}/secrets"
    await asyncio.to_thread(admin.post, path, document)


async def test_a_secret_that_was_not_given_is_read_from_the_cluster(
    control_plane, kube_namespace, write
):
    async with receiver.listening() as hears:
        text = manifest(
            kube_namespace,
            url=f"http://127.0.0.1:{hears.port}/",
            signing={"secretKeyRefs": [{"name": "hook", "key": "a"}]},
        )
        result = await run(control_plane, text)
    assert result.exit_code == 0, result.output
    (request,) = hears.requests
    standardwebhooks.Webhook(vaults.WHSEC).verify(request.body, dict(request.headers))


def allow_tokens(control_plane, namespace, audience):
    control_plane.admin().apply(
        f"/api/v1/namespaces/{namespace}/serviceaccounts/default",
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {
                "name": "default",
                "namespace": namespace,
                "annotations": {"duepoint.dev/token-audiences": audience},
            },
        },
    )


async def test_a_token_is_made_by_the_cluster(control_plane, kube_namespace):
    await asyncio.to_thread(allow_tokens, control_plane, kube_namespace, "billing")
    auth = {"serviceAccountToken": {"serviceAccountName": "default", "audience": "billing"}}
    async with receiver.listening() as hears:
        text = manifest(kube_namespace, url=f"http://127.0.0.1:{hears.port}/", auth=auth)
        result = await run(control_plane, text)
    assert result.exit_code == 0, result.output
    token = (hears.requests[0].header("authorization") or "").removeprefix("Bearer ")
    payload = token.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert claims["aud"] == ["billing"]
    assert claims["sub"] == f"system:serviceaccount:{kube_namespace}:default"
    assert token not in result.output


async def test_the_issuers_own_audience_is_refused_whatever_it_is_called(
    control_plane, kube_namespace
):
    """Learned from the token itself: no setting names this API server's issuer."""
    access = credentials.of_kubeconfig(control_plane.kubeconfig)
    async with api.ApiSession(access, component="test") as session:
        made = await kube_secrets.token(session, kube_namespace, "default", "billing")
        payload = made.text.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        with pytest.raises(kube_errors.NotFound):
            await kube_secrets.token(session, kube_namespace, "absent", "billing")
    await asyncio.to_thread(allow_tokens, control_plane, kube_namespace, claims["iss"])
    account = {"serviceAccountName": "default", "audience": claims["iss"]}
    text = manifest(kube_namespace, url="https://a.example/", auth={"serviceAccountToken": account})
    result = await run(control_plane, text)
    assert result.exit_code == 2
    assert "is the API server's own" in result.stderr
