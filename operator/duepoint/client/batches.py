"""Rows as users have them, in batches, and their answers: bounded memory however many there are.

A batch is sent as one request and kept until each of its rows has an answer, so that it can be
sent again. It ends at a number of rows or of bytes, whichever comes first, which is far below what
the API takes in one request: a lost connection then costs the repetition of a second's work. Pure.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence

import msgspec

from duepoint.client import calls, problems, transport
from duepoint.model import answers

#: Rows of a batch.
ROWS = 1_000
#: Bytes of a batch; a single row may be longer.
BYTES = 1024 * 1024
#: Longest line that is read of an answer, in bytes.
LONGEST_LINE = 64 * 1024

_answers = msgspec.json.Decoder(calls.RowAnswer)


def line_of(row: calls.MemberRow | str) -> bytes:
    """A row to be written, or the id of one to be deleted, as a line without its end.

    Raises:
        ValueError: it is no JSON, such as a payload with a NaN or a date of another type.
    """
    return calls.on_one_line(calls.encoded({"id": row} if isinstance(row, str) else row))


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


class Arrived:
    """Answers to the rows of a request, out of pieces of a stream, and what stopped more of them.

    Within its ``with`` a ClientError ends the stream.
    """

    def __init__(self) -> None:
        self.answers: list[calls.RowAnswer] = []
        self.error: problems.ClientError | None = None
        self._rest = b""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        try:
            if error is None:
                self.feed(b"\n")  # the last line may have no end
                if self.answers and self.answers[-1].fatal:  # the API read no further
                    raise error_of(self.answers[-1])
        except problems.ClientError as wrong:
            error = wrong
        if isinstance(error, problems.ClientError):
            self.error = error
            self.answers = [answer for answer in self.answers if not answer.fatal]
        return self.error is not None

    def feed(self, piece: bytes) -> None:
        """Read the answers that a piece completes; raises problems.ServiceUnreachable."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > LONGEST_LINE:
            raise problems.ServiceUnreachable(
                f"a line of the answer is longer than {LONGEST_LINE} bytes: this is no Duepoint API"
            )
        try:
            self.answers += [_answers.decode(line) for line in lines if line.strip()]
        except msgspec.DecodeError as error:
            raise problems.ServiceUnreachable(
                f"a line of the answer is no answer to a row ({error}): this is no Duepoint API"
            ) from error


class Sending:
    """Rows that go together, until each has its answer.

    Attributes:
        waiting: places of those that are to be sent, or sent again.
    """

    def __init__(self, lines: Sequence[bytes], attempts: transport.Attempts) -> None:
        self._lines, self._attempts = lines, attempts
        self._answers: dict[int, calls.RowAnswer] = {}
        self.waiting = list(range(len(lines)))

    def lines(self) -> list[bytes]:
        """What is to be sent now."""
        return [self._lines[place] for place in self.waiting]

    def take(self, arrived: Arrived) -> float:
        """Take the answers; seconds to wait before the rest, if there is one, is sent again.

        Raises:
            problems.ClientError: the request was refused, or rows stay without an answer.
        """
        sent, came, error = self.waiting, arrived.answers, arrived.error
        self._answers.update(zip(sent, came, strict=False))
        if len(came) > len(sent) or (error is None and len(came) < len(sent)):
            message = f"{len(sent)} rows were sent and {len(came)} answers came"
            error = problems.ServiceUnreachable(message)
            if len(came) > len(sent):
                raise error
        self.waiting = [
            place
            for place in sent
            if place not in self._answers or is_passing(self._answers[place])
        ]
        if not self.waiting:
            return 0.0
        if len(self.waiting) < len(sent):
            self._attempts.begin_anew()  # rows went through, so the API is there
        try:
            return self._attempts.after(error or error_of(self._answers[self.waiting[0]]))
        except problems.ClientError:
            if error is not None:
                raise
            self.waiting = []  # each row says why by itself
            return 0.0

    def in_order(self) -> list[calls.RowAnswer]:
        return [self._answers[place] for place in range(len(self._lines))]


def error_of(answer: calls.RowAnswer) -> problems.ApiProblem:
    """Why a row was refused; only of one that was."""
    return problems.of_problem(answer.error or answers.Problem())


def is_passing(answer: calls.RowAnswer) -> bool:
    """Whether the same row may be accepted later."""
    return answer.is_refused and transport.is_passing(error_of(answer))


Row = calls.MemberRow | str | bytes
Rows = Iterable[calls.MemberRow] | Iterable[str] | Iterable[bytes]
AsyncRows = Rows | AsyncIterable[calls.MemberRow] | AsyncIterable[str] | AsyncIterable[bytes]


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
