"""TLS as one webhook wants it: whom it trusts, and whom we show ourselves as.

A context is made once for what stands in the Secrets and kept, because connections are kept alive
by context: a new one for each delivery would be a handshake for each. What is in it decides which
one it is, so a rotated certificate is used from the next delivery on and the old connections run
dry. Contexts are never shared between namespaces, nor between a URL and a Service: a user who
could name another's would be given its open connections, past the egress rules.

Python reads certificates while it holds its lock, for a second where a bundle has a megabyte, and a
context takes several times the bundle's size. So a bundle has a bound, and contexts are kept by
bytes with a share for each namespace. The public authorities are read for every context that trusts
them: Python offers no way to share them between contexts.
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

#: Of one bundle of authorities, and of one certificate with its chain and key.
MOST_PEM_BYTES = 64 << 10
MOST_CERTIFICATES = 100
_MARK = b"BEGIN CERTIFICATE"

#: All contexts that are kept, as large as these were measured to be.
_MOST_BYTES = 64 << 20
_CONTEXT_BYTES = 16 << 10
_BYTES_PER_PEM_BYTE = 6
_PUBLIC_AUTHORITIES_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsMaterial:
    """Everything that makes a context.

    Attributes:
        owner: who may share it: namespace, and whether a Service is called.
        ca: PEM certificates trusted instead of the public ones; None = those.
        certificate, key: ours, as PEM; None = we show none.
        unverified: the receiver's certificate is not looked at.
    """

    owner: tuple[str, bool]
    ca: bytes | None = field(default=None, repr=False)
    certificate: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)
    unverified: bool = False

    def digest(self) -> bytes:
        """What it is kept under; the key itself is not kept."""
        hashed = hashlib.sha256(repr((self.owner, self.unverified)).encode())
        for part in (self.ca, self.certificate, self.key):
            hashed.update(b"-" if part is None else hashlib.sha256(part).digest())
        return hashed.digest()

    @property
    def context_bytes(self) -> int:
        """About the memory that its context takes."""
        pem = sum(len(part) for part in (self.ca, self.certificate, self.key) if part is not None)
        public = 0 if self.ca is not None else _PUBLIC_AUTHORITIES_BYTES
        return _CONTEXT_BYTES + _BYTES_PER_PEM_BYTE * pem + public


class Unusable(ValueError):
    """What stands in the Secrets makes no context.

    Attributes:
        part: ``ca`` or ``certificate``.
    """

    def __init__(self, part: str, message: str) -> None:
        super().__init__(message)
        self.part = part


class TlsContexts:
    """Makes contexts, and keeps them."""

    def __init__(self) -> None:
        self._kept: shares.BytesCache[bytes, ssl.SSLContext] = shares.BytesCache(_MOST_BYTES)
        #: By owner, so that the material of one namespace keeps no other waiting.
        self._making: weakref.WeakValueDictionary[tuple[str, bool], asyncio.Lock]
        self._making = weakref.WeakValueDictionary()

    async def get(self, wanted: TlsMaterial) -> ssl.SSLContext:
        """The context; raises Unusable."""
        namespace, digest = wanted.owner[0], wanted.digest()
        if (found := self._kept.get(namespace, digest)) is None:
            making = self._making.setdefault(wanted.owner, asyncio.Lock())
            async with making:  # of many that ask at a time, one makes it
                if (found := self._kept.get(namespace, digest)) is None:
                    # In a thread: reading the public authorities takes longer than others may wait.
                    found = await asyncio.to_thread(made, wanted)
                    self._kept.put(namespace, digest, found, wanted.context_bytes)
        return found


def made(wanted: TlsMaterial) -> ssl.SSLContext:
    """A new context; raises Unusable."""
    _require_few(
        "ca", wanted.ca, "write those alone that sign for this server, or none for the public ones"
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
                "tls.crt and tls.key are no PEM certificate with its own, unencrypted key",
            ) from None
    return context


def _require_few(part: str, pem: bytes | None, remedy: str) -> None:
    if pem is None:
        return
    count = pem.count(_MARK)
    if len(pem) > MOST_PEM_BYTES or count > MOST_CERTIFICATES:
        raise Unusable(
            part,
            f"holds {count} certificates in {len(pem)} bytes; at most {MOST_CERTIFICATES} in "
            f"{MOST_PEM_BYTES} bytes are read: {remedy}",
        )


def _no_passphrase() -> str:
    """Without it OpenSSL would ask on the terminal."""
    raise ValueError


@contextlib.contextmanager
def _file(content: bytes) -> Iterator[str]:
    """A file that OpenSSL can read and no disk ever holds, where the system has such."""
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
