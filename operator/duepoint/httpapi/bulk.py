"""Bulk operations: streams of rows, stored and answered in batches, in order, in bounded memory.

A batch is whatever has arrived, at most ``_TOGETHER`` rows. While one batch is being stored, the
next one is read and checked. Further rows wait in the client's kernel, because the server does not
read the connection. A batch is answered as soon as it is stored: a client may wait for the answer
to a row before it sends the next one. Rows above the set's rate wait instead of being refused: a
batch has at most half a second's changes, so that even a slow set answers every second. Answered
rows are stored. A stream that is cut has stored the answered rows, and perhaps one batch more.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Annotated, Final

import msgspec

from duepoint import errors, telemetry
from duepoint.delayqueue.members import values
from duepoint.httpapi import access, calls, members, ownsets, problems, views
from duepoint.httpapi.calls import Call
from duepoint.httpapi.problems import OperationProblem
from duepoint.model.answers import RowView
from duepoint.model.member import MemberId, Tag
from duepoint.model.vocabulary import Fields
from duepoint.net.httpserver import Refused, Stream
from duepoint.schedules.sets import members as memberjson

MOST_ROWS = 100_000
#: A batch runs one script on each of the 64 shards: more rows share that cost.
_TOGETHER = 2_500
#: How long rows are read before other tasks get to run.
_READ_SECONDS = 0.01
#: How long a stream waits for a row; empty lines do not count.
_ROW_SECONDS = 10.0
#: Statuses that end the stream: the caller has lost access to the set.
_LOST_RIGHTS: Final = (401, 403, 404)

_encoder = msgspec.json.Encoder()

#: A row that was read, or why it is refused.
_Row = memberjson.ReadMember | values.MemberRemoval | memberjson.RowError
_Answers = Sequence[ownsets.Settled]


class RemovalRow(Fields, forbid_unknown_fields=True):
    """A member to remove."""

    id: MemberId
    if_match: Annotated[Tag | None, "Only where the member has this etag."] = None


async def upsert(call: Call) -> None:
    await _answer(call, removes=False)


async def delete(call: Call) -> None:
    await _answer(call, removes=True)


async def _answer(call: Call, *, removes: bool) -> None:
    call.owned.check_open()
    async with access.place_of(call.namespace, call.shared.streams, 0, "bulk streams"):
        headers = (("Content-Type", calls.NDJSON), ("X-Request-Id", call.request_id))
        stream = call.request.start(200, headers)
        try:
            await _carry_out_all(call, stream, removes=removes)
            await stream.end()
        except ConnectionError as gone:
            telemetry.logger.info("stream cut", request=call.request_id, error=str(gone))


async def _carry_out_all(call: Call, stream: Stream, *, removes: bool) -> None:
    """Carry out all rows of the stream; raises ConnectionError if the client has gone away."""
    fatal: OperationProblem | None = None
    under_way = asyncio.create_task(asyncio.sleep(0))  # the batch before the first one
    line = 0
    try:
        async for lines in _lines(call):
            reader = None if removes else call.owned.reader
            rows = await read(reader, lines, call.shared.clock.now_us())
            await under_way
            under_way = asyncio.create_task(_carry_out(call, stream, rows, line + 1))
            line += len(lines)
            await asyncio.sleep(0)  # let the batch start before the next one is read
        await under_way
    except OperationProblem as problem:
        fatal = problem
    except Refused as refused:
        fatal = problems.of_status(refused.status, str(refused))
    finally:
        await asyncio.wait({under_way})
        _ = under_way.cancelled() or under_way.exception()  # else asyncio would log it
    lost = under_way.exception()
    if lost is not None and not isinstance(lost, OperationProblem):
        raise lost  # its answers did not reach the client
    if fatal is not None:
        error = RowView(line=line + 1, error=problems.of_row(fatal), fatal=True)
        await stream.write(_encoder.encode(error) + b"\n")


async def _lines(call: Call) -> AsyncIterator[list[bytes]]:
    """Yield complete lines in batches as they arrive, without empty ones."""
    rest = b""
    count = empty = 0
    loop = asyncio.get_running_loop()
    since = loop.time()
    async for piece in call.request.body.pieces():
        *parts, rest = (rest + piece).split(b"\n")
        lines = [part for part in parts if part.strip()]
        empty += len(parts) - len(lines)
        if not lines and loop.time() - since > _ROW_SECONDS:
            raise OperationProblem("RequestTimeout", f"no row came in {_ROW_SECONDS:.0f} s")
        taken = list(itertools.takewhile(_is_short, lines[: MOST_ROWS - count]))
        most = max(1, min(_TOGETHER, call.owned.changes_per_second // 2))
        for begin in range(0, len(taken), most):
            yield taken[begin : begin + most]
        count += len(taken)
        if len(taken) < len(lines) or len(rest) > memberjson.MOST_ROW_BYTES or empty > MOST_ROWS:
            raise _out_of_bounds(count)
        if lines:
            since = loop.time()
    if rest.strip():
        if count == MOST_ROWS:
            raise _out_of_bounds(count)
        yield [rest]


def _is_short(line: bytes) -> bool:
    return len(line) <= memberjson.MOST_ROW_BYTES


def _out_of_bounds(count: int) -> OperationProblem:
    """Return the problem that ends a stream after ``count`` rows."""
    if count < MOST_ROWS:
        message = f"the row has more than {memberjson.MOST_ROW_BYTES} bytes"
    else:
        message = f"a stream has at most {MOST_ROWS} rows; send the rest in another one"
    return OperationProblem("PayloadTooLarge", message)


async def read(reader: memberjson.RowReader | None, lines: list[bytes], now_us: int) -> list[_Row]:
    """Read rows from lines, some at a time, so that other requests run in between.

    Args:
        reader: None = the rows name members to remove.
        now_us: the instant that delays count from.
    """
    rows: list[_Row] = []
    loop = asyncio.get_running_loop()
    begun = loop.time()
    for line in lines:
        rows.append(_removal_of(line) if reader is None else reader.row(line, now_us=now_us))
        if loop.time() - begun > _READ_SECONDS:
            await asyncio.sleep(0)
            begun = loop.time()
    return rows


def _removal_of(line: bytes) -> values.MemberRemoval | memberjson.RowError:
    try:
        row = calls.decoded(line, RemovalRow, '{"id": "…"}, and ifMatch if you like')
    except OperationProblem as problem:
        return memberjson.RowError(problem.code, problem.field, problem.detail)
    condition = None if row.if_match is None else values.IfMatch(row.if_match)
    return values.MemberRemoval(id=row.id, condition=condition)


# -- one batch -------------------------------------------------------------------------------------


async def _carry_out(call: Call, stream: Stream, rows: list[_Row], first_line: int) -> None:
    """Store or remove the rows and answer them at once, as the next rows may come late."""
    lost: OperationProblem | None = None
    answers: _Answers
    count = sum(not isinstance(row, memberjson.RowError) for row in rows)
    try:
        await call.shared.sets.wait(call.owned, count)
        await _check_again(call)
        answers = await _changed(call, rows)
    except OperationProblem as problem:
        answers = [problem] * count
        lost = problem if problem.status in _LOST_RIGHTS else None
    except (errors.TryLater, errors.WorldChanged) as error:
        answers = [problems.unavailable(error)] * count
    await stream.write(_encoder.encode_lines(list(_shown(rows, answers, first_line))))
    if lost is not None:
        raise lost


async def _check_again(call: Call) -> None:
    """Check the caller's rights and the set again: either may have changed during the stream."""
    shared, authorization = call.shared, call.request.headers.get("authorization", "")
    caller = await shared.rights.caller(authorization, call.request.peer)
    await shared.rights.check(caller, call.namespace, call.set_name, call.verbs)
    found = await shared.sets.find(call.namespace, call.set_name)
    if found.owner != call.owned.owner:
        message = "the set was removed, and another one has its name now; begin again"
        raise OperationProblem("NotFound", message)
    call.owned = found
    found.check_open()


