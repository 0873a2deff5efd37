"""Signatures of webhooks by the Standard Webhooks specification: signs requests and verifies them.

``webhook-signature`` is a list with one entry for each secret, so that a receiver that has only the
old or only the new secret accepts the request during a rotation. ``whsec_`` secrets sign with
HMAC-SHA256 (``v1``). The signature covers the id, this attempt's time and the exact bytes of the
body. Pure; no message contains a secret.

Rules: github.com/standard-webhooks/standard-webhooks, spec/standard-webhooks.md.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Iterable

_PREFIX = "whsec_"
#: Length of a secret in bytes: fewer can be guessed, more add nothing.
_KEY_BYTES = range(24, 65)


def key_of(secret: str) -> bytes:
    """Return the key in the text of a secret; raises ValueError if it is malformed."""
    text = secret.strip()
    if not text.startswith(_PREFIX):
        raise ValueError(
            f'does not begin with {_PREFIX}; make one with: echo "{_PREFIX}'
            '$(openssl rand -base64 32)"'
        )
    encoded = text.removeprefix(_PREFIX)
    try:
        key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        # Drop the cause: it might quote the secret.
        raise ValueError(f"is not base64 after {_PREFIX}") from None
    if len(key) not in _KEY_BYTES:
        raise ValueError(
            f"holds {len(key)} bytes after {_PREFIX}; "
            f"write {_KEY_BYTES.start} to {_KEY_BYTES.stop - 1} random ones as base64"
        )
    return key


def header(keys: Iterable[bytes], webhook_id: str, timestamp: str, body: bytes) -> str:
    """Return the value of ``webhook-signature``, with an entry such as ``v1,K5oZ...`` for a key."""
    content = f"{webhook_id}.{timestamp}.".encode() + body
    digests = [hmac.digest(key, content, "sha256") for key in keys]
    return " ".join([f"v1,{base64.b64encode(digest).decode()}" for digest in digests])


def accepts(key: bytes, webhook_id: str, timestamp: str, body: bytes, signature: str) -> bool:
    """Whether an entry of a ``webhook-signature`` was made with this key."""
    wanted = header([key], webhook_id, timestamp, body).encode()
    return any(hmac.compare_digest(wanted, entry.encode()) for entry in signature.split())
