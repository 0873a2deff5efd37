"""A bar on a terminal's standard error, and nothing elsewhere.

A text beside the bar says what is counted. The bar's library is imported only where it is shown.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from duepoint.cli import output

#: Shows how far it is, and a few words.
Advance = Callable[[float, str], None]


@contextlib.contextmanager
def bar(name: str, total: float | None) -> Iterator[Advance]:
    """A bar for as long as the context lasts; ``total`` None = unknown."""
    if not sys.stderr.isatty():
        yield lambda _done, _text: None
        return
    from rich import console, progress  # noqa: PLC0415 - only on a terminal

    shown = progress.Progress(
        progress.TextColumn("{task.fields[name]}", markup=False),
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
        progress.TextColumn("{task.fields[text]}", markup=False),
        console=console.Console(stderr=True),
    )
    with shown:
        task = shown.add_task("", name=name, text="", total=total)

        def advance(done: float, text: str) -> None:
            shown.update(task, completed=done, text=output.one_line(text))

        yield advance
