"""The bytes of a template's Jobs, all but for what differs from slot to slot.

Of a burst, hundreds of Jobs come from one template. Copying and encoding it for each of them costs
more than sending the result; here ``jobbuilder`` makes one Job with marks in place of the words of
a slot, and each Job is those bytes with its own words in. A test holds them to be the very bytes
that the builder's Job has. Pure.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from duepoint import errors
from duepoint.kube import jobbuilder

#: In no template: it is unknown before the process begins.
_MARK = secrets.token_hex(16)
_MARKED = re.compile(f"@{_MARK}-([0-9]+)@".encode())
_MARKS = jobbuilder.Words(*(f"@{_MARK}-{place}@" for place in range(9)))
#: Of anything longer the builder itself has to say whether its annotations are too long.
_LIMIT_BYTES = jobbuilder.ANNOTATIONS_LIMIT_BYTES // 2


@dataclass(frozen=True, slots=True)
class Frame:
    """Bytes with gaps, and which word goes into each gap."""

    pattern: bytes
    gaps: tuple[int, ...]

    def body(self, words: jobbuilder.Words) -> bytes:
        """The Job of a slot, as ``msgspec.json.encode`` writes the builder's."""
        inner = [msgspec.json.encode(word)[1:-1] for word in words]  # None, which has no gap, too
        return self.pattern % tuple([inner[gap] for gap in self.gaps])


def frame_of(
    template: Mapping[str, Any], *, payload: str | None, has_previous: bool
) -> Frame | None:
    """The frame for slots with this payload, with or without a slot before; None: too long."""
    words = _MARKS._replace(payload=payload)
    if not has_previous:
        words = words._replace(previous=None)
    try:
        whole = msgspec.json.encode(jobbuilder.job_of(template, words))
    except errors.InvalidSpec:
        return None
    if len(whole) > _LIMIT_BYTES:
        return None
    parts = _MARKED.split(whole.replace(b"%", b"%%"))
    return Frame(b"%b".join(parts[::2]), tuple(map(int, parts[1::2])))
