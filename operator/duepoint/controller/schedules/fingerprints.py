"""Fingerprints: hashes, in four bytes, of everything that a stored definition was made from.

An equal generation does not prove that the queue matches the object: with another blob key workers
cannot read the action, with other zone data the slots differ, and after a restore of etcd the same
generation, or a lower one, may have another spec. So a definition has a fingerprint of all its
inputs: the spec as canonical JSON, the blob key, whether the installation has streams in our Redis,
the zone data, and the version of the meaning of specs. If it is equal, nothing is done. Different
inputs collide once in 4 billion. Pure.
"""

from __future__ import annotations

import hashlib

import msgspec

from duepoint import errors
from duepoint.expressions import timezones
from duepoint.schedules import definition as definitions

#: Incremented whenever the same spec comes to mean other slots, or another action.
MEANING = 1

_decoder = msgspec.json.Decoder()
_encoder = msgspec.json.Encoder(order="deterministic")


def of(spec: bytes, key: str) -> bytes:
    """Return the fingerprint of the JSON text of a spec; ``key`` stands for the installation."""
    try:
        decoded = _decoder.decode(spec)
        canonical = _encoder.encode(decoded)
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
        decoded, canonical = None, spec  # the parser will report what is wrong with it
    zone = decoded.get("timeZone") if isinstance(decoded, dict) else None
    content = b"%b\n%b\n%b\n%d" % (canonical, _zone_data(zone).encode(), key.encode(), MEANING)
    return hashlib.blake2b(content, digest_size=definitions.FINGERPRINT_LENGTH).digest()


def _zone_data(zone: object) -> str:
    try:
        return timezones.data_of(zone) if zone and isinstance(zone, str) else ""
    except errors.InvalidExpression:
        return ""
