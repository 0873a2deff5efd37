"""Certificates and keys of one development cluster.

An authority (ca.crt), the API server's certificate and key (server.crt, server.key), and the pair
that signs ServiceAccount tokens (service-account.key, service-account.pub). The authority's own key
is not kept: nothing is signed later.
"""

from __future__ import annotations

from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

NAMES = (
    "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
    "127.0.0.1", "10.0.0.1",
)  # fmt: skip


def write(folder: Path) -> None:
    """Write all files, readable by their owner alone."""
    authority = trustme.CA(organization_name="Duepoint development")
    server = authority.issue_cert(*NAMES, common_name="kube-apiserver")
    token_key = ec.generate_private_key(ec.SECP256R1())
    pem = serialization.Encoding.PEM
    private = token_key.private_bytes(
        pem, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    public = token_key.public_key().public_bytes(
        pem, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    for name, content in (
        ("ca.crt", authority.cert_pem.bytes()),
        ("server.crt", server.cert_chain_pems[0].bytes()),
        ("server.key", server.private_key_pem.bytes()),
        ("service-account.key", private),
        ("service-account.pub", public),
    ):
        path = folder / name
        path.touch(mode=0o600)
        path.write_bytes(content)
