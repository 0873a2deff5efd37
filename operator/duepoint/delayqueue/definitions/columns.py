"""Reads the definitions of hundreds of claimed chains by column.

One regular expression match finds the parts of all usual records (no flag, a name of plain ASCII),
in a tenth of the time of reading one by one. Records of members with a payload or an instant of
their own are read one by one. Other records are left out: ``codec.unpack`` reads them. Records are
not cached, because a match costs less than a cache lookup.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast, overload

import msgspec

from duepoint.delayqueue import messages
from duepoint.delayqueue.definitions import codec, kinds, reading
from duepoint.schedules.definition import State
from duepoint.schedules.sets import setrecord


class OwnPayload(NamedTuple):
    """The payload of a member, empty if it has none of its own, with its keyed hash."""

    text: bytes = b""
    mac: bytes = b""


class Columns(NamedTuple):
    """The few facts of many definitions that a first attempt needs, by column.

    Making, picking and passing on a column takes a few calls, instead of some for each definition.
    The columns belong together row by row.

    Attributes:
        indexes: the record of each row; all other records must be read as definitions.
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
    payloads: Sequence[OwnPayload] = ()


_BY_ROW = (
    "indexes", "uids", "names", "generations", "created_us", "kinds", "once_us", "payloads",
)  # fmt: skip


def picked(found: Columns, chosen: Sequence[bool]) -> Columns:
    """Return some rows, by a flag for each."""
    some: dict[str, Any] = {
        name: list(itertools.compress(getattr(found, name), chosen)) for name in _BY_ROW
    }
    return found._replace(**some)


_USUAL_ARMED = codec.HEADS[State.ARMED][0]
_find_facts = codec.finder(
    "version", "uid", "kind", "generation", "created", "name_length", head=_USUAL_ARMED
)


def columns(records: Sequence[bytes | None], versions: Sequence[bytes]) -> Columns:
    """Return the rows of usual records that are armed and of the timing version beside them.

    If all records are, which is the normal case, one match of all of them is the whole work.
    """
    usual: Sequence[int] = range(len(records))
    found = codec.part_columns(_find_facts, records)
    of_members = Columns()
    if found is None or found[1] != tuple(versions):
        of_members = _member_columns(records, versions)
        armed = [
            (place, record)
            for place, (record, version) in enumerate(zip(records, versions, strict=True))
            if record is not None
            and record.startswith(_USUAL_ARMED)
            and record[codec.VERSION] == version
        ]
        usual, listed = [place for place, _ in armed], [record for _, record in armed]
        found = codec.part_columns(_find_facts, listed)
        if found is None:  # one of them is unusual
            rows = codec.parts(_find_facts, listed)
            usual = [place for place, row in zip(usual, rows, strict=True) if row is not None]
            found = list(zip(*filter(None, rows), strict=True))
    if not found:
        return of_members
    usual_columns = _usual_columns(usual, found)
    return _joined(usual_columns, of_members) if of_members.indexes else usual_columns


def _usual_columns(usual: Sequence[int], found: Sequence[tuple[bytes, ...]]) -> Columns:
    _, _, uids, digests, generations, created, _, names = found
    number_of = {varint: codec.varint_number(varint) for varint in set(generations)}
    return Columns(
        indexes=usual,
        uids=codec.uuid_texts(uids),
        names=b"\n".join(names).decode().split("\n"),
        generations=list(map(number_of.__getitem__, generations)),
        created_us=_Instants(created),
        kinds=digests,
    )


def _member_columns(records: Sequence[bytes | None], versions: Sequence[bytes]) -> Columns:
    """Return the rows of armed members with a payload or an instant of their own."""
    indexes: list[int] = []
    rows: list[codec.MemberParts] = []
    for place, (record, version) in enumerate(zip(records, versions, strict=True)):
        if (
            record is not None
            and record.startswith(codec.ARMED_MEMBERS)
            and record[codec.VERSION] == version
            and (row := codec.member_parts(record)) is not None
            and row.name.isascii()
        ):
            indexes.append(place)
            rows.append(row)
    if not rows:
        return Columns()
    uids, generations, created, digests, names, once_us, payloads, macs = zip(*rows, strict=True)
    return Columns(
        indexes=indexes,
        uids=codec.uuid_texts(uids),
        names=[name.decode() for name in names],
        generations=list(map(codec.varint_number, generations)),
        created_us=_Instants(created),
        kinds=digests,
        once_us=once_us,
        payloads=list(map(OwnPayload, payloads, macs)),
    )


def _joined(usual: Columns, members: Columns) -> Columns:
    """Return both kinds of rows, in the order of the records."""
    count = len(usual.indexes)
    order = sorted(
        range(count + len(members.indexes)),
        key=[*usual.indexes, *members.indexes].__getitem__,
    )
    filled = usual._replace(once_us=[None] * count, payloads=[OwnPayload()] * count)
    joined: dict[str, Any] = {}
    for name in _BY_ROW:
        both = [*getattr(filled, name), *getattr(members, name)]
        joined[name] = [both[row] for row in order]
    return Columns(**joined)


class _Instants(Sequence[int]):
    """Stored seconds as microseconds, converted on access, because hardly any is ever used."""

    __slots__ = ("_stored",)

    def __init__(self, stored: Sequence[bytes]) -> None:
        self._stored = stored

    def __len__(self) -> int:
        return len(self._stored)

    def __iter__(self) -> Iterator[int]:
        """Yield all instants; few of them differ."""
        stored = self._stored
        instant_of = {each: codec.varint_number(each) * 1_000_000 for each in set(stored)}
        return map(instant_of.__getitem__, stored)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        if isinstance(index, slice):
            return _Instants(self._stored[index])
        return codec.varint_number(self._stored[index]) * 1_000_000


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
            as_it_is = _as_it_is(kind, entries)
            if as_it_is is not None:
                kind_of[digest] = as_it_is
        return read._replace(kind_of=kind_of)


def _as_it_is(
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
    return None if entry is None or entry.letter != "o" else _of_set(kind, entry.target)


@functools.lru_cache(maxsize=4_096)
def _of_set(kind: kinds.Kind, target: str) -> kinds.Kind:
    """Return the kind with this target; the same object for the same arguments."""
    return msgspec.structs.replace(kind, target=target)
