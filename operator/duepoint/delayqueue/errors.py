"""Errors of the index, ordered by what the caller should do next.

::

    errors.QueueUnavailable     try again later
        Uninitialised           the operator has to create the index
        ShardMoving             one shard is migrating to another node
        Foreign                 use another index
        Damaged                 remove a key that holds foreign data
        WriteRefused            nothing was written: the server is full, or the user lacks rights
    errors.TryLater
        NotDurable              write it again: it is stored, but less safely than requested
    errors.WorldChanged         read again, decide again
        LayoutChanged           read the layout
        Fenced                  this term is over
        BlobMissing             read the definition again
        BlobForged              do not act on the blob
    errors.DuepointError
        WrongType               a user's key is not a stream
        TooManyWaiting          ask again when some runs have ended
"""

from __future__ import annotations

from duepoint import errors


class Uninitialised(errors.QueueUnavailable):
    """The index, or one shard of it, does not exist: the operator has to create it."""


class ShardMoving(errors.QueueUnavailable):
    """This shard is migrating to another node of the cluster; other shards are not affected."""


class Foreign(errors.QueueUnavailable):
    """The index belongs to another cluster, or to another live installation: use another one."""


class Damaged(errors.QueueUnavailable):
    """A key of the index holds data that our scripts did not write; a person must remove it."""


class WriteRefused(errors.QueueUnavailable):
    """The server refused and wrote nothing: it is full, or the user lacks a right."""


class NotDurable(errors.TryLater):
    """The write is stored, but less safely than requested; it may be repeated."""


class LayoutChanged(errors.WorldChanged):
    """The index was resharded or created anew: read the layout, then decide again."""


class Fenced(errors.WorldChanged):
    """A newer leader has written to the index: this term is over."""


class BlobMissing(errors.WorldChanged):
    """The index holds no such blob: the definition was read before an edit, or was rebuilt."""


class BlobForged(errors.WorldChanged):
    """The blob was not signed with our key for this namespace; do not act on it."""


class WrongType(errors.DuepointError):
    """The key of a user's stream holds a value of another type."""


class TooManyWaiting(errors.DuepointError):
    """A member of a set, its set or its namespace has as many waiting runs as it may have."""


class InvalidCursor(errors.DuepointError):
    """The cursor was not made here, or for another list or layout: begin again without one."""
