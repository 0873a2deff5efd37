"""Rows of a ScheduleSet: where they stand, and the members that they say.

A row is the JSON of a member. Wrong rows are found all at once and named by their place; the others
are used. Of two rows with one id neither is. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from duepoint.schedules.sets import members, setspec

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
