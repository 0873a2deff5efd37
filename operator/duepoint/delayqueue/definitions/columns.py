"""Reads the definitions of hundreds of claimed chains by column.

The heads of all usual records (those without a text of their own beside a member's payload) are
unpacked by one call, in a fraction of the time of reading one by one. Other records are left out:
``codec.unpack`` reads them.
"""

from __future__ import annotations

import functools
import itertools
import struct
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import msgspec

from duepoint.delayqueue import messages
from duepoint.delayqueue.definitions import codec, kinds, reading
from duepoint.schedules.sets import setrecord


class Columns(NamedTuple):
    """The few facts of many definitions that a first attempt needs, by column.

    Making, picking and passing on a column takes a few calls, instead of some for each definition.
    The columns belong together row by row.

    Attributes:
        indexes: the position of each row's record; all others must be read as definitions.
        created_us: for those few rules that need it.
        kinds: the digests of their kinds.
        kind_of: the kind of each digest; an unreadable kind is absent.
        once_us: the instants of members that fire once, None for others; empty if there are none.
        payloads: payloads of members, with their signatures; empty if no member has one.
    """

    indexes: Sequence[int] = ()
    uids: Sequence[str] = ()
    names: Sequence[str] = ()
    generations: Sequence[int] = ()
    created_us: Sequence[int] = ()
    kinds: Sequence[Hashable] = ()
    kind_of: Mapping[Hashable, kinds.Kind] = {}
    once_us: Sequence[int | None] = ()
    payloads: Sequence[codec.OwnParts] = ()


_BY_ROW = (
    "indexes", "uids", "names", "generations", "created_us", "kinds", "once_us", "payloads",
)  # fmt: skip


def picked(found: Columns, chosen: Sequence[bool]) -> Columns:
    """Return some rows, by a flag for each."""
    some: dict[str, Any] = {
        name: list(itertools.compress(getattr(found, name), chosen)) for name in _BY_ROW
    }
    return found._replace(**some)


_HEAD_LENGTH = codec.HEAD.size
_NAME_LENGTH = _HEAD_LENGTH - 1
_NO_PARTS = codec.OwnParts()


def columns(records: Sequence[bytes | None], versions: Sequence[bytes]) -> Columns:
    """Return the rows of usual, armed records whose timing version is the one in ``versions``."""
    indexes: list[int] = []
    usual: list[bytes] = []
    own: list[codec.OwnParts] = []
    for place, (record, version) in enumerate(zip(records, versions, strict=True)):
        if (
            record is None
            or len(record) < _HEAD_LENGTH
            or record[:2] != codec.ARMED
            or record[codec.VERSION] != version
        ):
            continue
        flags, end, parts = record[codec.FLAGS], _HEAD_LENGTH + record[_NAME_LENGTH], _NO_PARTS
        if flags & codec.NUMBERED:
            end += codec.NUMBERS.size
        if flags & ~codec.NUMBERED:
            if flags & ~(codec.NUMBERED | codec.OWN):
                continue
            try:
                parts, end = codec.own_parts(record, flags, end)
            except struct.error:
                continue
        if end == len(record):
            indexes.append(place)
            usual.append(record)
            own.append(parts)
    if not indexes:
        return Columns()
    heads = codec.HEAD.iter_unpack(b"".join([record[:_HEAD_LENGTH] for record in usual]))
    *_, uids, digests, generations, created, lengths = zip(*heads, strict=True)
    ends = map(_HEAD_LENGTH.__add__, lengths)
    try:
        names = [record[_HEAD_LENGTH:end].decode() for record, end in zip(usual, ends, strict=True)]
    except UnicodeDecodeError:  # of a damaged record: all of them are read one by one
        return Columns()
    has_own = any(parts is not _NO_PARTS for parts in own)
    return Columns(
        indexes=indexes,
        uids=codec.uuid_texts(uids),
        names=names,
        generations=generations,
        created_us=[seconds * 1_000_000 for seconds in created],
        kinds=digests,
        once_us=[parts.once_us for parts in own] if has_own else (),
        payloads=own if has_own else (),
    )


_ID_LENGTH = 8


@dataclass(eq=False)
class ColumnReader:
    """Reads the few needed facts of many claimed chains' definitions."""

    kinds: kinds.Kinds

    async def of_claim(self, claim: messages.Claim, chains: Sequence[bytes]) -> Columns:
        """Return the facts of the definitions of these chain members of the claim.

        Leaves out a definition that is missing, not armed, of another timing version, or not of the
        usual form: the caller must read these as definitions.
        """
        stored = claim.stored
        read = columns(
            [stored[chain[:_ID_LENGTH]] for chain in chains],
            [chain[_ID_LENGTH:] for chain in chains],
        )
        known = await self.kinds.read(claim.shard, set(cast("Sequence[bytes]", read.kinds)))
        entries = reading.entries_of(claim)
        kind_of: dict[Hashable, kinds.Kind] = {}
        for digest, kind in known.items():
            current = _current(kind, entries)
            if current is not None:
                kind_of[digest] = current
        return read._replace(kind_of=kind_of)


def _current(
    kind: kinds.Kind, entries: Mapping[str, setrecord.SetEntry | None]
) -> kinds.Kind | None:
    """Return the kind with its set's present target; None if unreadable or if it does not fire."""
    try:
        kind.rule  # noqa: B018 - whether it can be read
    except msgspec.DecodeError:
        return None  # logged when it is read whole
    if kind.owner is None:
        return kind
    entry = entries.get(kind.lane)
    return None if entry is None or entry.letter != "o" else _with_target(kind, entry.target)


@functools.lru_cache(maxsize=4_096)
def _with_target(kind: kinds.Kind, target: str) -> kinds.Kind:
    """Return the kind with this target; the same object for the same arguments."""
    return msgspec.structs.replace(kind, target=target)
