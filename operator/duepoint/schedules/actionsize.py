"""How much memory an action takes: caches are bounded by bytes, and text says little about objects.

``{"a":{}}`` is 8 bytes of text and 130 of objects; a usual template takes a dozen times its text.
Counted object by object, which takes as long as decoding it. Pure.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from duepoint.schedules import actions

#: The structs around it, its digest and its place in a cache.
_ENTRY_BYTES = 1_024


def bytes_of(action: actions.Action, text_bytes: int) -> int:
    """Bytes of memory; ``text_bytes`` is the length of the blob it was decoded from."""
    template = action.target.template if isinstance(action.target, actions.JobAction) else None
    if template is None or isinstance(template, actions.PackedTemplate):
        return _ENTRY_BYTES + 2 * text_bytes  # texts, and the blob that a payload keeps alive
    return _ENTRY_BYTES + text_bytes + _of(template)


def _of(value: object) -> int:
    total, left = 0, [value]
    while left:
        one = left.pop()
        total += sys.getsizeof(one)
        if isinstance(one, Mapping):
            left.extend(one.keys())
            left.extend(one.values())
        elif isinstance(one, list):
            left.extend(one)
    return total
