"""Spreading by a real hash of the schedule's identity: H fields and jitter.

Both are functions of their arguments alone, so every replica, every restart and the command line
agree; Python's own salted ``hash`` would not. SHA-256 keeps similar names (``job-1``, ``job-2``)
apart, which polynomial hashes do not.
"""

from __future__ import annotations

import hashlib


def digest(identity: str, subject: str) -> int:
    """An unsigned 64-bit number out of ``identity`` LF ``subject``."""
    hashed = hashlib.sha256(f"{identity}\n{subject}".encode()).digest()
    return int.from_bytes(hashed[:8], "big")


def hashed_value(identity: str, field: str, low: int, high: int) -> int:
    """The value in ``low..high`` that an H field has for this identity (``namespace/name``)."""
    return low + digest(identity, field) % (high - low + 1)


def jitter_ms(
    identity: str, slot_us: int, *, jitter_ms: int, distance_to_next_ms: int | None
) -> int:
    """How many milliseconds after its slot a firing is due: never early, never at the next slot.

    ``distance_to_next_ms`` is None when there is no next slot.
    """
    width_ms = jitter_ms if distance_to_next_ms is None else min(jitter_ms, distance_to_next_ms)
    if width_ms <= 0:
        return 0
    return digest(identity, str(slot_us // 1_000)) % width_ms
