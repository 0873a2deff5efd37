"""How many rows are read without a pause, so that other work has its turns in between.

A row that says what no other does takes a millisecond, and text that is not compact takes half a
millisecond for each 2 KiB. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

#: Of one row; a longer one is refused unread.
MOST_ROW_BYTES = 64 * 1024
_TURN_ROWS = 25
_TURN_BYTES = 16 * 1024


def turns(sizes: Sequence[int]) -> Iterator[slice]:
    """Places of rows of these sizes in bytes, some at a time."""
    begin = so_far = 0
    for place, size in enumerate(sizes):
        if place > begin and (place - begin >= _TURN_ROWS or so_far + size > _TURN_BYTES):
            yield slice(begin, place)
            begin, so_far = place, 0
        so_far += size
    if sizes:
        yield slice(begin, len(sizes))
