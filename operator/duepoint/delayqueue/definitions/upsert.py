"""Stores and removes Schedules, for the leader of a term.

``upsert`` takes one row or a million. If there is no record, or the one from which the plan was
made, a row is stored in one round trip. Otherwise the answer is the stored record, and this module
decides whether the row may replace exactly that record: the same or an older generation of the same
uid changes nothing, and another uid under the id is reported. A namespace's rows go to its lane.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from duepoint import errors
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import index, messages
from duepoint.delayqueue.definitions import codec, kinds, lanes, putting, records, signedblobs
from duepoint.schedules import definition as definitions
from duepoint.schedules import points
from duepoint.schedules import rule as rules

#: Most open slots to send together: the server spends some 5 us on each.
_MOST_OPEN = 250
_ANSWERS = {
    putting.CREATED: messages.Armed.APPLIED,
    putting.REPLACED: messages.Armed.APPLIED,
    putting.HELD: messages.Armed.HELD,
}

#: One schedule to store, and the content that its target names.
Wanted = tuple[messages.Arming, bytes]


class _Row(putting.Row, frozen=True, gc=False):
    """One schedule to store."""

    kind: putting.Kind
    arming: messages.Arming


@dataclass(eq=False)
class DefinitionWriter:
    """Stores definitions, their blobs and their chain points, and removes them."""

    index: index.Index
    writer: putting.RowWriter
    signed_blobs: signedblobs.SignedBlobs

    async def upsert(self, wanted: Sequence[Wanted], epoch: messages.Epoch) -> list[messages.Armed]:
        """Store definitions; raises Bug or InvalidSpec if one of them cannot be stored."""
        answers: list[messages.Armed | None] = [None] * len(wanted)
        by_namespace: dict[str, list[_Row]] = {}
        for row in self._rows(wanted):
            by_namespace.setdefault(row.arming.definition.namespace, []).append(row)
        await asyncio.gather(
            *(
                self._store(lanes.Lane(lanes.of_namespace(namespace), epoch), rows, answers)
                for namespace, rows in by_namespace.items()
            )
        )
        return cast("list[messages.Armed]", answers)

    def _rows(self, wanted: Sequence[Wanted]) -> list[_Row]:
        kinds_by_key: dict[tuple[str, str, int, bytes], putting.Kind] = {}
        blobs: dict[str, bytes] = {}
        rows = []
        for place, (arming, content) in enumerate(wanted):
            definition, due_us = arming.definition, arming.due_us
            if due_us is not None and not records.is_due(due_us):
                raise _out_of_range()
            key = (definition.namespace, definition.target, id(definition.rule), content)
            kind = kinds_by_key.get(key)
            if kind is None:
                kind = kinds_by_key[key] = self._kind(definition, content, blobs)
            row = putting.row_of(place, definition.id, self.index.buckets)
            rows.append(_Row(place, row.id, row.low, row.bucket, kind, arming))
        return rows

    def _kind(
        self, definition: definitions.Definition, content: bytes, blobs: dict[str, bytes]
    ) -> putting.Kind:
        if definition.target != self.signed_blobs.digest(definition.namespace, content):
            raise errors.Bug(f"{definition.identity}: its target is not the digest of its blob")
        if definition.target not in blobs:
            blobs[definition.target] = self.signed_blobs.pack(content)
        rule_text = b"" if definition.rule.is_private else rules.text(definition.rule)
        text = kinds.text_of(lanes.of_namespace(definition.namespace), definition.target, rule_text)
        digest = self.signed_blobs.kind_digest(text)
        return putting.Kind(digest, text, definition.target, blobs[definition.target])

    async def _store(
        self, lane: lanes.Lane, rows: list[_Row], answers: list[messages.Armed | None]
    ) -> None:
        """Store the rows of a lane, and put an answer for each into ``answers``."""

        async def decide(
            _: messages.ShardId, tasks: list[putting.Task], replies: list[bytes]
        ) -> list[putting.Task]:
            retried = []
            for task, reply in zip(tasks, replies, strict=True):
                if (armed := _ANSWERS.get(reply) or _refusal(task.row, reply)) is not None:
                    answers[task.row.place] = armed
                else:
                    retried.append(_task(task.row, _fingerprint(reply)))
            return retried

        for batch in itertools.chain.from_iterable(map(_batches, putting.waves(rows))):
            if await self.writer.write(lane, list(map(_first_task, batch)), decide):
                raise queue_errors.LayoutChanged(
                    "the index is resharded faster than it can be written"
                )

    async def remove(
        self, schedule_id: points.ScheduleId, uid: str, namespace: str, epoch: messages.Epoch
    ) -> messages.Armed:
        """Remove a definition, its points and its history, unless it has another uid."""
        row = putting.row_of(0, schedule_id, self.index.buckets)
        lane = lanes.Lane(lanes.of_namespace(namespace), epoch)
        (answer,) = await self.writer.drop(lane, {row: (codec.packed_uid(uid), b"")})
        is_removed = answer == putting.REPLACED
        return messages.Armed.APPLIED if is_removed else messages.Armed.UNCHANGED


def _batches(rows: list[_Row]) -> Iterator[list[_Row]]:
    """Yield the rows in batches with few open slots; a row with more than the limit goes alone."""
    batch: list[_Row] = []
    open_slots = 0
    for row in rows:
        open_slots += len(row.arming.open)
        if batch and open_slots > _MOST_OPEN:
            yield batch
            batch, open_slots = [], len(row.arming.open)
        batch.append(row)
    yield batch


def _first_task(row: _Row) -> putting.Task:
    """Return a row's first task: to replace the record that its plan was made from."""
    if row.arming.keep_chain and not row.arming.replaces:
        return putting.Task(row, row.kind, putting.NO_DUE, b"")  # only reads the record
    return _task(row, row.arming.replaces)


