"""How the index is cut, noted on the Lease.

Redis forgets its layout when it is emptied; settings may say something else by then. The note lets
a rebuild cut the index as it was, so that workers, metrics and backups of the old shards still fit.
Pure; a note that makes no sense is no note.
"""

from __future__ import annotations

from collections.abc import Mapping

from duepoint.delayqueue import sharding
from duepoint.delayqueue.messages import Layout
from duepoint.kube import schedules

ANNOTATION = f"{schedules.GROUP}/queue-layout"


def of(layout: Layout) -> dict[str, str]:
    """The note: ``number/shards``; while it is cut anew also what it was: ``2/64 1/16``."""
    parts = (layout, layout.former) if layout.former else (layout,)
    return {ANNOTATION: " ".join(f"{part.number}/{part.shards}" for part in parts)}


def layout_of(notes: Mapping[str, str]) -> Layout | None:
    """The layout that was noted, with the one it is filled from; None where none was."""
    text, _, former = notes.get(ANNOTATION, "").partition(" ")
    noted, was = _layout(text), _layout(former)
    if noted is None or (former and was is None):
        return None
    return Layout(number=noted.number, shards=noted.shards, former=was)


def _layout(text: str) -> Layout | None:
    number, _, shards = text.partition("/")
    if not (number.isascii() and number.isdigit() and shards.isascii() and shards.isdigit()):
        return None
    count = int(shards[:9])
    if not sharding.is_possible(count):
        return None
    return Layout(number=max(1, int(number[:9])), shards=count)
