"""The few facts of a definition that a first attempt needs, read straight from its record.

For claims of hundreds of points: a whole ``Definition`` costs several times more than everything
else that happens to a point, and nearly all of it is the same for all schedules of one kind. A
*kind* is the numbers of namespace, rule and target; the parts behind them are looked up once for
all its schedules. What differs is kept by column, because a column is made, picked from and sent
on in a few calls, and an object for each schedule in as many as there are schedules. Only the
usual record has a brief: format 1, armed, its uid a UUID, its rule interned. Every other one is
left to be read as a definition. Pure; the layout is ``definition.py``'s.
"""

from __future__ import annotations

import binascii
import functools
import itertools
import re
import struct
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast, overload

from duepoint.schedules import definition as definitions
from duepoint.schedules import rule as rules

_VARINT = definitions.VARINT
#: Seconds of the next thousand years.
_SECONDS = rb"[\x80-\xff]{0,4}[\x00-\x7f]"
_PREFIX = bytes([definitions.FORMAT, definitions.State.ARMED, 1])
#: Timing version, uid, generation, created, (namespace, target, rule), length of the name, name.
#: Matching a record takes a tenth of what it takes to walk through it.
_USUAL = re.compile(
    b"".join(
        (
            re.escape(_PREFIX),
            b"(.{4}).{4}(.{16})",
            b"(%b)%b%b(%b)%b" % (_VARINT, _VARINT, _VARINT, _SECONDS, _VARINT),
            b"((?:%b){3})(%b)(.*)" % (_VARINT, _VARINT),
        )
    ),
    re.DOTALL,
)
#: The same of many records at once, with the whole record in front; only names of plain ASCII, so
#: that none reaches over the end of its record.
_END = b"\xff\xfe"
_PLAIN = re.compile(
    b"(" + _USUAL.pattern.replace(b"(.*)", rb"([\x20-\x7e]*)") + b")" + _END, re.DOTALL
)
_HEX_UID = struct.Struct("8s4s4s4s12s")
#: Where its fixed parts end, and how many numbers of varying width come up to its name.
_FIXED = definitions.UID_OFFSET + 16
_NUMBERS = re.compile(b"(?:%b){3}%b(?:%b){5}" % (_VARINT, _SECONDS, _VARINT), re.DOTALL)
_HIGH = bytes(range(0x80, 0x100))


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """What schedules of one kind share; ``target`` is the digest of the action.

    The same kind is the same object for as long as it is known, so that what is worked out of it
    can be found again without looking into it.
    """

    namespace: str
    rule: rules.Rule
    target: str


class Briefs(NamedTuple):
    """Schedules in short, by column; row by row the columns belong together.

    Attributes:
        indexes: which of the chains asked for each row is of; the others have no brief.
        created_us: for those few rules that need it.
        kind_of: what each kind stands for; a kind that cannot be read is absent.
    """

    indexes: Sequence[int]
    uids: Sequence[str]
    names: Sequence[str]
    generations: Sequence[int]
    created_us: Sequence[int]
    kinds: Sequence[Hashable]
    kind_of: Mapping[Hashable, Kind]


class Columns(NamedTuple):
    """Rows of records as they were read; a kind is the bytes of its three numbers."""

    indexes: Sequence[int]
    uids: Sequence[str]
    names: Sequence[str]
    generations: Sequence[int]
    created_us: Sequence[int]
    kinds: Sequence[bytes]


def unpack(records: Sequence[bytes | None], versions: Sequence[bytes]) -> Columns:
    """The rows of those records that are usual and of the timing version beside them.

    Where all are, which is the rule, all are taken apart at once.
    """
    columns = _all_alike(records) or _all_plain(records)
    if columns and _are_sound(columns, versions):
        return _named(range(len(records)), columns)
    return _unpack_each(records, versions)


def _all_alike(records: Sequence[bytes | None]) -> list[tuple[bytes, ...]]:
    """Their parts by column; nothing where one has a number of another width than the first.

    Then all parts but the name stand in the same places, and are cut out of all records at once.
    """
    numbers = _NUMBERS.match(records[0] or b"", _FIXED) if records else None
    if numbers is None or None in records:
        return []
    end = numbers.end()
    listed = cast("Sequence[bytes]", records)
    heads = b"".join([record[:end] for record in listed])
    if len(heads) != end * len(listed) or not _have_widths(heads, numbers[0], end):
        return []
    prefix, *columns = zip(*_layout_of(numbers[0]).iter_unpack(heads), strict=True)
    if set(prefix) != {_PREFIX}:
        return []
    return [*columns, tuple([record[end:] for record in listed])]


