"""ULIDs: ids of 26 characters that sort by the time they were made. Pure but for randomness.

48 bits of milliseconds and 80 random bits in Crockford's base 32 (github.com/ulid/spec).
"""

from __future__ import annotations

import secrets

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_LENGTH = 26
_RANDOM_BITS = 80


def new(now_us: int) -> str:
    """A new ULID for an instant, in microseconds since the epoch."""
    return text(now_us // 1_000, secrets.randbits(_RANDOM_BITS))


def text(milliseconds: int, randomness: int) -> str:
    """The ULID of an instant, in milliseconds since the epoch, and 80 random bits."""
    value = (milliseconds & ((1 << 48) - 1)) << _RANDOM_BITS | randomness
    return "".join(_ALPHABET[value >> 5 * place & 31] for place in range(_LENGTH - 1, -1, -1))
