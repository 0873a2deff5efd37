"""Logins against a real API server: certificates, a Pod's files, rights that are missing."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from duepoint.kube import api, credentials, errors, jobs, leases, port
from duepoint.services import Health
from tests.support.controlplane import ControlPlane


def a_kubeconfig(folder: Path, plane: ControlPlane, cluster: Any, user: Any) -> Path:
    document = {
        "current-context": "x",
        "clusters": [{"name": "c", "cluster": {"server": plane.server, **cluster}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    }
    path = folder / "config"
    path.write_text(json.dumps(document))
    return path


def encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


async def is_answered(access: credentials.Credentials) -> bool:
    async with api.ApiSession(access, component="test") as session:
        return b"gitVersion" in await session.request("GET", "/version")


async def test_the_authority_may_stand_in_the_file_or_beside_it(
    control_plane: ControlPlane, tmp_path: Path
):
    shutil.copy(control_plane.ca_file, tmp_path / "ca.pem")
    user = {"token": control_plane.admin_token}
    for cluster in (
        {"certificate-authority": "ca.pem"},
        {"certificate-authority-data": encoded(control_plane.ca_file)},
        {"insecure-skip-tls-verify": True},
    ):
        path = a_kubeconfig(tmp_path, control_plane, cluster, user)
        assert await is_answered(credentials.of_kubeconfig(path))


async def test_a_client_certificate_is_loaded_from_the_file_or_beside_it(
    control_plane: ControlPlane, tmp_path: Path
):
    """Any pair will do to see that it is loaded: the server's own is at hand."""
    own = control_plane.ca_file.parent
    cluster = {"certificate-authority": str(control_plane.ca_file)}
    for user in (
        {"client-certificate": str(own / "server.crt"), "client-key": str(own / "server.key")},
        {
            "client-certificate-data": encoded(own / "server.crt"),
            "client-key-data": encoded(own / "server.key"),
        },
    ):
        path = a_kubeconfig(tmp_path, control_plane, cluster, user)
        login = await credentials.of_kubeconfig(path).login()
        assert login.ssl
        assert not login.token


async def test_the_files_of_a_pod_are_enough(
    control_plane: ControlPlane, kube_namespace: str, tmp_path: Path
):
    host, port = control_plane.server.removeprefix("https://").rsplit(":", 1)
    token = control_plane.service_account_token(kube_namespace, "pod")
    shutil.copy(control_plane.ca_file, tmp_path / "ca.crt")
    (tmp_path / "token").write_text(token)
    (tmp_path / "namespace").write_text(kube_namespace)
    environment = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    access = credentials.in_cluster(environment, tmp_path)
    assert access
    assert (await access.login()).namespace == kube_namespace
    assert await is_answered(access)


async def test_missing_rights_are_told_as_such_and_never_as_an_empty_list(
    control_plane: ControlPlane, kube_namespace: str, tmp_path: Path
):
    path = control_plane.service_account_kubeconfig(kube_namespace, "nobody", tmp_path)
    async with api.ApiSession(credentials.of_kubeconfig(path), component="test") as session:
        with pytest.raises(errors.Forbidden) as refused:
            await port.listed(session, jobs.collection(kube_namespace), jobs.Job, {})
        assert refused.value.is_about_rights
        with pytest.raises(errors.Forbidden):
            await leases.KubeLease(session, kube_namespace, "l", Health()).get()
        with pytest.raises(errors.Forbidden):
            async for _ in session.watch(jobs.collection(kube_namespace), jobs.Job, "1"):
                pass
