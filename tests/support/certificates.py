"""Certificates for tests: an authority, and what it signs."""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclasses.dataclass(frozen=True)
class Pair:
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes

    def serving(self, folder: Path, *, client_ca: bytes | None = None) -> ssl.SSLContext:
        """For a receiver; with ``client_ca`` it lets in only whom that has signed."""
        file = folder / "serving.pem"
        file.write_bytes(self.certificate + self.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        if client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=client_ca.decode())
        return context


class Authority:
    """Signs certificates."""

    def __init__(self, name: str = "tests") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        basic = x509.BasicConstraints(ca=True, path_length=None)
        made = _begun(self._name, self._name, self._key).add_extension(basic, critical=True)
        usage = x509.KeyUsage(
            *(False,) * 5, key_cert_sign=True, crl_sign=True, encipher_only=False,
            decipher_only=False,
        )  # fmt: skip
        signed = made.add_extension(usage, critical=True).sign(self._key, hashes.SHA256())
        self.pem = signed.public_bytes(serialization.Encoding.PEM)

    def signs(self, *names: str, expired: bool = False) -> Pair:
        """A pair for these host names and addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        begun = _begun(_name(names[0]), self._name, key, expired=expired)
        alternatives = x509.SubjectAlternativeName([_general(one) for one in names])
        signed = begun.add_extension(alternatives, critical=False).sign(self._key, hashes.SHA256())
        return Pair(
            signed.public_bytes(serialization.Encoding.PEM),
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
        )


@functools.cache
def authority(name: str = "tests") -> Authority:
    """One for a whole test run."""
    return Authority(name)


def _begun(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    *,
    expired: bool = False,
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    end = now - dt.timedelta(days=1) if expired else now + dt.timedelta(days=1)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=2))
        .not_valid_after(end)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
