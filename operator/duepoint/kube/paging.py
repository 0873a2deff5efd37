"""How many objects a page of a list is asked for, so that no page is large.

An API server counts objects and not bytes, and an object may have a megabyte. A page that turns
out larger than ``MOST_BYTES`` is not read to its end: it is asked for again with fewer objects.
What the pages before weighed says how many the next one may have. Pure.
"""

from __future__ import annotations

#: Longest page that is read, unless it is of one object.
MOST_BYTES = 8 * 1024 * 1024
#: What a page is meant to have at most.
_AIM_BYTES = 4 * 1024 * 1024
#: A page that was too large is asked for again with so many times fewer objects.
_LESS = 8


class Paging:
    """Of one list.

    Attributes:
        limit: objects to ask for.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.limit = most

    @property
    def most_bytes(self) -> int | None:
        """How much of the page is read at most; one object is read, however large."""
        return MOST_BYTES if self.limit > 1 else None

    def was_too_large(self) -> None:
        """The page has more bytes than that."""
        self.limit = max(1, self.limit // _LESS)

    def note(self, size: int) -> None:
        """The page has so many bytes: the next one may have more objects, or fewer."""
        fitting = self.limit * _AIM_BYTES // max(size, 1)
        self.limit = max(1, min(self._most, 2 * self.limit, fitting))
