"""Certificates for tests, and the authorities that sign them."""

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
        """Return a receiver's TLS context; with ``client_ca`` clients need its certificate."""
        file = folder / "serving.pem"
        file.write_bytes(self.certificate + self.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        if client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=client_ca.decode())
        return context


class Authority:
    """A certificate authority.

    Attributes:
        pem: its own certificate.

    Args:
        is_old: make certificates as EKS and MicroK8s do: without key identifiers, its own without
            key usage. Since 3.13 Python refuses them unless it is told to be lenient.
        signer: the authority above it; without one it is a root.
        is_entitled: whether its certificate says that it may sign.
    """

    def __init__(
        self,
        name: str = "tests",
        *,
        is_old: bool = False,
        signer: Authority | None = None,
        is_entitled: bool = True,
    ) -> None:
        self._is_old = is_old
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        above = signer or self
        begun = _begun(self._name, above._name, self._key)
        basic = x509.BasicConstraints(ca=is_entitled, path_length=None)
        extended = above._identified(begun.add_extension(basic, critical=True), self._key)
        if is_entitled and not is_old:
            usage = x509.KeyUsage(
                *(False,) * 5, key_cert_sign=True, crl_sign=True, encipher_only=False,
                decipher_only=False,
            )  # fmt: skip
            extended = extended.add_extension(usage, critical=True)
        self.pem = _pem(above._signed(extended))

    def signs(self, *names: str, expired: bool = False) -> Pair:
        """Return a pair for these host names and addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        begun = _begun(_name(names[0]), self._name, key, expired=expired)
        alternatives = x509.SubjectAlternativeName([_general(one) for one in names])
        extended = self._identified(begun.add_extension(alternatives, critical=False), key)
        return Pair(
            _pem(self._signed(extended)),
            _key_pem(key),
        )

    def _identified(
        self, begun: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey
    ) -> x509.CertificateBuilder:
        if self._is_old:
            return begun
        own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return begun.add_extension(own, critical=False).add_extension(signer, critical=False)

    def _signed(self, extended: x509.CertificateBuilder) -> x509.Certificate:
        return extended.sign(self._key, hashes.SHA256())


def self_signed(*names: str) -> Pair:
    """Return a pair for these names that no authority signed, like ``openssl req -x509``."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(names[0])
    alternatives = x509.SubjectAlternativeName([_general(one) for one in names])
    basic = x509.BasicConstraints(ca=True, path_length=None)
    begun = _begun(name, name, key).add_extension(alternatives, critical=False)
    signed = begun.add_extension(basic, critical=True).sign(key, hashes.SHA256())
    return Pair(_pem(signed), _key_pem(key))


@functools.cache
def authority(name: str = "tests") -> Authority:
    """Return an authority, the same one for the whole test run."""
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


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
