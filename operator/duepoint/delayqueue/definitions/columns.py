"""The definitions of hundreds of claimed chains by column.

One match finds the parts of all usual records (no flag, the name of plain ASCII), in a tenth of the
time of reading one by one; those of members with a payload or an instant of their own are read one
by one. Records of another form are left out: ``codec.unpack`` reads them.
Records are not cached, because a match costs less than a look into a cache. Kinds
(namespace, rule, target) are cached, and dropped with the numbers of their shard.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast, overload

import msgspec

from duepoint.delayqueue import messages
from duepoint.delayqueue.definitions import codec, interning, reading
from duepoint.schedules import points
from duepoint.schedules import rule as rules
from duepoint.schedules.definition import State
from duepoint.schedules.sets import setrecord


class DefinitionKind(msgspec.Struct, frozen=True, eq=False):
    """What schedules of one namespace, rule and target share.

    The same kind is the same object for as long as it is known, so that what is worked out of it
    can be found again without looking into it.

    Attributes:
        target: the digest of the action.
        owner: the set whose members they are; None of Schedules.
    """

    namespace: str
    rule: rules.Rule
    target: str
    owner: points.SetIdentity | None = None

    @property
    def is_large(self) -> bool:
        """Whether it has several expressions, up to 7 KB of text: then little of it is kept."""
        return len(self.rule.timing.schedules) > 1


class OwnPayload(NamedTuple):
    """The payload of a member, empty where it has none of its own, with its keyed hash."""

    text: bytes = b""
    mac: bytes = b""


class Columns(NamedTuple):
    """The few facts of many definitions that a first attempt needs, by column.

    A column is made, picked from and sent on in a few calls, an object for each definition in as
    many as there are definitions. Row by row the columns belong together.

    Attributes:
        indexes: of which record each row is; the others are to be read as definitions.
        created_us: for those few rules that need it.
        kinds: the bytes of the numbers of namespace, target and rule.
        kind_of: what each kind stands for; a kind that cannot be read is absent.
        once_us: the instants of members that fire once, None of others; empty where all are others.
        payloads: payloads of members, and what proves who stored them; empty where none has one.
    """

    indexes: Sequence[int] = ()
    uids: Sequence[str] = ()
    names: Sequence[str] = ()
    generations: Sequence[int] = ()
    created_us: Sequence[int] = ()
    kinds: Sequence[Hashable] = ()
    kind_of: Mapping[Hashable, DefinitionKind] = {}
    once_us: Sequence[int | None] = ()
    payloads: Sequence[OwnPayload] = ()


_BY_ROW = (
    "indexes", "uids", "names", "generations", "created_us", "kinds", "once_us", "payloads",
)  # fmt: skip


def picked(found: Columns, chosen: Sequence[bool]) -> Columns:
    """Some rows, by a flag for each."""
    some: dict[str, Any] = {
        name: list(itertools.compress(getattr(found, name), chosen)) for name in _BY_ROW
    }
    return found._replace(**some)


_USUAL_ARMED = codec.HEADS[State.ARMED][0]
_find_facts = codec.finder(
    "version", "uid", "generation", "created", "kind", "name_length", head=_USUAL_ARMED
)


def columns(records: Sequence[bytes | None], versions: Sequence[bytes]) -> Columns:
    """The rows of those usual records that are armed and of the timing version beside them.

    Where all records are, which is the rule, one match of all of them is the whole work.
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
        if found is None:  # one of them is not usual
            rows = codec.parts(_find_facts, listed)
            usual = [place for place, row in zip(usual, rows, strict=True) if row is not None]
            found = list(zip(*filter(None, rows), strict=True))
    if not found:
        return of_members
    usual_columns = _usual_columns(usual, found)
    return _joined(usual_columns, of_members) if of_members.indexes else usual_columns


def _usual_columns(usual: Sequence[int], found: Sequence[tuple[bytes, ...]]) -> Columns:
    _, _, uids, generations, created, kinds, _, names = found
    number_of = {varint: codec.varint_number(varint) for varint in set(generations)}
    return Columns(
        indexes=usual,
        uids=codec.uuid_texts(uids),
        names=b"\n".join(names).decode().split("\n"),
        generations=list(map(number_of.__getitem__, generations)),
        created_us=_Instants(created),
        kinds=kinds,
    )


