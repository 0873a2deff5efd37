"""One ScheduleSet in the queue: its record, the count of its members, and its rows.

All steps are idempotent, and update the state that the status is rendered from. The record of a
refused set is stored as well, with its former target, so that its members do not fire and the HTTP
API can say why. The spread is chosen once, from the first accepted limit, because the place of
every member depends on it; after a lost Redis it is read from the status.

The members of a set have no second copy, so a loss is only noticed by counting: the queue has no
record of a set that had members, a shard lacks the set's entry because its server was emptied, or a
server went back in time and has fewer members. The scripts that end slots count them in each shard;
if shards show lower counts than before, the difference is added again.

Rows are in the object or in a ConfigMap; a row is the JSON of a member. A ConfigMap is read again
every few seconds, because a watch of all ConfigMaps would take more memory than all other objects
of the operator; a digest shows whether it has changed. Members are written and removed some hundred
at a time; writing the same member again changes nothing. All invalid rows are reported together, by
their place; the others are used. If two rows have one id, neither is used. A one-off member whose
time has passed is not added: it has run, and a row must not run it again. A set whose rows cannot
be read keeps its members.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from duepoint import errors, telemetry
from duepoint.controller import statusconditions
from duepoint.controller.observed import Observed
from duepoint.controller.schedules import dryruns
from duepoint.controller.schedulesets import setstatus
from duepoint.controller.schedulesets.setstatus import FollowedSet, Lost, Rows
from duepoint.controller.term import TermContext
from duepoint.delayqueue.members import values
from duepoint.delayqueue.members.values import Outcome
from duepoint.kube import errors as kube_errors
from duepoint.kube import jobbuilder, secrets, times
from duepoint.model import scheduleset as model
from duepoint.schedules import actions, conditions
from duepoint.schedules.conditions import Condition, Reason
from duepoint.schedules.sets import members, setspec
from duepoint.schedules.sets.setrecord import SetRecord, SetState

#: A member that is late by less is just being claimed: that is not a lag.
_NO_LAG_US = 1_000_000
_LONGEST_NAME = 52


async def apply(
    term: TermContext, state: FollowedSet, seen: Observed, stored: SetRecord | None
) -> tuple[Condition, ...]:
    """Store this generation in the queue, or stop its members if it is refused.

    Returns the conditions of the generation. Raises QueueUnavailable, LayoutChanged, WorldChanged
    if there is a newer leader, and the errors of ``kube``.
    """
    status, queue = state.status, term.queue
    if status.spread is None and stored is not None and stored.target:
        status.spread = stored.spread
    if status.lost is not None and status.lost.generation != seen.generation:
        status.lost = None
    spec, verdict = None, None
    answer: tuple[Condition, ...] = ()
    try:
        spec = _parsed(term, seen, stored)
        verdict = await term.services.dry_runs.verdict(
            spec.action,
            spec.namespace,
            functools.partial(_facts, spec, term.clock.now_us()),
            is_accepted=state.accepted == seen.generation,
        )
        if verdict is not None and verdict.reason in dryruns.REFUSALS:
            answer = conditions.stalled(verdict.reason, verdict.message)
    except errors.InvalidSpec as invalid:
        answer = statusconditions.invalid(seen.generation, invalid).conditions
    if spec is None or answer:
        record = without_spec(seen, SetState.STALLED, status.spread)
        if stored is not None:  # its members keep their target
            record = msgspec.structs.replace(
                record,
                target=stored.target,
                settings=stored.settings,
                is_managed=stored.is_managed,
            )
        await queue.sets.store(record, b"", term.epoch)
        state.spec = None
    else:
        if status.spread is None:
            status.spread = setspec.spread(spec.settings.limits.members)
        record = SetRecord(
            namespace=spec.namespace,
            name=spec.name,
            uid=spec.uid,
            generation=spec.generation,
            state=SetState.SUSPENDED if spec.suspend else SetState.READY,
            spread=status.spread,
            target=queue.signed_blobs.digest(spec.namespace, spec.blob),
            settings=spec.settings,
            is_managed=spec.is_managed,
        )
        await queue.sets.store(record, spec.blob, term.epoch)
        status.target = spec.action.target.text
        answer = setstatus.ready(spec)
        if verdict is not None:
            why = f"the API server gave no verdict on spec.jobTemplate: {verdict.message}"
            answer = conditions.reconciling(Reason.FORBIDDEN, why)
        else:
            state.accepted = seen.generation
        state.spec = spec.without_texts()
    state.record = record
    if stored is None and status.members:
        _note_loss(term, state, status.members)
    if stored is None or status.lost is not None:
        state.rows_of = None
    return answer


def _parsed(term: TermContext, seen: Observed, stored: SetRecord | None) -> setspec.SetSpec:
    spec = setspec.parse(
        seen.spec,
        namespace=seen.namespace,
        name=seen.name,
        uid=seen.uid,
        generation=seen.generation,
        created_us=seen.created_us,
    )
    if not term.has_own_streams and actions.own_stream(spec.action.target) is not None:
        raise errors.InvalidSpec((statusconditions.NO_OWN_STREAMS,))
    former = spec.settings if stored is None or not stored.target else stored.settings
    if former.defaults.whole_seconds != spec.settings.defaults.whole_seconds:
        raise errors.InvalidSpec((_OTHER_KIND,))
    return spec


def _facts(spec: setspec.SetSpec, now_us: int) -> jobbuilder.SlotFacts:
    """Return the facts of a slot for a dry run: without a member, that of any of them."""
    return jobbuilder.SlotFacts(
        namespace=spec.namespace,
        name=spec.name[:_LONGEST_NAME],
        uid=spec.uid,
        slot_us=now_us,
        previous_us=None,
        trigger="Schedule",
        time_zone="Etc/UTC",
    )


# -- counting ----------------------------------------------------------------------------------


async def count(term: TermContext, state: FollowedSet) -> None:
    """Update the state with the current numbers; notices lost members and counts."""
    assert state.record is not None  # noqa: S101 - it was applied
    counted = await term.queue.sets.counts(state.record)
    if (lost := state.tally.beyond(counted.ended)) is not None:
        await term.queue.sets.count_again(state.record, lost, term.epoch)
    state.tally = counted.ended if lost is None else counted.ended.plus(lost)
    upheavals = term.queue.health.upheavals
    went_back = state.upheavals not in (None, upheavals)
    state.upheavals = upheavals
    status, due_us = state.status, counted.oldest_overdue_us
    before = status.members or 0
    if before > counted.members and (went_back or counted.shards_without):
        _note_loss(term, state, before)
    if counted.shards_without:
        state.is_unread = True  # shards lack the set's entry, so it must be stored again
    if status.lost is not None and counted.members >= status.lost.members:
        status.lost = None
    late_us = 0 if due_us is None else term.clock.now_us() - due_us
    next_us = counted.next_due_us
    status.members, status.in_flight = counted.members, counted.in_flight
    status.next_due_time = times.time_text(next_us) if next_us else None
    status.lag_seconds = 0 if late_us < _NO_LAG_US else round(late_us / 1_000_000, 1)


def _note_loss(term: TermContext, state: FollowedSet, before: int) -> None:
    """Record and report that Redis has lost members; there were ``before``."""
    known = state.status.lost
    state.status.lost = Lost(
        time=times.time_text(term.clock.now_us()),
        members=max(before, 0 if known is None else known.members),
        generation=state.seen.generation,
    )
    telemetry.logger.warning(
        "members of a set were lost with Redis", set=state.seen.identity, before=before
    )
    note = f"Redis lost members: there were {before} when they were counted last"
    term.record(setstatus.event(state, Reason.MEMBERS_LOST, note))


_OTHER_KIND = errors.FieldError(
    reason=Reason.INVALID_SPEC,
    path="spec",
    message="a set with a jobTemplate keeps one, and a set without one gets none, because the "
    "slots of Jobs are whole seconds; create another set and move its members",
)


def without_spec(seen: Observed, state: SetState, spread: int | None) -> SetRecord:
    """Return the record of a set without an accepted spec."""
    return SetRecord(
        namespace=seen.namespace,
        name=seen.name,
        uid=seen.uid,
        generation=seen.generation,
        state=state,
        spread=setspec.spread(setspec.SetLimits().members) if spread is None else spread,
        target="",
        settings=setspec.SetSettings(),
    )


# -- rows ---------------------------------------------------------------------------------------

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
            message = f"{place}: the id {row.id} is also at {found.places[row.id]}"
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
            texts = await _config_map(term, spec.namespace, named)
            source = f"ConfigMap {named.name}" + (f", key {named.key}" if named.key else "")
        else:
            inline = enumerate(setspec.inline_rows(raw or b""))
            texts = [(f"spec.rows.inline[{index}]", bytes(row)) for index, row in inline]
            source = "inline"
        rows_of = spec.generation, _digest(texts)
        if state.rows_of == rows_of:
            return True
        found = await _read_rows(term, spec, source, texts)
    except _Unusable as trouble:
        state.rows_of = spec.generation, b""
        state.status.rows = state.status.rows or Rows()
        _note(term, state, str(trouble))
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
    _note(term, state, setstatus.rows_wrong(failed) if failed else "")
    return True


def _note(term: TermContext, state: FollowedSet, message: str) -> None:
    """Set what is wrong with the rows, and record an Event if it is new."""
    if message and message != state.rows_wrong:
        term.record(setstatus.event(state, Reason.ROWS_INVALID, message))
    state.rows_wrong = message


async def _config_map(term: TermContext, namespace: str, rows: model.ConfigMapRefFields) -> _Texts:
    """Return the lines of a ConfigMap that are not empty, by key; raises _Unusable."""
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
    return [
        (f"{name}: line {number}", text)
        for name in ([rows.key] if rows.key else sorted(found.values))
        for number, line in enumerate(found.values[name].split(b"\n"), start=1)
        if (text := line.strip())
    ]


async def _read_rows(
    term: TermContext, spec: setspec.SetSpec, source: str, texts: _Texts
) -> ReadRows:
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


async def _write(term: TermContext, record: SetRecord, found: ReadRows) -> list[str] | None:
    """Write members; return the refused rows, or None if the queue accepts none of them now."""
    now_us = term.clock.now_us()
    passed = [
        row.id for row in found.rows.values() if row.at_us is not None and row.at_us <= now_us
    ]
    existing: set[str] = set()
    for names in _parts(passed):
        stored = await term.queue.members.lookups.get(record, names)
        existing.update(member.id for member in stored if member is not None)
    expired = set(passed) - existing
    writes = [
        values.MemberWrite(id=row.id, rule=row.rule, at_us=row.at_us, payload=row.payload)
        for row in found.rows.values()
        if row.id not in expired
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


def _digest(texts: _Texts) -> bytes:
    digest = hashlib.sha256()
    for place, text in texts:
        digest.update(b"%b\0%b\0" % (place.encode(), text))
    return digest.digest()
