"""Clusters and servers whose authority is of an older make than newer Pythons like."""

from __future__ import annotations

import json
from urllib.parse import urlsplit

from duepoint import tlsrules
from tests.support import certificates, proxy, tlsservers
from tests.support.builders import JOB_TEMPLATE
from tests.support.tlsfiles import Authority


async def test_a_cluster_and_a_redis_without_key_identifiers_are_worked_with(stack, tmp_path):
    """Seen on Python 3.13: before it nothing looked at them."""
    old = certificates.Authority("cluster", is_old=True)
    serving = old.signs("127.0.0.1").serving(tmp_path)
    upstream = urlsplit(stack.plane.server)
    trusting = tlsrules.client_context(cafile=str(stack.plane.ca_file))
    cluster = proxy.Proxy(upstream.hostname, upstream.port, tls=serving, target_tls=trusting)
    authority = Authority(tmp_path / "redis-ca", is_old=True)
    issued = authority.issue("redis", "127.0.0.1")
    await cluster.accept()
    try:
        with tlsservers.tls_server("valkey", tmp_path / "redis", authority, issued) as redis:
            processes = [
                start(
                    KUBECONFIG=str(_login(stack, role, f"https://127.0.0.1:{cluster.port}", old)),
                    redis_url=redis.url_of(role),
                    redis_ca_file=str(authority.file),
                )
                for role, start in (("operator", stack.operator), ("worker", stack.worker))
            ]
            for process in processes:
                await process.wait_until_ready()
            await stack.apply("task", {"schedule": "@every 2s", "jobTemplate": JOB_TEMPLATE})
            await stack.wait_for_job("task", 2)
            assert cluster.connections > 2
    finally:
        await cluster.refuse()


def _login(stack, role, server, authority):
    path = stack.login(role, server)
    document = json.loads(path.read_text())
    (path.parent / "ca.pem").write_bytes(authority.pem)
    document["clusters"][0]["cluster"]["certificate-authority"] = str(path.parent / "ca.pem")
    path.write_text(json.dumps(document))
    return path
