"""The processes of `make up` log in with tokens of their own, kept in files."""

from __future__ import annotations

import json

import pytest
from aiohttp.test_utils import TestClient, TestServer

from tools.devcluster import apiserver
from tools.up import accounts, receiver
from tools.up.kubectl import Kubectl


@pytest.fixture
def account(control_plane, kube_namespace, monkeypatch):
    monkeypatch.setattr(accounts, "NAMESPACE", kube_namespace)
    control_plane.service_account_token(kube_namespace, "somebody")
    return "somebody"


def test_a_kubeconfig_follows_its_token_file(control_plane, kube_namespace, account, tmp_path):
    kubectl = Kubectl(str(control_plane.kubeconfig))
    server = accounts.server_of(kubectl, tmp_path)
    path = accounts.write_kubeconfig(tmp_path, server, account)
    accounts.renew(kubectl, tmp_path, account)
    first = accounts.token_file(tmp_path, account).read_text()

    assert Kubectl(str(path)).run(
        "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"
    ) == (f"system:serviceaccount:{kube_namespace}:{account}")

    control_plane.admin().delete(f"/api/v1/namespaces/{kube_namespace}/serviceaccounts/{account}")
    control_plane.service_account_token(kube_namespace, account)
    accounts.renew(kubectl, tmp_path, account)
    assert accounts.token_file(tmp_path, account).read_text() != first
    assert "system:serviceaccount" in Kubectl(str(path)).run("auth", "whoami")


def test_the_server_is_verified_with_the_authority_that_was_written(control_plane, tmp_path):
    server = accounts.server_of(Kubectl(str(control_plane.kubeconfig)), tmp_path)

    client = apiserver.Client(server.url, server.ca_file, control_plane.admin_token)

    assert client.is_ready()


async def test_the_receiver_writes_down_what_arrives(tmp_path):
    file = tmp_path / "deliveries.jsonl"
    async with TestClient(TestServer(receiver.application(file))) as client:
        answer = await client.post(
            "/hooks/a", data=b"\xff not json", headers={"webhook-id": "msg_1"}
        )
        assert answer.status == 204

    line = json.loads(file.read_text())
    assert (line["path"], line["id"]) == ("/hooks/a", "msg_1")