async def _changed(call: Call, rows: list[_Row]) -> _Answers:
    """Store or remove the rows that were not refused; return their results."""
    owned, safety = call.owned, call.safety()
    removals = [row for row in rows if isinstance(row, values.MemberRemoval)]
    if removals:
        return await call.shared.sets.remove(owned, safety, removals)
    writes = [
        members.write_of(row, _condition_of(row))
        for row in rows
        if isinstance(row, memberjson.ReadMember)
    ]
    return await call.shared.sets.put(owned, safety, writes) if writes else []


def _condition_of(row: memberjson.ReadMember) -> values.IfMatch | values.IfAbsent | None:
    """Return the condition that a row sets on the member to replace."""
    if row.if_match:
        return values.IfMatch(row.if_match)
    return values.IfAbsent() if row.if_absent else None


def _shown(rows: list[_Row], answers: _Answers, first_line: int) -> Iterator[RowView]:
    """Yield the answer to each row."""
    following = iter(answers)
    for line, row in enumerate(rows, start=first_line):
        answer = calls.refused_row(row) if isinstance(row, memberjson.RowError) else next(following)
        if isinstance(answer, OperationProblem):
            yield RowView(line=line, error=problems.of_row(answer), id=row.id or None)
        else:
            yield views.row_answer(answer)
