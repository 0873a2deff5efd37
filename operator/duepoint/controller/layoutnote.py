"""How the index is cut, noted on the Lease.

Redis forgets its layout when it is emptied; settings may say something else by then. The note lets
a rebuild cut the index as it was, so that workers, metrics and backups of the old shards still fit.
Pure; a note that makes no sense is no note.
"""

from __future__ import annotations

from collections.abc import Mapping

from duepoint.delayqueue.messages import Layout
from duepoint.kube import schedules

ANNOTATION = f"{schedules.GROUP}/queue-layout"

_MOST_SHARDS = 65_536


def of(layout: Layout) -> dict[str, str]:
    """The note: ``number/shards``."""
    return {ANNOTATION: f"{layout.number}/{layout.shards}"}


def shards_of(notes: Mapping[str, str]) -> int | None:
    """The number of shards that was noted; None where none was."""
    number, _, shards = notes.get(ANNOTATION, "").partition("/")
    if not (number.isascii() and number.isdigit() and shards.isascii() and shards.isdigit()):
        return None
    count = int(shards[:9])
    is_power_of_two = count > 0 and count & (count - 1) == 0
    return count if is_power_of_two and count <= _MOST_SHARDS else None
