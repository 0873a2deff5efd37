"""TLS contexts from Secrets: the authorities to trust and the client certificate to present.

A context is made once for the same material and cached, because the connection pool is keyed by
context: a new context for each delivery would need a handshake for each. The key is a digest of the
material, so the next delivery uses a rotated certificate and the old connections run dry. Contexts
are never shared between namespaces, nor between a URL and a Service: a user who could name
another's material would be given its open connections, past the egress rules.

Python holds the GIL while it reads certificates, for a second with a bundle of one megabyte, and a
context takes several times the bundle's size. So bundles are bounded, and the cache is bounded by
bytes with a share for each namespace. Every context that trusts the public authorities reads them
anew: Python cannot share them between contexts.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import ssl
import tempfile
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from duepoint import shares, tlsrules

#: Bounds of one bundle of authorities, and of one certificate with its chain or one key.
MOST_PEM_BYTES = 64 << 10
MOST_CERTIFICATES = 100
_BEGIN = b"BEGIN CERTIFICATE"

#: Bound of the cache, and the measured sizes of its contexts.
_MOST_BYTES = 64 << 20
_CONTEXT_BYTES = 16 << 10
_BYTES_PER_PEM_BYTE = 6
_PUBLIC_AUTHORITIES_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsMaterial:
    """Everything that a context is made from.

    Attributes:
        owner: who may share the context: namespace, and whether the receiver is a Service.
        ca: PEM certificates to trust instead of the public authorities; None = those.
        certificate, key: our client certificate, as PEM; None = present none.
        unverified: do not verify the receiver's certificate.
    """

    owner: tuple[str, bool]
    ca: bytes | None = field(default=None, repr=False)
    certificate: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)
    unverified: bool = False

    def digest(self) -> bytes:
        """Return the cache key, a hash, so that the private key itself is not kept."""
        hashed = hashlib.sha256(repr((self.owner, self.unverified)).encode())
        for part in (self.ca, self.certificate, self.key):
            hashed.update(b"-" if part is None else hashlib.sha256(part).digest())
        return hashed.digest()

    @property
    def context_bytes(self) -> int:
        """Return the approximate memory that the context takes."""
        pem = sum(len(part) for part in (self.ca, self.certificate, self.key) if part is not None)
        public = 0 if self.ca is not None else _PUBLIC_AUTHORITIES_BYTES
        return _CONTEXT_BYTES + _BYTES_PER_PEM_BYTE * pem + public


class Unusable(ValueError):
    """No context can be made from the material.

    Attributes:
        part: ``ca`` or ``certificate``.
    """

    def __init__(self, part: str, message: str) -> None:
        super().__init__(message)
        self.part = part


class TlsContexts:
    """Makes contexts and caches them."""

    def __init__(self) -> None:
        self._kept: shares.BytesCache[bytes, ssl.SSLContext] = shares.BytesCache(_MOST_BYTES)
        #: One lock per owner, so that no namespace waits for another's material.
        self._making: weakref.WeakValueDictionary[tuple[str, bool], asyncio.Lock]
        self._making = weakref.WeakValueDictionary()

    async def get(self, wanted: TlsMaterial) -> ssl.SSLContext:
        """Return the context, from the cache if possible; raises Unusable."""
        namespace, digest = wanted.owner[0], wanted.digest()
        if (found := self._kept.get(namespace, digest)) is None:
            making = self._making.setdefault(wanted.owner, asyncio.Lock())
            async with making:  # only one of many concurrent callers makes it
                if (found := self._kept.get(namespace, digest)) is None:
                    # In a thread: reading the public authorities would block the loop too long.
                    found = await asyncio.to_thread(made, wanted)
                    self._kept.put(namespace, digest, found, wanted.context_bytes)
        return found


def made(wanted: TlsMaterial) -> ssl.SSLContext:
    """Return a new context; raises Unusable."""
    _require_few(
        "ca", wanted.ca, "write only those that sign for this server, or none for the public ones"
    )
    for part in (wanted.certificate, wanted.key):
        _require_few("certificate", part, "write the certificate and those between it and its root")
    try:
        ca = None if wanted.ca is None else wanted.ca.decode("ascii")
        context = tlsrules.client_context(cadata=ca)
    except (ssl.SSLError, UnicodeDecodeError, ValueError):
        raise Unusable("ca", "holds no PEM certificates (-----BEGIN CERTIFICATE-----)") from None
    if wanted.unverified:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if wanted.certificate is not None and wanted.key is not None:
        try:
            with _file(wanted.certificate + b"\n" + wanted.key) as path:
                context.load_cert_chain(path, password=_no_passphrase)
        except (ssl.SSLError, OSError, ValueError):
            raise Unusable(
                "certificate",
                "tls.crt and tls.key are not a PEM certificate with its own, unencrypted key",
            ) from None
    return context


def _require_few(part: str, pem: bytes | None, remedy: str) -> None:
    if pem is None:
        return
    count = pem.count(_BEGIN)
    if len(pem) > MOST_PEM_BYTES or count > MOST_CERTIFICATES:
        raise Unusable(
            part,
            f"holds {count} certificates in {len(pem)} bytes; at most {MOST_CERTIFICATES} in "
            f"{MOST_PEM_BYTES} bytes are read: {remedy}",
        )


def _no_passphrase() -> str:
    """Fail instead of letting OpenSSL ask for a passphrase on the terminal."""
    raise ValueError


@contextlib.contextmanager
def _file(content: bytes) -> Iterator[str]:
    """Yield the path of a file for OpenSSL: in memory if the system can, else temporary."""
    if not hasattr(os, "memfd_create"):
        with tempfile.NamedTemporaryFile() as opened:  # readable by this user alone
            opened.write(content)
            opened.flush()
            yield opened.name
        return
    number = os.memfd_create("certificate")
    try:
        with Path(f"/proc/self/fd/{number}").open("wb") as opened:
            opened.write(content)
        yield f"/proc/self/fd/{number}"
    finally:
        os.close(number)