def _member_columns(records: Sequence[bytes | None], versions: Sequence[bytes]) -> Columns:
    """The rows of armed members with a payload or an instant of their own."""
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
    uids, generations, created, kinds, names, once_us, payloads, macs = zip(*rows, strict=True)
    return Columns(
        indexes=indexes,
        uids=codec.uuid_texts(uids),
        names=[name.decode() for name in names],
        generations=list(map(codec.varint_number, generations)),
        created_us=_Instants(created),
        kinds=kinds,
        once_us=once_us,
        payloads=list(map(OwnPayload, payloads, macs)),
    )


def _joined(usual: Columns, members: Columns) -> Columns:
    """Both, in the order of the records."""
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
    """Stored seconds as microseconds; hardly any is ever asked for."""

    __slots__ = ("_stored",)

    def __init__(self, stored: Sequence[bytes]) -> None:
        self._stored = stored

    def __len__(self) -> int:
        return len(self._stored)

    def __iter__(self) -> Iterator[int]:
        """Of many rows few are distinct."""
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


#: Kinds of each shard that are remembered.
_REMEMBERED_KINDS = 4_096
_ID_LENGTH = 8


@dataclass(eq=False)
class ColumnReader:
    """Reads the definitions of many claimed chains in short."""

    reader: reading.DefinitionReader
    interned: interning.Interned

    async def of_claim(self, claim: messages.Claim, chains: Sequence[bytes]) -> Columns:
        """The definitions in short, for these chain members of the claim.

        Without those where there is none, where it is not armed or of another timing version, or
        not of the usual form: those are to be read as definitions.
        """
        self.interned.see(claim.shard, claim.incarnation)
        stored = claim.stored
        read = columns(
            [stored[chain[:_ID_LENGTH]] for chain in chains],
            [chain[_ID_LENGTH:] for chain in chains],
        )
        kinds = set(cast("Sequence[bytes]", read.kinds))
        return read._replace(kind_of=await self._kinds(claim, kinds))

    async def _kinds(
        self, claim: messages.Claim, kinds: set[bytes]
    ) -> dict[Hashable, DefinitionKind]:
        """What the kinds stand for, without members whose set does not fire, or is not known."""
        shard = claim.shard
        known: dict[bytes, DefinitionKind | None] = self.interned.derived(shard)
        listed = {kind: known[kind] for kind in kinds if kind in known}
        if len(listed) < len(kinds):
            learned = await self._read_kinds(shard, kinds - listed.keys())
            if len(known) >= _REMEMBERED_KINDS:
                known.clear()
            known.update(
                (kind, each) for kind, each in learned.items() if each is None or not each.is_large
            )
            listed.update(learned)
        entries = self.reader.parsed_entries(claim)
        return {
            kind: as_it_is
            for kind, definition_kind in listed.items()
            if definition_kind is not None
            and (as_it_is := self._as_it_is(kind, definition_kind, entries)) is not None
        }

    def _as_it_is(
        self,
        kind: bytes,
        known: DefinitionKind,
        entries: Mapping[int, setrecord.SetEntry | None],
    ) -> DefinitionKind | None:
        """The kind with what its set does now; one of a Schedule says so itself."""
        if known.owner is None:
            return known
        entry = entries.get(codec.kind_numbers(kind)[0])
        if entry is None or entry.letter != "o":
            return None
        return _of_set(known, entry.target)

    async def _read_kinds(
        self, shard: messages.ShardId, kinds: set[bytes]
    ) -> dict[bytes, DefinitionKind | None]:
        """None = one that cannot be read; the log reports it when it is read whole."""
        numbers_of = {kind: codec.kind_numbers(kind) for kind in kinds}
        await self.reader.learn_numbers(
            shard, set(itertools.chain.from_iterable(numbers_of.values()))
        )
        read: dict[bytes, DefinitionKind | None] = dict.fromkeys(kinds)
        for kind, (namespace, target, rule) in numbers_of.items():
            with contextlib.suppress(msgspec.DecodeError, *reading.TEXT_TROUBLES):
                known_rule = reading.parsed_rule(self.reader.text(shard, rule))
                if self.reader.set_lanes_among(shard, [namespace]):
                    owner = points.parse_set(self.reader.text(shard, namespace))
                    read[kind] = DefinitionKind(owner.namespace, known_rule, "", owner)
                    continue
                read[kind] = DefinitionKind(
                    self.reader.text(shard, namespace).decode(),
                    known_rule,
                    self.reader.text(shard, target).decode(),
                )
        return read


@functools.lru_cache(maxsize=_REMEMBERED_KINDS)
def _of_set(known: DefinitionKind, target: str) -> DefinitionKind:
    """The same object for the same kind and target."""
    return DefinitionKind(known.namespace, known.rule, target, known.owner)
