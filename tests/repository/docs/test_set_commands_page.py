"""The page of the commands for sets has every command with every option, and no others."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from duepoint import cli
from duepoint.cli import apisession

REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference"
PAGE = (REFERENCE / "set-commands.md").read_text()
CONTEXT = click.Context(cli.commands)
SET = cli.commands.get_command(CONTEXT, "set")


def section(title):
    (found,) = [part for part in PAGE.split("\n## ") if part.startswith(title)]
    return found


def rows(title):
    lines = [line for line in section(title).splitlines() if line.startswith("| `-")]
    return {one for row in lines for one in re.findall(r"`(--?[a-z][-a-z]*)`", row.split("|")[1])}


def options(command):
    return {
        option
        for each in command.params
        if isinstance(each, click.Option)
        for option in (*each.opts, *each.secondary_opts)
    }


@click.command()
@apisession.of_api
def where(**_):
    pass


@pytest.mark.parametrize("name", SET.list_commands(CONTEXT))
def test_every_option_has_a_row_and_every_row_an_option(name):
    assert rows(f"`duepoint set {name} ") == options(SET.get_command(CONTEXT, name)) - options(
        where
    )


def test_load_and_the_options_that_all_have():
    load = cli.commands.get_command(CONTEXT, "load")
    assert rows("`duepoint load ") == options(load) - options(where)
    assert rows("Where the API is") == options(where)
