"""What a stored definition was made from, in four bytes.

A generation alone does not say that the queue holds what an object asks for: with another blob key
no worker reads the action, with other zone data the slots are others, and after a restore of etcd
the same generation, or a lower one, is another spec. So a definition carries a fingerprint of all
that goes into it: the spec as canonical JSON, the blob key, the zone's data and the version of what
a spec means; for a stream in our Redis also whether the installation has such. With it equal
nothing is done. Two that differ have the same one once in 4 billion.
Pure but for its caches.
"""

from __future__ import annotations

import functools
import hashlib

import msgspec

from duepoint import errors
from duepoint.expressions import timezones
from duepoint.schedules import definition as definitions

#: Counts up whenever the same spec comes to mean other slots, or another action.
MEANING = 1

#: Longer texts are hardly ever the same twice.
_REMEMBERED_LENGTH = 4_096


_decoder = msgspec.json.Decoder()
_encoder = msgspec.json.Encoder(order="deterministic")


def of(spec: bytes, key: str, *, own_streams: bool = True) -> bytes:
    """The fingerprint of the JSON text of a spec, under what stands for the blob key.

    Args:
        own_streams: whether the installation has streams in our Redis; counts for specs of such.
    """
    if len(spec) <= _REMEMBERED_LENGTH:
        return _remembered(spec, key, own_streams)
    return _remembered.__wrapped__(spec, key, own_streams)


@functools.lru_cache(maxsize=4_096)  # thousands of Schedules are made from one template
def _remembered(spec: bytes, key: str, own_streams: bool) -> bytes:  # noqa: FBT001 - of a cache
    try:
        decoded = _decoder.decode(spec)
        canonical = _encoder.encode(decoded)
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
        decoded, canonical = None, spec  # what is wrong with it shows when it is parsed
    zone = decoded.get("timeZone") if isinstance(decoded, dict) else None
    content = b"%b\n%b\n%b\n%d" % (canonical, _zone_data(zone).encode(), key.encode(), MEANING)
    if _is_own_stream(decoded):
        content += b"\nown streams" if own_streams else b"\nno own streams"
    return hashlib.blake2b(content, digest_size=definitions.FINGERPRINT_LENGTH).digest()


def _is_own_stream(decoded: object) -> bool:
    """Of such a spec more is to be done than to store it: its stream takes a place."""
    stream = decoded.get("stream") if isinstance(decoded, dict) else None
    return isinstance(stream, dict) and not stream.get("connectionSecretRef")


def _zone_data(zone: object) -> str:
    try:
        return timezones.data_of(zone) if zone and isinstance(zone, str) else ""
    except errors.InvalidExpression:
        return ""
