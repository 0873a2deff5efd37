"""Which certificates Duepoint's own clients accept: the same on every version of Python.

Since Python 3.13 ``ssl.create_default_context`` sets VERIFY_X509_STRICT. That flag refuses a chain
for its form, such as a certificate without an Authority Key Identifier, or a CA certificate without
key usage. The CAs of EKS and MicroK8s clusters, of Kafka under Strimzi, and many made by hand issue
such certificates. kubectl and other clients accept them, and people who run Duepoint can seldom
replace them. So the flag is cleared: a newer Python must not stop an installation that works. The
checks that prove a server's identity stay: each signature up to a trusted certificate, the dates,
the host's name, and that each CA certificate is one.

VERIFY_X509_PARTIAL_CHAIN, of the same version, is set everywhere: a certificate that is listed as
trusted is trusted, whether it is a root or an intermediate CA. kubectl does the same.
Only this module makes TLS contexts of clients; docs/design/targets.md says why.
"""

from __future__ import annotations

import os
import ssl
from pathlib import Path


class NamedServer(ssl.SSLContext):
    """A TLS context that verifies one server name, whatever address a connection uses.

    Attributes:
        server_name: the name to request (SNI) and to verify.
    """

    server_name = ""

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,  # noqa: FBT001, FBT002 - as ssl has it
        server_hostname: str | bytes | None = None,  # noqa: ARG002 - the address
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        return super().wrap_bio(incoming, outgoing, server_side, self.server_name, session)


def client_context(
    *,
    cafile: str | os.PathLike[str] | None = None,
    cadata: str | None = None,
    server_name: str | None = None,
) -> ssl.SSLContext:
    """Return a new context that verifies servers and their names.

    Args:
        cafile: PEM file of the CAs to trust; if cadata is None as well, those of the system are
            trusted.
        cadata: the same as PEM text.
        server_name: the name to verify, instead of the host of the connection.

    Raises:
        OSError, ValueError: the file cannot be read, or holds no PEM certificate.
    """
    context: ssl.SSLContext
    if server_name:
        context = named = NamedServer(ssl.PROTOCOL_TLS_CLIENT)  # verifies certificate and name
        named.server_name = server_name
        if cafile is not None or cadata is not None:
            context.load_verify_locations(cafile=cafile, cadata=cadata)
        else:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        context = ssl.create_default_context(cafile=cafile, cadata=cadata)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def key_beside(cert_file: Path) -> Path | None:
    """Return the key file of a certificate, ``tls.key`` beside it; None = in the same file."""
    key_file = cert_file.with_name("tls.key")
    return key_file if key_file.is_file() else None


def trusting_no_authority() -> ssl.SSLContext:
    """Return a context that refuses every server, for libraries that want one without TLS."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