def _task(row: _Row, expected: bytes) -> putting.Task:
    arming, definition = row.arming, row.arming.definition
    record = codec.record(definition, row.kind.digest, is_inline=definition.rule.is_private)
    return putting.Task(
        row, row.kind, _due(arming), expected, record=record, options=_options(arming)
    )


def _fingerprint(stored: bytes) -> bytes:
    """Return the ``Task.expected`` with which a row replaces the stored record."""
    known = codec.readable(stored)
    return putting.ANYTHING if known is None else known.fingerprint


def _refusal(row: _Row, stored: bytes) -> messages.Armed | None:
    """Return the answer if the row must not replace the stored record; else None."""
    arming = row.arming
    wanted, known = arming.definition, codec.readable(stored)
    if known is None:
        return messages.Armed.CHANGED if arming.keep_chain else None
    if known.uid != wanted.uid:
        return messages.Armed.COLLISION
    is_replaced = arming.replaces and known.fingerprint == arming.replaces
    if wanted.generation <= known.generation and not is_replaced:
        return messages.Armed.UNCHANGED
    if arming.keep_chain and known.timing_version != wanted.timing_version:
        return messages.Armed.CHANGED
    return None


def _due(arming: messages.Arming) -> bytes:
    if arming.due_us is not None:
        return b"%d" % arming.due_us
    return putting.KEPT_CHAIN if arming.keep_chain else putting.NO_DUE


def _options(arming: messages.Arming) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if arming.due_us is not None and (arming.keep_chain or arming.after_us):
        options["after" if arming.keep_chain else "former"] = arming.after_us
    if arming.open:
        options["open"] = [
            value
            for one in arming.open
            for value in (str(one.point.due_us), one.point.member, records.pack(one.record))
        ]
    return options


def _out_of_range() -> errors.InvalidSpec:
    return errors.InvalidSpec(
        (
            errors.FieldError(
                reason="InvalidSpec",
                path="spec.schedule",
                message="the next run is before 1970 or after September 2112; set a time between",
            ),
        )
    )
