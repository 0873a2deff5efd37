"""Rows and single objects as a table, JSON or YAML.

JSON is one object a line, YAML one document an object, both with the API's own names. A table is
for people and fits the terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from duepoint.cli import output

#: A member's own wishes, in the order of a table of one.
_WISHES = (
    "timeZone", "startingDeadlineSeconds", "catchUpPolicy", "catchUpLimit", "concurrencyPolicy",
    "jitter", "dst",
)  # fmt: skip


def row(value: msgspec.Struct) -> output.Row:
    """What the API said, under its own names."""
    made: output.Row = msgspec.to_builtins(value)
    return made


def rows(
    listed: Iterable[output.Row],
    form: str,
    columns: output.Columns,
    *,
    wide: output.Columns,
    spare: Sequence[str] = (),
    may_cut: str = "",
) -> int:
    """Write a list; how many there were."""
    if form == "yaml":
        return _yaml(listed)
    return output.show_rows(listed, form, columns, wide=wide, spare=spare, may_cut=may_cut)


def single(shown: output.Row, form: str, cells: Callable[[output.Row], output.Cells]) -> None:
    """Write one object."""
    if form == "yaml":
        _yaml([shown])
    else:
        output.show_row(shown, form, cells(shown))


def cells_of_member(shown: output.Row) -> output.Cells:
    """A member as one line a fact; what it does not have is left out."""
    cells = {
        "id": shown["id"],
        "schedule": when({**shown, "at": None}),
        "at": output.text(shown["at"]),
        "state": shown["state"],
        "next due": "claimed by a worker" if shown["claimed"] else _due(shown),
        **{name: output.text(shown[name]) for name in _WISHES},
        "payload": "" if shown["payload"] is None else _json(shown["payload"]),
        "created": output.text(shown["createdTime"]),
        "etag": shown["etag"],
    }
    return {name: cell for name, cell in cells.items() if cell}


def when(shown: output.Row) -> str:
    """The rule of a member in a cell."""
    several = shown["schedule"]
    return ", ".join(several) if isinstance(several, list) else output.text(several or shown["at"])


def _due(shown: output.Row) -> str:
    return output.text(shown["nextDueTime"])


def due(shown: output.Row) -> str:
    """The next due time in a cell."""
    return "claimed" if shown["claimed"] else output.short_time(shown["nextDueTime"])


def payload(shown: output.Row) -> str:
    """The payload in a cell."""
    return "" if shown["payload"] is None else _json(shown["payload"])


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _yaml(listed: Iterable[output.Row]) -> int:
    bare = ({name: value for name, value in one.items() if value is not None} for one in listed)
    return output.write(bare, "yaml")
