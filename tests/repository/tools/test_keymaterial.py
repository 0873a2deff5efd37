"""Certificates of the development cluster, checked by Python's own TLS."""

from __future__ import annotations

import ssl

import pytest

from tools.devcluster import keymaterial


@pytest.fixture
def folder(tmp_path):
    keymaterial.write(tmp_path)
    return tmp_path


def shaken(folder, name: str) -> None:
    """A TLS handshake in memory; raises ssl.SSLError where the client does not trust."""
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(folder / "server.crt", folder / "server.key")
    client_context = ssl.create_default_context(cafile=folder / "ca.crt")
    client_context.verify_flags |= ssl.VERIFY_X509_STRICT  # as Python 3.13 does by default
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname=name)
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    waiting = [client, server]
    for _ in range(10):
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                pass
    assert not waiting


@pytest.mark.parametrize("name", ["127.0.0.1", "10.0.0.1", "localhost", "kubernetes.default.svc"])
def test_a_client_that_knows_the_authority_trusts_the_api_server(folder, name):
    shaken(folder, name)


def test_the_api_server_is_trusted_under_no_other_name(folder):
    with pytest.raises(ssl.SSLCertVerificationError, match=r"example\.com"):
        shaken(folder, "example.com")


def test_nobody_else_reads_the_keys(folder):
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert {path.name for path in folder.iterdir()} == {
        "ca.crt",
        "server.crt",
        "server.key",
        "service-account.key",
        "service-account.pub",
    }
