"""Where a walk through the members of a set goes on, as text that only we can make.

A cursor names a place among the buckets of one set in one layout, and is signed for that set: one
that was forged, belongs to another set, or was made before the index was resharded is refused.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from typing import TypeVar

import msgspec

from duepoint.delayqueue import layouts, messages
from duepoint.delayqueue.definitions import signedblobs
from duepoint.delayqueue.members import values
from duepoint.schedules import points

_MAC_LENGTH = 12
_LONGEST = 512

PlaceT = TypeVar("PlaceT", bound=msgspec.Struct)


def text(signed: signedblobs.SignedBlobs, owner: points.SetIdentity, place: msgspec.Struct) -> str:
    """The cursor for a place."""
    content = msgspec.msgpack.encode(place)
    mac = _mac(signed, owner, type(place), content)
    return base64.urlsafe_b64encode(mac + content).rstrip(b"=").decode()


def parse(
    signed: signedblobs.SignedBlobs,
    owner: points.SetIdentity,
    kind: type[PlaceT],
    cursor: str,
) -> PlaceT:
    """The place that a cursor names; raises InvalidCursor."""
    content = _signed_content(signed, owner, kind, cursor)
    try:
        if content is not None:
            return msgspec.msgpack.decode(content, type=kind)
    except msgspec.MsgspecError:
        pass
    raise values.InvalidCursor("the cursor was not given for this list; begin again without one")


async def layout_of(known: layouts.Layouts, number: int | None) -> messages.Layout:
    """The layout in which a walk goes on; raises InvalidCursor where it is another one.

    Args:
        number: of the layout in which it began; None = it begins now.
    """
    layout = known.index.known_layout()
    if number is None or number == layout.number:
        return layout
    layout = await known.read()
    if number != layout.number:
        raise values.InvalidCursor(
            "the index was resharded since that cursor was given; begin again without one"
        )
    return layout


def _signed_content(
    signed: signedblobs.SignedBlobs,
    owner: points.SetIdentity,
    kind: type[msgspec.Struct],
    cursor: str,
) -> bytes | None:
    if len(cursor) > _LONGEST or not cursor.isascii():
        return None
    padded = cursor.encode() + b"=" * (-len(cursor) % 4)
    try:
        data = base64.b64decode(padded, altchars=b"-_", validate=True)
    except binascii.Error:
        return None
    mac, content = data[:_MAC_LENGTH], data[_MAC_LENGTH:]
    return content if hmac.compare_digest(mac, _mac(signed, owner, kind, content)) else None


def _mac(
    signed: signedblobs.SignedBlobs,
    owner: points.SetIdentity,
    kind: type[msgspec.Struct],
    content: bytes,
) -> bytes:
    where = b"cursor %b %b\n" % (kind.__name__.encode(), owner.text)
    return signed.mac(owner.namespace, where + content)[:_MAC_LENGTH]
