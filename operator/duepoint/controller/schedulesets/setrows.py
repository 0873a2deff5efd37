"""Sets that are kept equal to rows: what a row adds, changes or leaves out, the set follows.

Rows stand in the object or in a ConfigMap; a row is the JSON of a member. A ConfigMap is read again
every few seconds, because a watch of all ConfigMaps would cost more than all else that the operator
keeps; its version says whether there is anything to do. Namespaces take turns, a set at a time:
reading and writing 10,000 rows takes seconds, and a namespace may have many sets. Members are
written and removed some hundred at a time, the same again is no change. Wrong rows are found all at
once and named by their place; the others are used, and of two rows with one id neither is. A
one-off whose time has passed is not added: it has run, and a row must not run it again. A set whose
rows cannot be read keeps its members.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from duepoint.controller.schedulesets import setstate, setstatus
from duepoint.controller.schedulesets.setstate import FollowedSets
from duepoint.controller.schedulesets.setstatus import FollowedSet, RowsProgress
from duepoint.controller.term import TermContext
from duepoint.controller.workqueue import WorkQueue
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue.members import values
from duepoint.delayqueue.members.values import Outcome
from duepoint.kube import errors as kube_errors
from duepoint.kube import schedules, secrets
from duepoint.model import scheduleset as model
from duepoint.schedules.conditions import Reason
from duepoint.schedules.sets import members, setspec
from duepoint.schedules.sets.setrecord import SetRecord

#: What a message says of one row, in characters.
_MOST_TEXT = 200


@dataclass(slots=True)
class ReadRows:
    """What rows say.

    Attributes:
        rows: by id.
        wrong: what is wrong, each with the place of its row.
        kept: ids of wrong rows: a member that has one stays as it is.
    """

    rows: dict[str, members.ReadMember] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    kept: set[str] = field(default_factory=set)


def of_inline(rows: setspec.InlineRows) -> Iterator[tuple[str, bytes]]:
    """The place and the text of each row of the object."""
    for index, row in enumerate(rows.rows):
        yield f"spec.rows.inline[{index}]", bytes(row)


def of_data(data: Mapping[str, bytes], key: str) -> Iterator[tuple[str, bytes]]:
    """The place and the text of each line of a ConfigMap; empty lines are none.

    Args:
        key: the only one that is read; empty = all, in the order of their names.
    """
    for name in [key] if key else sorted(data):
        for number, line in enumerate(data[name].split(b"\n"), start=1):
            if text := line.strip():
                yield f"{name}: line {number}", text


class RowsReading:
    """Rows being read, some at a time: ten thousand of them take seconds."""

    def __init__(self, reader: members.RowReader, *, now_us: int) -> None:
        self._reader = reader
        self._now_us = now_us
        self._places: dict[str, str] = {}
        self._found = ReadRows()

    def read(self, texts: Iterable[tuple[str, bytes]]) -> None:
        """Read these places and texts."""
        found = self._found
        for place, text in texts:
            if len(text) > members.MOST_ROW_BYTES:
                most = members.MOST_ROW_BYTES
                found.wrong.append(f"{place}: has {len(text)} bytes; write at most {most}")
                continue
            row = self._reader.row(text, now_us=self._now_us)
            if isinstance(row, members.RowError):
                where = f"{place}: {row.field}" if row.field else place
                found.wrong.append(f"{where}: {row.detail}"[:_MOST_TEXT])
                if row.id:
                    found.kept.add(row.id)
            elif row.id in self._places:
                message = f"{place}: the id {row.id} stands at {self._places[row.id]}, too"
                found.wrong.append(message[:_MOST_TEXT])
                found.kept.add(row.id)
            else:
                self._places[row.id] = place
                found.rows[row.id] = row

    def ended(self) -> ReadRows:
        """What all of them say."""
        for name in self._found.kept:
            self._found.rows.pop(name, None)
        return self._found


#: From one look at a ConfigMap to the next.
LOOK_SECONDS = 10.0
_AGAIN_SECONDS = 1.0
_WORKERS = 2
#: Rows of one call, so that none takes long, and members of one page.
_TOGETHER = 500
_PAGE = 1_000
#: Members of one turn: removing so many takes seconds.
_MOST_REMOVED = 50_000

T = TypeVar("T")

_STORED = frozenset({Outcome.CREATED, Outcome.REPLACED, Outcome.UNCHANGED})
#: The queue does not take members of the set now: it is stored again, or deleted.
_NOT_NOW = frozenset({Outcome.GONE, Outcome.DELETING, Outcome.MANAGED})


class _Unusable(Exception):
    """Why no row can be used."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """Rows as they were read.

    Attributes:
        name: as the status names it.
        texts: place and text of each row.
        version: differs where the rows do.
    """

    name: str
    texts: tuple[tuple[str, bytes], ...]
    version: bytes


class SetRows:
    """The service; one for each term of a leader.

    Args:
        done: called once a set is equal to its rows, or cannot be.
        missing: called where the queue does not know the set: it is to be stored again.
    """

    def __init__(
        self,
        term: TermContext,
        *,
        states: FollowedSets,
        done: Callable[[FollowedSet], None],
        missing: Callable[[FollowedSet], None],
    ) -> None:
        self._term = term
        self._states = states
        self._done = done
        self._missing = missing
        self._tasks: WorkQueue[FollowedSet] = WorkQueue(
            term.clock, "rows not applied", lane=lambda state: state.seen.namespace, ends=_ENDS
        )
        #: By uid, what the set was made equal to last.
        self._applied: dict[str, tuple[int, bytes]] = {}

    async def run(self) -> None:
        """Follow until cancelled."""
        await self._tasks.run(self._look, _WORKERS)

    def follow(self, state: FollowedSet, *, anew: bool) -> None:
        """The set was applied; ``anew``: it may have lost members."""
        uid = state.seen.uid
        if anew:
            self._applied.pop(uid, None)
        if state.spec is not None and state.spec.is_managed:
            self._tasks.put(uid, state)
        else:
            self._applied.pop(uid, None)
            if state.spec is not None:
                state.rows = None

    def is_equal(self, state: FollowedSet) -> bool:
        """Whether the set was made equal to the rows of this generation in this term."""
        applied = self._applied.get(state.seen.uid)
        return applied is not None and applied[0] == state.seen.generation

    def forget(self, uid: str) -> None:
        """The set is gone, or going."""
        self._applied.pop(uid, None)

    async def _look(self, state: FollowedSet) -> float | None:
        """Seconds until the next look, None = after the next edit."""
        uid = state.seen.uid
        if self._states.get(uid) is not state or state.is_deleting or state.record is None:
            return None
        spec = state.spec
        is_inline = spec is not None and isinstance(spec.rows, setspec.InlineRows)
        if spec is None or spec.rows is None or (is_inline and self.is_equal(state)):
            return None
        try:
            source = await self._source(state, spec)
            if source is None:
                return None
            if self._applied.get(uid) != (spec.generation, source.version):
                found = await self._read(spec, source)
                if not await self._apply(state, state.record, source, found):
                    return _AGAIN_SECONDS
        except _Unusable as trouble:
            unusable = setstatus.rows_unusable(trouble.reason, trouble.message)
            former = state.rows or RowsProgress()
            self._applied[uid] = (spec.generation, b"")
            self._report(state, replace(former, condition=unusable))
            return LOOK_SECONDS
        return None if is_inline else LOOK_SECONDS

    async def _apply(
        self, state: FollowedSet, record: SetRecord, source: _Source, found: ReadRows
    ) -> bool:
        """The set is equal to its rows; False where another try is needed soon."""
        uid, spec = state.seen.uid, state.spec
        assert spec is not None  # noqa: S101 - it has been looked at
        try:
            wrong = await self._write(record, found)
            if wrong is not None and not await self._remove_others(record, found):
                return False
        except queue_errors.LayoutChanged:
            await self._term.queue.layouts.read()
            return False
        if wrong is None:
            self._missing(state)
            return False
        newest = state.spec
        is_edited = newest is None or newest.generation != spec.generation
        if self._states.get(uid) is not state or is_edited:
            return False
        named = (*found.wrong, *wrong)
        self._applied[uid] = (spec.generation, source.version)
        progress = RowsProgress(
            desired=len(found.rows),
            applied=len(found.rows) - len(wrong),
            failed=len(named),
            source=source.name,
            condition=setstatus.rows_invalid(named, len(named)) if named else None,
        )
        self._report(state, progress)
        return True

    def _report(self, state: FollowedSet, progress: RowsProgress) -> None:
        before = None if state.rows is None else state.rows.condition
        if progress.condition is not None and progress.condition != before:
            self._term.record(setstate.of_rows(state, progress.condition))
        state.rows = progress
        self._done(state)

    # -- the rows --------------------------------------------------------------------------------

    async def _source(self, state: FollowedSet, spec: setspec.SetSpec) -> _Source | None:
        """The rows as they are now; None where the object has changed, which is applied first.

        Raises _Unusable, and errors.TryLater.
        """
        rows = spec.rows
        if isinstance(rows, setspec.InlineRows):
            item = await schedules.read_set(
                self._term.api, spec.namespace, spec.name, not_before=state.seen.version
            )
            if item is None or (item.metadata.uid, item.metadata.generation) != (
                spec.uid,
                spec.generation,
            ):
                return None
            texts = tuple(of_inline(setspec.inline_rows(bytes(item.spec))))
            return _Source(name="inline", texts=texts, version=_version(texts))
        assert isinstance(rows, setspec.ConfigMapRows)  # noqa: S101 - a managed set has rows
        data = await self._data(spec.namespace, rows)
        texts = tuple(of_data(data, rows.key))
        name = f"ConfigMap {rows.name}" + (f", key {rows.key}" if rows.key else "")
        return _Source(name=name, texts=texts, version=_version(texts))

    async def _data(self, namespace: str, rows: setspec.ConfigMapRows) -> Mapping[str, bytes]:
        where = f"spec.rows.configMapRef: ConfigMap {rows.name}"
        try:
            found = await secrets.read(self._term.api, "ConfigMap", namespace, rows.name)
        except kube_errors.NotFound:
            message = f"{where} does not exist in namespace {namespace}; the members stay"
            raise _Unusable(Reason.CONFIG_MAP_MISSING, message) from None
        except kube_errors.Forbidden:
            message = f"{where}: the operator may not get it; the members stay"
            raise _Unusable(Reason.CONFIG_MAP_MISSING, message) from None
        if rows.key and rows.key not in found.values:
            message = f"{where} has no key {rows.key}; the members stay"
            raise _Unusable(Reason.CONFIG_MAP_MISSING, message)
        return found.values

    async def _read(self, spec: setspec.SetSpec, source: _Source) -> ReadRows:
        """What the rows say; raises _Unusable."""
        most = min(model.MOST_ROWS, spec.settings.limits.members)
        if (count := len(source.texts)) > most:
            message = (
                f"spec.rows: {source.name} has {count} rows; write at most {most}; the members stay"
            )
            raise _Unusable(Reason.ROWS_INVALID, message)
        clock = self._term.clock
        reading = RowsReading(members.RowReader(spec.settings), now_us=clock.now_us())
        for some in members.row_turns([len(text) for _, text in source.texts]):
            reading.read(source.texts[some])
            await clock.sleep(0)  # the Lease is renewed in between
        return reading.ended()

    # -- the set ---------------------------------------------------------------------------------

    async def _write(self, record: SetRecord, found: ReadRows) -> list[str] | None:
        """Rows that the queue refused; None where it does not take members of the set now."""
        now_us = self._term.clock.now_us()
        passed = [
            row.id for row in found.rows.values() if row.at_us is not None and row.at_us <= now_us
        ]
        over = set(passed) - await self._standing(record, passed)
        writes = [
            values.MemberWrite(id=row.id, rule=row.rule, at_us=row.at_us, payload=row.payload)
            for row in found.rows.values()
            if row.id not in over
        ]
        wrong: list[str] = []
        for some in _parts(writes):
            for answer in await self._term.queue.members.put(record, some):
                if answer.outcome in _NOT_NOW:
                    return None
                if answer.outcome not in _STORED:
                    wrong.append(f"{answer.id}: {_REFUSED[answer.outcome]}")
            await self._term.clock.sleep(0)  # let firing and statuses in between
        return wrong

    async def _standing(self, record: SetRecord, names: list[str]) -> set[str]:
        """Those of these ids that have a member."""
        found: set[str] = set()
        for some in _parts(names):
            stored = await self._term.queue.members.lookups.get(record, some)
            found.update(member.id for member in stored if member is not None)
        return found

    async def _remove_others(self, record: SetRecord, found: ReadRows) -> bool:
        """Whether no member is left that has no row; else the next sets have their turn first.

        A set that had no rows before may have millions of them, so they are never held together.
        """
        cursor, removed = "", 0
        while removed < _MOST_REMOVED:
            page = await self._term.queue.members.pages.page(record, cursor, limit=_PAGE)
            gone = [
                member.id
                for member in page.members
                if member.id not in found.rows and member.id not in found.kept
            ]
            for names in _parts(gone):
                removals = [values.MemberRemoval(id=name) for name in names]
                await self._term.queue.members.remove(record, removals)
                await self._term.clock.sleep(0)
            removed += len(gone)
            cursor = page.cursor
            if not cursor:
                return True
        return False


#: What ends a term.
_ENDS = (queue_errors.Fenced,)

_REFUSED = {
    Outcome.COLLISION: "another member has the same hash; write another id",
    Outcome.PRECONDITION: "ifMatch or ifNoneMatch does not hold; take it out",
}


def _parts(items: Sequence[T], most: int = _TOGETHER) -> Iterable[Sequence[T]]:
    return (items[first : first + most] for first in range(0, len(items), most))


def _version(texts: tuple[tuple[str, bytes], ...]) -> bytes:
    digest = hashlib.sha256()
    for place, text in texts:
        digest.update(b"%b\0%b\0" % (place.encode(), text))
    return digest.digest()
