"""Signed blobs: the targets of definitions, which cannot be forged or borrowed.

A blob (a target: a Job template, a webhook, a stream) is stored once per content and namespace.
Its name is an HMAC-SHA256 over namespace and content, cut to 144 bits. A reader computes the name
again, so that an intruder with write access to Redis but without the key can neither alter a blob
nor give one namespace the blob of another. Stored value, format 1: one byte 1, four bytes that say
which key was used (a hash of it), the content deflated. Pure.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import zlib
from collections.abc import Iterable

from duepoint import errors
from duepoint.delayqueue import errors as queue_errors
from duepoint.schedules import definition as definitions

_FORMAT = b"\x01"
_KEY_NAME_LENGTH = 4
_BLOCK_LENGTH = 64
_KIND_LENGTH = 8
_DIGEST_LENGTH = 18  # bytes; 24 characters of base64 without padding
#: Largest content that is read, in bytes: a forged one must not fill the memory.
CONTENT_LIMIT = 4 * 1024 * 1024
_KEPT_LIMIT = 4_096  # bytes of a content whose digest is kept


class SignedBlobs:
    """Signs and verifies blobs with one key."""

    def __init__(self, key: bytes) -> None:
        if len(key) < 16:
            raise errors.InvalidSetting("blob_key", "is shorter than 16 bytes; use 32 random bytes")
        # HMAC-SHA256 (RFC 2104) in two hashes whose first block is done: hmac.digest, which begins
        # anew for each text, takes three times as long, and each row with a payload has one.
        block = (hashlib.sha256(key).digest() if len(key) > _BLOCK_LENGTH else key).ljust(
            _BLOCK_LENGTH, b"\0"
        )
        self._inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in block))
        self._outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in block))
        # Schedules made from one template need the same digest again and again.
        self._digests = functools.lru_cache(maxsize=2_048)(self._digest)
        self._members_of = functools.lru_cache(maxsize=256)(self._begun_of_members)
        self._key_name = hashlib.sha256(b"duepoint key name\n" + key).digest()[:_KEY_NAME_LENGTH]

    def digest(self, namespace: str, content: bytes) -> str:
        """Return the name of this content in this namespace."""
        if len(content) > _KEPT_LIMIT:
            return self._digest(namespace, content)
        return self._digests(namespace, content)

    def _digest(self, namespace: str, content: bytes) -> str:
        mac = self.mac(namespace, content)
        return base64.urlsafe_b64encode(mac[:_DIGEST_LENGTH]).decode()

    def mac(self, namespace: str, content: bytes) -> bytes:
        """Return the keyed hash of a content in a namespace: 32 bytes."""
        return self._finished(self._inner, namespace.encode() + b"\n" + content)

    def kind_digest(self, text: bytes) -> bytes:
        """Return the name of the text of a kind (``kinds``): 8 bytes."""
        return self._finished(self._inner, b"\nkind\n" + text)[:_KIND_LENGTH]

    def payload_mac(self, namespace: str, uid: str, name: str, payload: bytes) -> bytes:
        """Return the signature of a member's payload, valid for this uid of this member alone."""
        (mac,) = self.payload_macs(namespace, [(uid, name, payload)])
        return mac

    def payload_macs(self, namespace: str, listed: Iterable[tuple[str, str, bytes]]) -> list[bytes]:
        """Return ``payload_mac`` of each uid, name and payload."""
        begin_inner, begin_outer = self._members_of(namespace).copy, self._outer.copy
        macs = []
        for uid, name, payload in listed:
            inner, outer = begin_inner(), begin_outer()
            inner.update(f"{uid} {name}\n".encode() + payload)
            outer.update(inner.digest())
            macs.append(outer.digest()[: definitions.PAYLOAD_MAC_LENGTH])
        return macs

    def _begun_of_members(self, namespace: str) -> hashlib._Hash:
        """Return the inner hash of ``mac`` after the common beginning of all members' contents."""
        inner = self._inner.copy()
        inner.update(f"{namespace}\nmember\n".encode())
        return inner

    def _finished(self, begun: hashlib._Hash, rest: bytes) -> bytes:
        """Return the keyed hash, given its begun inner hash and the rest of the content."""
        inner, outer = begun.copy(), self._outer.copy()
        inner.update(rest)
        outer.update(inner.digest())
        return outer.digest()

    def pack(self, content: bytes) -> bytes:
        """Return the value to store."""
        return _FORMAT + self._key_name + zlib.compress(content, 6)

    def unpack(self, namespace: str, digest: str, value: bytes) -> bytes:
        """Return the verified content; raises queue_errors.BlobForged."""
        if not value.startswith(_FORMAT + self._key_name):
            raise queue_errors.BlobForged(
                f"blob {digest} of {namespace} was signed with another key or format"
            )
        content = _inflated(value[len(_FORMAT) + _KEY_NAME_LENGTH :])
        if content is None or not hmac.compare_digest(self.digest(namespace, content), digest):
            raise queue_errors.BlobForged(
                f"blob {digest} does not match its name, or is not of {namespace}"
            )
        return content


def _inflated(data: bytes) -> bytes | None:
    inflater = zlib.decompressobj()
    try:
        content = inflater.decompress(data, CONTENT_LIMIT)
    except zlib.error:
        return None
    return content if inflater.eof else None
