"""Certificates and keys of one development cluster.

An authority (ca.crt), the API server's certificate and key (server.crt, server.key), and the pair
that signs ServiceAccount tokens (service-account.key, service-account.pub). The authority's own key
is forgotten: nothing is signed later. Certificates last a year, a cluster some days.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DNS_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
ADDRESSES = ("127.0.0.1", "10.0.0.1")
_LIFE = dt.timedelta(days=365)
#: A clock that is set back a little locks no client out.
_BEFORE = dt.timedelta(hours=1)


def write(folder: Path) -> None:
    """All files, readable by their owner alone."""
    authority_key, server_key, token_key = (
        ec.generate_private_key(ec.SECP256R1()) for _ in range(3)
    )
    authority_name = _name("duepoint-development-ca")
    authority = (
        _begun(authority_name, authority_name, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    addresses = [x509.IPAddress(ipaddress.ip_address(one)) for one in ADDRESSES]
    names = [*map(x509.DNSName, DNS_NAMES), *addresses]
    server = (
        _begun(_name("kube-apiserver"), authority_name, server_key.public_key())
        .add_extension(issuer, critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    public = token_key.public_key().public_bytes(
        pem, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    for name, content in (
        ("ca.crt", authority.public_bytes(pem)),
        ("server.crt", server.public_bytes(pem)),
        ("server.key", _private(server_key)),
        ("service-account.key", _private(token_key)),
        ("service-account.pub", public),
    ):
        path = folder / name
        path.touch(mode=0o600)
        path.write_bytes(content)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + _LIFE)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