def _have_widths(heads: bytes, numbers: bytes, length: int) -> bool:
    """Whether numbers begin and end in each head where they do in the first."""
    for place, byte in enumerate(numbers, start=_FIXED):
        column = heads[place::length]
        if not column.isascii() if byte < 0x80 else column.translate(None, _HIGH):
            return False
    return True


@functools.lru_cache(maxsize=64)
def _layout_of(numbers: bytes) -> struct.Struct:
    """Parts of a head whose numbers are as wide as these."""
    ends = [place for place, byte in enumerate(numbers, start=1) if byte < 0x80]
    widths = [end - begin for begin, end in itertools.pairwise([0, *ends])]
    generation, between, created, after = widths[0], sum(widths[1:3]), widths[3], widths[4]
    kind, name_length = sum(widths[5:8]), widths[8]
    skipped = definitions.FINGERPRINT_LENGTH
    return struct.Struct(
        f"{len(_PREFIX)}s4s{skipped}x16s{generation}s{between}x{created}s{after}x{kind}s{name_length}s"
    )


def _all_plain(records: Sequence[bytes | None]) -> list[tuple[bytes, ...]]:
    """Their parts by column; nothing where one of them is not usual."""
    if None in records:
        return []
    joined = _END.join([*cast("Sequence[bytes]", records), b""])
    columns = list(zip(*_PLAIN.findall(joined), strict=True))
    # What was found is what was asked, record by record: nothing was skipped or run together.
    return columns[1:] if columns and columns[0] == tuple(records) else []


def _unpack_each(records: Sequence[bytes | None], versions: Sequence[bytes]) -> Columns:
    rows: list[tuple[int, tuple[bytes, ...]]] = []
    for index, (record, version) in enumerate(zip(records, versions, strict=True)):
        match = _USUAL.fullmatch(record or b"")
        if match is not None and _are_sound([(one,) for one in match.groups()], [version]):
            rows.append((index, match.groups()))
    columns = list(zip(*(parts for _, parts in rows), strict=True))
    return _named([index for index, _ in rows], columns) if rows else _NOTHING


_NOTHING = Columns((), (), (), (), (), ())


def numbers(kind: bytes) -> tuple[int, int, int]:
    """The numbers of namespace, target and rule."""
    namespace, at = definitions.varint_at(kind, 0)
    target, at = definitions.varint_at(kind, at)
    rule, _ = definitions.varint_at(kind, at)
    return namespace, target, rule


def _are_sound(columns: Sequence[tuple[bytes, ...]], versions: Sequence[bytes]) -> bool:
    """Whether all are of their timing versions, and their names whole."""
    told, *_, lengths, names = columns
    try:
        b"\n".join(names).decode()
    except UnicodeDecodeError:
        return False
    told_lengths = list(map(_values(lengths).__getitem__, lengths))
    return told == tuple(versions) and told_lengths == list(map(len, names))


def _named(indexes: Sequence[int], columns: Sequence[tuple[bytes, ...]]) -> Columns:
    _, uids, generations, created, kinds, _, names = columns
    return Columns(
        indexes=indexes,
        uids=_texts(uids),
        names=list(map(bytes.decode, names)),
        generations=list(map(_values(generations).__getitem__, generations)),
        created_us=_Instants(created),
        kinds=kinds,
    )


def _values(varints: Sequence[bytes]) -> dict[bytes, int]:
    """What each of them means; few differ."""
    return {one: definitions.varint_at(one, 0)[0] for one in set(varints)}


def _texts(uids: Sequence[bytes]) -> Sequence[str]:
    """UUIDs as they are written."""
    parts = _HEX_UID.iter_unpack(binascii.hexlify(b"".join(uids)))
    return b"\n".join(map(b"-".join, parts)).decode().split("\n")


class _Instants(Sequence[int]):
    """Stored seconds as microseconds; hardly any is ever asked for."""

    __slots__ = ("_stored",)

    def __init__(self, stored: Sequence[bytes]) -> None:
        self._stored = stored

    def __len__(self) -> int:
        return len(self._stored)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        if isinstance(index, slice):
            return _Instants(self._stored[index])
        return definitions.varint_at(self._stored[index], 0)[0] * 1_000_000
