"""``duepoint version``: which version this is, for people and for programs."""

from __future__ import annotations

import platform

import click

from duepoint import __version__
from duepoint.cli import options, output


@click.command()
@options.output_format
def version(form: str) -> None:
    """Print the version."""
    if form == "table":
        output.say(__version__)
        return
    python = platform.python_version()
    row = {"version": __version__, "python": python, "platform": platform.platform(terse=True)}
    output.show_row(row, form, row)
