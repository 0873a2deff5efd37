"""The rows of sets: adds, changes and removes members so that a set equals its rows.

Rows are in the object or in a ConfigMap; a row is the JSON of a member. A ConfigMap is read again
every few seconds, because a watch of all ConfigMaps would take more memory than all other objects
of the operator; a digest shows whether it has changed. Members are written and removed some hundred
at a time; writing the same member again changes nothing. All invalid rows are reported together, by
their place; the others are used. If two rows have one id, neither is used. A one-off member whose
time has passed is not added: it has run, and a row must not run it again. A set whose rows cannot
be read keeps its members.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from duepoint.controller.schedulesets import setstatus
from duepoint.controller.schedulesets.setstatus import FollowedSet, Rows
from duepoint.controller.term import TermContext
from duepoint.delayqueue.members import values
from duepoint.delayqueue.members.values import Outcome
from duepoint.kube import errors as kube_errors
from duepoint.kube import secrets
from duepoint.model import scheduleset as model
from duepoint.schedules.conditions import Condition
from duepoint.schedules.sets import members, setspec
from duepoint.schedules.sets.setrecord import SetRecord

#: The most characters about one row in a message.
_MOST_TEXT = 200


@dataclass(slots=True)
class ReadRows:
    """Parsed rows.

    Attributes:
        rows: by id; those also in ``kept`` must not be used.
        places: the first place of each id.
        wrong: the errors, each with the place of its row.
        kept: ids of invalid rows: a member with such an id stays as it is.
    """

    rows: dict[str, members.ReadMember] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    kept: set[str] = field(default_factory=set)


def of_inline(rows: Iterable[msgspec.Raw]) -> Iterator[tuple[str, bytes]]:
    """Yield the place and the text of each row of the object."""
    for index, row in enumerate(rows):
        yield f"spec.rows.inline[{index}]", bytes(row)


def of_data(data: Mapping[str, bytes], key: str) -> Iterator[tuple[str, bytes]]:
    """Yield the place and the text of each line of a ConfigMap that is not empty.

    Args:
        key: the only key to read; empty = all, in the order of their names.
    """
    for name in [key] if key else sorted(data):
        for number, line in enumerate(data[name].split(b"\n"), start=1):
            if text := line.strip():
                yield f"{name}: line {number}", text


def read_some(
    found: ReadRows,
    reader: members.RowReader,
    texts: Iterable[tuple[str, bytes]],
    *,
    now_us: int,
) -> None:
    """Parse some rows into ``found``: ten thousand take seconds, so callers do some at a time."""
    for place, text in texts:
        if len(text) > (most := members.MOST_ROW_BYTES):
            found.wrong.append(f"{place}: has {len(text)} bytes; write at most {most}")
            continue
        row = reader.row(text, now_us=now_us)
        if isinstance(row, members.RowError):
            where = f"{place}: {row.field}" if row.field else place
            found.wrong.append(f"{where}: {row.detail}"[:_MOST_TEXT])
            if row.id:
                found.kept.add(row.id)
        elif row.id in found.places:
            message = f"{place}: the id {row.id} stands at {found.places[row.id]}, too"
            found.wrong.append(message[:_MOST_TEXT])
            found.kept.add(row.id)
        else:
            found.places[row.id] = place
            found.rows[row.id] = row


#: Rows in one call, so that none takes long, and members in one page.
_TOGETHER = 500
#: Most rows to parse until other tasks get to run.
_READ_TOGETHER = 25
_PAGE = 1_000

T = TypeVar("T")

#: The queue accepts no members of the set now, until the set is stored again or deleted.
_NOT_NOW = frozenset({Outcome.GONE, Outcome.DELETING, Outcome.MANAGED})


class _Unusable(Exception):
    """Raised with the reason why no row can be used."""


#: The place and the text of each row.
_Texts = Sequence[tuple[str, bytes]]


async def follow(term: TermContext, state: FollowedSet, raw: bytes | None) -> bool:
    """Make the set equal to its rows; return False if another try is needed soon.

    Args:
        raw: the spec with its rows, if the object has just been read.
    """
    spec, record = state.spec, state.record
    assert spec is not None and record is not None  # noqa: S101, PT018 - it was applied
    named = None if spec.rows is None else spec.rows.config_map_ref
    if named is None and (raw is None or state.follows_rows):
        state.is_unread = state.is_unread or not state.follows_rows
        return state.follows_rows
    try:
        if named is not None:
            key = named.key or ""
            texts = tuple(of_data(await _data(term, spec.namespace, named), key))
            source = f"ConfigMap {named.name}" + (f", key {key}" if key else "")
        else:
            texts = tuple(of_inline(setspec.inline_rows(raw or b"")))
            source = "inline"
        rows_of = spec.generation, _version(texts)
        if state.rows_of == rows_of:
            return True
        found = await _read(term, spec, source, texts)
    except _Unusable as trouble:
        state.rows_of = spec.generation, b""
        state.status.rows = state.status.rows or Rows()
        _note(term, state, setstatus.rows_invalid(str(trouble)))
        return True
    wrong = await _write(term, record, found)
    if wrong is None:  # the queue lacks the set's record, so it must be stored again
        state.is_unread = True
        return False
    await _remove_others(term, record, found)
    failed = (*found.wrong, *wrong)
    state.rows_of = rows_of
    state.status.rows = Rows(
        desired=len(found.rows),
        applied=len(found.rows) - len(wrong),
        failed=len(failed),
        source=source,
    )
    _note(term, state, setstatus.rows_wrong(failed) if failed else None)
    return True


def _note(term: TermContext, state: FollowedSet, condition: Condition | None) -> None:
    """Set the condition about the rows, and record an Event if it is new."""
    if condition is not None and condition != state.rows_condition:
        term.record(setstatus.event(state, condition.reason, condition.message))
    state.rows_condition = condition


# -- the rows --------------------------------------------------------------------------------


async def _data(
    term: TermContext, namespace: str, rows: model.ConfigMapRefFields
) -> Mapping[str, bytes]:
    where = f"spec.rows.configMapRef: ConfigMap {rows.name}"
    try:
        found = await secrets.read(term.api, "ConfigMap", namespace, rows.name)
    except kube_errors.NotFound:
        raise _Unusable(
            f"{where} does not exist in namespace {namespace}; the members stay"
        ) from None
    except kube_errors.Forbidden:
        raise _Unusable(f"{where}: the operator may not get it; the members stay") from None
    if rows.key and rows.key not in found.values:
        raise _Unusable(f"{where} has no key {rows.key}; the members stay")
    return found.values


async def _read(term: TermContext, spec: setspec.SetSpec, source: str, texts: _Texts) -> ReadRows:
    """Parse the rows; raises _Unusable."""
    most = min(model.MOST_ROWS, spec.settings.limits.members)
    if (count := len(texts)) > most:
        raise _Unusable(
            f"spec.rows: {source} has {count} rows; write at most {most}; the members stay"
        )
    clock, found = term.clock, ReadRows()
    reader, now_us = members.RowReader(spec.settings), clock.now_us()
    for some in _parts(texts, _READ_TOGETHER):
        read_some(found, reader, some, now_us=now_us)
        await clock.sleep(0)  # let the Lease be renewed in between
    for name in found.kept:
        found.rows.pop(name, None)
    return found


# -- the set ---------------------------------------------------------------------------------


async def _write(term: TermContext, record: SetRecord, found: ReadRows) -> list[str] | None:
    """Write members; return the refused rows, or None if the queue accepts none of them now."""
    now_us = term.clock.now_us()
    passed = [
        row.id for row in found.rows.values() if row.at_us is not None and row.at_us <= now_us
    ]
    standing: set[str] = set()
    for names in _parts(passed):
        stored = await term.queue.members.lookups.get(record, names)
        standing.update(member.id for member in stored if member is not None)
    over = set(passed) - standing
    writes = [
        values.MemberWrite(id=row.id, rule=row.rule, at_us=row.at_us, payload=row.payload)
        for row in found.rows.values()
        if row.id not in over
    ]
    wrong: list[str] = []
    for some in _parts(writes):
        for answer in await term.queue.members.put(record, some):
            if answer.outcome in _NOT_NOW:
                return None
            if answer.outcome is Outcome.COLLISION:
                wrong.append(f"{answer.id}: another member has the same hash; write another id")
        await term.clock.sleep(0)  # let firing and status writes run in between
    return wrong


async def _remove_others(term: TermContext, record: SetRecord, found: ReadRows) -> None:
    """Remove members without a row.

    A set that had no rows before may have millions of members, so they are read in pages.
    """
    cursor = None
    while cursor != "":
        page = await term.queue.members.pages.page(record, cursor or "", limit=_PAGE)
        gone = [
            member.id
            for member in page.members
            if member.id not in found.rows and member.id not in found.kept
        ]
        for names in _parts(gone):
            removals = [values.MemberRemoval(id=name) for name in names]
            await term.queue.members.remove(record, removals)
            await term.clock.sleep(0)
        cursor = page.cursor


def _parts(items: Sequence[T], most: int = _TOGETHER) -> Iterable[Sequence[T]]:
    return (items[first : first + most] for first in range(0, len(items), most))


def _version(texts: _Texts) -> bytes:
    digest = hashlib.sha256()
    for place, text in texts:
        digest.update(b"%b\0%b\0" % (place.encode(), text))
    return digest.digest()
