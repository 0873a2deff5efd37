"""Signatures of webhooks by the Standard Webhooks specification: signs requests and verifies them.

``webhook-signature`` is a list with one entry for each secret, so that a receiver that has only the
old or only the new secret accepts the request during a rotation. ``whsec_`` secrets sign with
HMAC-SHA256 (``v1``), ``whsk_`` keys with ed25519 (``v1a``). Receivers verify the latter with the
public ``whpk_`` key and cannot forge it. The signature covers the id, this attempt's time and the
exact bytes of the body. Pure; no message contains a secret. The ed25519 library is imported with
the first such key, because it costs memory that most workers never need.

Rules: github.com/standard-webhooks/standard-webhooks, spec/standard-webhooks.md.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ed25519

HMAC_PREFIX = "whsec_"
PRIVATE_PREFIX = "whsk_"
PUBLIC_PREFIX = "whpk_"


@dataclass(frozen=True, slots=True)
class Hmac:
    """HMAC-SHA256 with a shared secret."""

    key: bytes = field(repr=False)

    def sign(self, content: bytes) -> str:
        """Return an entry of the header, such as ``v1,K5oZ...``."""
        return "v1," + _text(hmac.digest(self.key, content, "sha256"))

    def accepts(self, content: bytes, entry: str) -> bool:
        """Whether an entry of the header is a valid signature of this content."""
        return hmac.compare_digest(self.sign(content).encode(), entry.encode())


@dataclass(frozen=True, slots=True)
class Ed25519:
    """ed25519; with a public key alone it only verifies."""

    public: ed25519.Ed25519PublicKey = field(repr=False)
    private: ed25519.Ed25519PrivateKey | None = field(default=None, repr=False)

    def sign(self, content: bytes) -> str:
        if self.private is None:
            raise ValueError("a public key does not sign")
        return "v1a," + _text(self.private.sign(content))

    def accepts(self, content: bytes, entry: str) -> bool:
        from cryptography import exceptions  # noqa: PLC0415 - see above

        version, _, text = entry.partition(",")
        if version != "v1a":
            return False
        try:
            self.public.verify(base64.b64decode(text, validate=True), content)
        except (exceptions.InvalidSignature, ValueError):
            return False
        return True


Signer = Hmac | Ed25519


def signer(text: str) -> Signer:
    """Return the signer for a secret's text; raises ValueError if the secret is malformed."""
    text = text.strip()
    if text.startswith(HMAC_PREFIX):
        return Hmac(_key(text, HMAC_PREFIX, range(24, 65), "24 to 64 random bytes"))
    if not text.startswith(PRIVATE_PREFIX):
        raise ValueError(
            f"does not begin with {HMAC_PREFIX} or {PRIVATE_PREFIX}; make one with: "
            f'echo "{HMAC_PREFIX}$(openssl rand -base64 32)"'
        )
    from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415 - see above

    # 64 bytes are the seed and the public key, as libsodium writes them.
    key = _key(text, PRIVATE_PREFIX, (32, 64), "an ed25519 key of 32 or 64 bytes")
    private = ed25519.Ed25519PrivateKey.from_private_bytes(key[:32])
    public = private.public_key()
    if key[32:] not in (b"", public.public_bytes_raw()):
        raise ValueError("holds a public key that is not its private key's")
    return Ed25519(public, private)


def verifier(text: str) -> Signer:
    """Return a verifier from a ``whsec_`` or ``whpk_`` text, or the public half of a ``whsk_``."""
    text = text.strip()
    if not text.startswith(PUBLIC_PREFIX):
        return signer(text)
    from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415 - see above

    key = _key(text, PUBLIC_PREFIX, (32,), "an ed25519 public key of 32 bytes")
    return Ed25519(ed25519.Ed25519PublicKey.from_public_bytes(key))


def signed_content(webhook_id: str, timestamp: str, body: bytes) -> bytes:
    """Return the bytes to sign."""
    return f"{webhook_id}.{timestamp}.".encode() + body


def header(signers: Iterable[Signer], webhook_id: str, timestamp: str, body: bytes) -> str:
    """Return the value of ``webhook-signature``."""
    content = signed_content(webhook_id, timestamp, body)
    return " ".join([one.sign(content) for one in signers])


def _key(text: str, prefix: str, lengths: Container[int], wanted: str) -> bytes:
    encoded = text.removeprefix(prefix)
    try:
        key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        # Drop the cause: it might quote the secret.
        raise ValueError(f"is not base64 after {prefix}") from None
    if len(key) not in lengths:
        raise ValueError(f"holds {len(key)} bytes after {prefix}; write {wanted} as base64")
    return key


def _text(signature: bytes) -> str:
    return base64.b64encode(signature).decode()
