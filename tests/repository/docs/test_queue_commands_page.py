"""The page of the queue's commands has every option of those that change dead letters."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from duepoint import cli
from duepoint.cli import options as cli_options
from duepoint.cli.queue import connection

REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference"
PAGE = (REFERENCE / "queue-commands.md").read_text()


def section(name):
    (found,) = [part for part in PAGE.split("\n## ") if part.startswith(f"`duepoint dlq {name}")]
    return found


@pytest.mark.parametrize("name", ["list", "replay", "purge"])
def test_every_option_has_a_row_and_every_row_an_option(name):
    group = cli.commands.get_command(click.Context(cli.commands), "dlq")

    @click.command()
    @connection.reaching
    @cli_options.patience
    def where(**_):
        pass

    reaching = {option for each in where.params for option in each.opts}
    options = {
        option
        for each in group.commands[name].params
        if isinstance(each, click.Option)
        for option in each.opts
    }
    rows = section("replay" if name == "purge" else name)  # purge has the same ones
    told = {
        one
        for row in rows.splitlines()
        if row.startswith("| `-")
        for one in re.findall(r"`(--?[a-z][-a-z]*)`", row.split("|")[1])
    }
    unsaid = {"--output", "-o"} if name == "list" else set()  # told once, above
    assert told == options - reaching - unsaid
