"""Rows as users have them, in batches, and their answers: bounded memory however many there are.

A batch is sent as one request and kept until each of its rows has an answer, so that it can be
sent again. It ends at a number of rows or of bytes, whichever comes first, which is far below what
the API takes in one request: a lost connection then costs the repetition of a second's work. Pure.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence

import msgspec

from duepoint.client import calls, members, problems, transport
from duepoint.model import answers

#: Rows of a batch.
ROWS = 1_000
#: Bytes of a batch; a single row may be longer.
BYTES = 1024 * 1024
#: Longest line that is read of an answer, in bytes.
LONGEST_LINE = 64 * 1024

_answers = msgspec.json.Decoder(members.RowAnswer)


def line_of(row: members.MemberRow | str) -> bytes:
    """A row to be written, or the id of one to be deleted, as a line without its end.

    Raises:
        ValueError: it is no JSON, such as a payload with a NaN or a date of another type.
    """
    return members.on_one_line(calls.encoded({"id": row} if isinstance(row, str) else row))


class Batch:
    """Lines that wait to be sent together."""

    def __init__(self, rows: int = ROWS, size: int = BYTES) -> None:
        self._rows, self._size = rows, size
        self._lines: list[bytes] = []
        self._bytes = 0

    def add(self, line: bytes) -> list[bytes]:
        """Take a line; the batch before it, where it is full with it, else nothing."""
        ended: list[bytes] = []
        if self._lines and self._bytes + len(line) >= self._size:
            ended = self.take()
        self._lines.append(line)
        self._bytes += len(line) + 1
        return ended or (self.take() if len(self._lines) >= self._rows else [])

    def take(self) -> list[bytes]:
        """What is left, and the batch is empty."""
        taken, self._lines, self._bytes = self._lines, [], 0
        return taken


def batches(lines: Iterable[bytes], rows: int = ROWS, size: int = BYTES) -> Iterator[list[bytes]]:
    """The lines in batches."""
    batch = Batch(rows, size)
    for line in lines:
        if ended := batch.add(line):
            yield ended
    if last := batch.take():
        yield last


class AnswerLines:
    """Answers to rows out of pieces of a stream.

    Raises:
        problems.ServiceUnreachable: what comes is no answer of this API.
    """

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> list[members.RowAnswer]:
        """The answers that a piece completes."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > LONGEST_LINE:
            raise problems.ServiceUnreachable(
                f"a line of the answer is longer than {LONGEST_LINE} bytes: this is no Duepoint API"
            )
        return [_answer(line) for line in lines if line.strip()]

    def end(self) -> list[members.RowAnswer]:
        """The last line may have no end."""
        last, self._rest = self._rest, b""
        return [_answer(last)] if last.strip() else []


def _answer(line: bytes) -> members.RowAnswer:
    try:
        return _answers.decode(line)
    except msgspec.DecodeError as error:
        raise problems.ServiceUnreachable(
            f"a line of the answer is no answer to a row ({error}): this is no Duepoint API"
        ) from error


def raise_if_fatal(arrived: Sequence[members.RowAnswer]) -> None:
    """The last line may say that the API read no further."""
    if arrived and arrived[-1].fatal:
        raise error_of(arrived[-1])


def miscounted(
    arrived: Sequence[members.RowAnswer], sent: Sequence[int]
) -> problems.ServiceUnreachable:
    """What it means that not each row has one answer."""
    return problems.ServiceUnreachable(
        f"{len(sent)} rows were sent and {len(arrived)} answers came"
    )


def error_of(answer: members.RowAnswer) -> problems.ApiProblem:
    """Why a row was refused; only of one that was."""
    return problems.of_problem(answer.error or answers.Problem())


def is_passing(answer: members.RowAnswer) -> bool:
    """Whether the same row may be accepted later."""
    return answer.is_refused and transport.is_passing(error_of(answer))


Row = members.MemberRow | str | bytes
Rows = Iterable[members.MemberRow] | Iterable[str] | Iterable[bytes]
AsyncRows = Rows | AsyncIterable[members.MemberRow] | AsyncIterable[str] | AsyncIterable[bytes]


def in_batches(rows: Rows) -> Iterator[list[bytes]]:
    """Lines to send together; bytes are lines already."""
    return batches(_line(row) for row in rows)


async def async_in_batches(rows: AsyncRows) -> AsyncIterator[list[bytes]]:
    """The same of rows that come from either kind of iterable."""
    if isinstance(rows, Iterable):
        for batch in in_batches(rows):
            yield batch
        return
    open_batch = Batch()
    async for row in rows:
        if ended := open_batch.add(_line(row)):
            yield ended
    if last := open_batch.take():
        yield last


def _line(row: Row) -> bytes:
    return row.strip() if isinstance(row, bytes) else line_of(row)
