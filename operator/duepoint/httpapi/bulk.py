"""Streams of rows: read, stored and answered in batches, in order, within bounded memory.

A batch is what has arrived, at most ``_TOGETHER`` rows. While one is under way in the queue the
next one is read and checked; further ones wait in the client's kernel, because nobody takes them
from the connection. A batch is answered as soon as it is stored: a client may wait for the answer
to a row before it sends the next one. Rows above the set's rate wait, they are not refused: a batch
that is more than half a second's changes is stored and answered in parts, so that a slow set
answers every second. What waited is read again where the set was edited meanwhile. What is answered
is stored; a stream that is cut has stored what was answered, and perhaps one batch more.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from duepoint import clock as clocks
from duepoint import errors, telemetry
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue.members import members, values
from duepoint.delayqueue.wire import nodes
from duepoint.httpapi import calls, ownsets, problems, singles, views
from duepoint.httpapi.problems import OperationProblem
from duepoint.model.answers import RowView
from duepoint.net.requests import BodyCut, Stream
from duepoint.schedules.sets import members as memberjson

MOST_ROWS = 100_000
#: A batch is one script for each shard, 64 of them: the more rows, the less of that is each one's.
_TOGETHER = 2_500
#: Others wait for no longer while rows are read.
_READ_SECONDS = 0.01
#: Streams at a time, of the process and of a namespace: each holds some batches in memory.
_MOST_STREAMS = 64
_MOST_OF_A_NAMESPACE = 16
#: A stream waits no longer for a row; empty lines are none.
_ROW_SECONDS = 10.0
#: Whoever hears one of these has no business with the set any more, and the stream ends.
_LOST_RIGHTS: Final = (401, 403, 404)

_encoder = msgspec.json.Encoder()


class _Removal(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    id: str
    if_match: str | None = None


class _Batch(NamedTuple):
    """Rows of a stream; those that were refused stand in ``refused`` by their place.

    ``reader`` read the lines at ``read_us``; None: they name members to be removed.
    """

    first_line: int
    lines: list[bytes]
    rows: list[memberjson.ReadMember | values.MemberRemoval]
    places: list[int]
    refused: dict[int, tuple[str, OperationProblem]]
    reader: memberjson.RowReader | None = None
    read_us: int = 0

    def parts(self, most: int) -> Iterator[_Batch]:
        """The same in batches of at most so many rows."""
        if len(self.rows) <= most:
            yield self
            return
        begins = [0, *self.places[most::most], len(self.lines)]
        for number, (begin, end) in enumerate(itertools.pairwise(begins)):
            of_part = slice(number * most, (number + 1) * most)
            yield self._replace(
                first_line=self.first_line + begin,
                lines=self.lines[begin:end],
                rows=self.rows[of_part],
                places=[place - begin for place in self.places[of_part]],
                refused={
                    place - begin: why
                    for place, why in self.refused.items()
                    if begin <= place < end
                },
            )


class _Named(msgspec.Struct):
    id: str = ""


_removal_decoder = msgspec.json.Decoder(_Removal)
_named_decoder = msgspec.json.Decoder(_Named)


class Bulk:
    """Carries out bulk streams."""

    def __init__(
        self,
        population: members.Members,
        sets: ownsets.OwnSets,
        limits: ownsets.Rates,
        reading: calls.Turns,
        clock: clocks.Clock,
    ) -> None:
        self._members = population
        self._sets = sets
        self._rates = limits
        self._turns = reading
        self._clock = clock
        self._streams: collections.Counter[str] = collections.Counter()

    async def upsert(self, call: calls.OperationCall) -> None:
        await self._answer(call, removes=False)

    async def delete(self, call: calls.OperationCall) -> None:
        await self._answer(call, removes=True)

    async def _answer(self, call: calls.OperationCall, *, removes: bool) -> None:
        call.owned.check_open()
        with self._place(call.namespace):
            stream = call.request.start(
                200, (("Content-Type", calls.NDJSON), ("X-Request-Id", call.request_id))
            )
            try:
                await _Transfer(self, call, stream, removes=removes).run()
                stream.end()
            except ConnectionError as gone:
                telemetry.logger.info("stream cut", request=call.request_id, error=str(gone))

    @contextlib.contextmanager
    def _place(self, namespace: str) -> Iterator[None]:
        if (
            self._streams.total() >= _MOST_STREAMS
            or self._streams[namespace] >= _MOST_OF_A_NAMESPACE
        ):
            message = "there are too many bulk streams at a time; repeat it later"
            raise OperationProblem("TooManyRequests", message, retry_after_seconds=1)
        self._streams[namespace] += 1
        try:
            yield
        finally:
            self._streams[namespace] -= 1
            if not self._streams[namespace]:
                del self._streams[namespace]

    # -- what a transfer needs -----------------------------------------------------------------

    async def read(self, call: calls.OperationCall, first_line: int, lines: list[bytes]) -> _Batch:
        """The rows of lines to be stored."""
        return await self._read(call, call.owned.reader, first_line, lines, self._clock.now_us())

    async def _read(
        self,
        call: calls.OperationCall,
        reader: memberjson.RowReader,
        first_line: int,
        lines: list[bytes],
        now_us: int,
    ) -> _Batch:
        """The rows of lines; delays count from ``now_us``."""
        batch = _Batch(first_line, lines, [], [], {}, reader, now_us)

        def read(places: slice) -> None:
            rows = reader.rows(lines[places], now_us=now_us)
            for place, row in enumerate(rows, start=places.start):
                if isinstance(row, memberjson.RowError):
                    batch.refused[place] = row.id, calls.refused_row(row)
                else:
                    batch.rows.append(row)
                    batch.places.append(place)

        await self._in_turns(call, lines, read)
        return batch

    async def read_removals(
        self, call: calls.OperationCall, first_line: int, lines: list[bytes]
    ) -> _Batch:
        """The rows of lines to be removed."""
        batch = _Batch(first_line, lines, [], [], {})

        def read(places: slice) -> None:
            for place, line in enumerate(lines[places], start=places.start):
                try:
                    batch.rows.append(_removal_of(line))
                except OperationProblem as problem:
                    batch.refused[place] = _named(line), problem
                else:
                    batch.places.append(place)

        await self._in_turns(call, lines, read)
        return batch

    async def _in_turns(
        self, call: calls.OperationCall, lines: list[bytes], read: Callable[[slice], None]
    ) -> None:
        """Read lines some at a time; other requests have their turns in between."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        for places in memberjson.row_turns(list(map(len, lines))):
            async with self._turns.of(call.namespace):
                read(places)
            if loop.time() - begun > _READ_SECONDS:
                await asyncio.sleep(0)
                begun = loop.time()

    def most_together(self, call: calls.OperationCall) -> int:
        """How many rows may wait for their turn together: half a second's changes."""
        return max(1, call.owned.changes_per_second // 2)

    async def carry_out(
        self, call: calls.OperationCall, batch: _Batch, safety: nodes.Safety | None
    ) -> tuple[_Batch, list[values.MemberWritten | OperationProblem]]:
        """What became of the rows of a batch, in their order; and the batch as it was read last."""
        owned = call.owned
        try:
            changes = owned.changes_per_second
            await self._rates.wait(owned.owner, changes, len(batch.rows))
            owned = await self._owned_now(call)
            if not batch.rows:
                return batch, []
            if batch.reader is None:
                removals = [row for row in batch.rows if isinstance(row, values.MemberRemoval)]
                removed = await self._members.remove(owned.record, removals, safety=safety)
                return batch, [*removed]
            if batch.reader is not owned.reader:  # the set's defaults may be other ones now
                batch = await self._read(
                    call, owned.reader, batch.first_line, batch.lines, batch.read_us
                )
            writes = [
                singles.write_of(row, singles.condition_of(row))
                for row in batch.rows
                if isinstance(row, memberjson.ReadMember)
            ]
            return batch, await self._put(owned, writes, safety)
        except OperationProblem as problem:
            if problem.status in _LOST_RIGHTS:
                raise
            return batch, [problem] * len(batch.rows)
        except (errors.TryLater, errors.WorldChanged) as error:
            return batch, [unavailable(error)] * len(batch.rows)

    @staticmethod
    async def _owned_now(call: calls.OperationCall) -> ownsets.OwnSet:
        """The set; raises Problem where the caller may change it no more, or nobody may."""
        if call.look_again is not None:
            await call.look_again()
        return call.owned

    async def _put(
        self,
        owned: ownsets.OwnSet,
        writes: list[values.MemberWrite],
        safety: nodes.Safety | None,
    ) -> list[values.MemberWritten | OperationProblem]:
        room = await self._sets.room(owned)
        allowed: Sequence[int] = range(len(writes))
        if room < len(writes):
            allowed = await self._within(owned, writes, room)
        put = await self._members.put(
            owned.record, [writes[place] for place in allowed], safety=safety
        )
        owned.counted += sum(answer.outcome is values.Outcome.CREATED for answer in put)
        answers: list[values.MemberWritten | OperationProblem] = [*put]
        if len(allowed) < len(writes):
            answers = [singles.set_full(owned)] * len(writes)
            for place, answer in zip(allowed, put, strict=True):
                answers[place] = answer
        return answers

    async def _within(
        self, owned: ownsets.OwnSet, writes: list[values.MemberWrite], room: int
    ) -> list[int]:
        """Places of the writes that keep the set within its limit: members it has, and ``room``."""
        found = await self._members.lookups.get(owned.record, [write.id for write in writes])
        here = {write.id for write, stored in zip(writes, found, strict=True) if stored}
        allowed = []
        for place, write in enumerate(writes):
            if write.id not in here:
                if room < 1:
                    continue
                room -= 1
                here.add(write.id)
            allowed.append(place)
        return allowed


class _Transfer:
    """One stream of rows."""

    def __init__(
        self, owner: Bulk, call: calls.OperationCall, stream: Stream, *, removes: bool
    ) -> None:
        self._owner = owner
        self._call = call
        self._stream = stream
        self._removes = removes
        self._safety = call.safety()
        self._line = 0

    async def run(self) -> None:
        """Raises ConnectionError where the client has gone away."""
        fatal: OperationProblem | None = None
        under_way: asyncio.Task[None] | None = None
        try:
            async for lines in self._lines():
                batch = await self._read(lines)
                if under_way is not None:
                    await under_way
                under_way = asyncio.create_task(self._carry_out(batch))
                await asyncio.sleep(0)  # the batch is on its way before the next one is read
            if under_way is not None:
                await under_way
        except OperationProblem as problem:
            fatal = problem
        except BodyCut as cut:
            fatal = problems.of_status(cut.status or 400, str(cut))
        finally:
            if under_way is not None:
                await asyncio.wait({under_way})
                _ = under_way.cancelled() or under_way.exception()  # asyncio wants it looked at
        lost = None if under_way is None else under_way.exception()
        if lost is not None and not isinstance(lost, OperationProblem):
            raise lost  # its answers did not reach the client
        if fatal is not None:
            error = RowView(line=self._line + 1, error=problems.of_row(fatal), fatal=True)
            await self._stream.write(_encoder.encode(error) + b"\n")

    async def _read(self, lines: list[bytes]) -> _Batch:
        first, self._line = self._line + 1, self._line + len(lines)
        if self._removes:
            return await self._owner.read_removals(self._call, first, lines)
        return await self._owner.read(self._call, first, lines)

    async def _carry_out(self, batch: _Batch) -> None:
        """Store or remove the rows, and answer them at once: the next ones may come late."""
        for part in batch.parts(self._owner.most_together(self._call)):
            try:
                read, answers = await self._owner.carry_out(self._call, part, self._safety)
            except OperationProblem as problem:
                await self._write(part, [problem] * len(part.rows))
                raise
            await self._write(read, answers)

    async def _lines(self) -> AsyncIterator[list[bytes]]:
        """Whole lines as they come, some at a time; empty ones are left out."""
        rest = b""
        count = empty = 0
        loop = asyncio.get_running_loop()
        since = loop.time()
        async for piece in self._call.request.body.pieces():
            parts = (rest + piece).split(b"\n")
            rest = parts.pop()
            lines = [part for part in parts if part.strip()]
            empty += len(parts) - len(lines)
            if not lines and loop.time() - since > _ROW_SECONDS:
                raise OperationProblem("RequestTimeout", f"no row came in {_ROW_SECONDS:.0f} s")
            read = _count_within_bounds(lines, count)
            for first in range(0, read, _TOGETHER):
                yield lines[first : min(first + _TOGETHER, read)]
            count += read
            if read < len(lines) or len(rest) > memberjson.MOST_ROW_BYTES or empty > MOST_ROWS:
                raise _out_of_bounds(count)
            if lines:
                since = loop.time()
        if rest.strip():
            if not _count_within_bounds([rest], count):
                raise _out_of_bounds(count)
            yield [rest]

    async def _write(
        self, batch: _Batch, answers: list[values.MemberWritten | OperationProblem]
    ) -> None:
        first_line, refused = batch.first_line, batch.refused
        lines: list[RowView | None] = [None] * len(batch.lines)
        for place, row, answer in zip(batch.places, batch.rows, answers, strict=True):
            if isinstance(answer, OperationProblem):
                refused[place] = row.id, answer
            elif (problem := calls.problem_of(answer.outcome)) is not None:
                refused[place] = row.id, problem
            else:
                lines[place] = views.row_answer(answer)
        for place, (id_, problem) in refused.items():
            error = problems.of_row(problem)
            lines[place] = RowView(line=first_line + place, error=error, id=id_ or None)
        await self._stream.write(_encoder.encode_lines(lines))


def _count_within_bounds(lines: list[bytes], count: int) -> int:
    """How many of these lines are read, after so many others."""
    allowed = min(len(lines), MOST_ROWS - count)
    long = (place for place in range(allowed) if len(lines[place]) > memberjson.MOST_ROW_BYTES)
    return next(long, allowed)


def _out_of_bounds(count: int) -> OperationProblem:
    """Why the stream is not read on after so many rows."""
    if count < MOST_ROWS:
        message = f"the row has more than {memberjson.MOST_ROW_BYTES} bytes"
    else:
        message = f"a stream has at most {MOST_ROWS} rows; send the rest in another one"
    return OperationProblem("PayloadTooLarge", message)


def _named(line: bytes) -> str:
    """The id in a row that is refused; empty where it has none that can be."""
    try:
        id_ = _named_decoder.decode(line).id
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return ""
    return id_ if memberjson.is_id(id_) else ""


def _removal_of(line: bytes) -> values.MemberRemoval:
    calls.check_strictly(line)
    row = calls.decoded(line, _removal_decoder, '{"id": "…"}, and ifMatch if you like')
    calls.check_id(row.id)
    if row.if_match is not None and not memberjson.is_tag(row.if_match):
        raise OperationProblem("InvalidField", "is no tag", field="ifMatch")
    condition = None if row.if_match is None else values.IfMatch(row.if_match)
    return values.MemberRemoval(id=row.id, condition=condition)


def unavailable(error: errors.TryLater | errors.WorldChanged) -> OperationProblem:
    """What the queue cannot do now."""
    if isinstance(error, queue_errors.NotDurable):
        message = "the change is stored, but not as safely as was asked for, in the time given"
        return OperationProblem("NotDurable", message, retry_after_seconds=1)
    wait = getattr(error, "retry_after_seconds", None)
    message = "Redis cannot take the request now, or moves its data; repeat it"
    return OperationProblem("Unavailable", message, retry_after_seconds=wait or 1)
