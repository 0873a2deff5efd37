"""The page of the command line has every command and every option, and its examples are true."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from duepoint import cli

REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference"
PAGE = (REFERENCE / "command-line.md").read_text()
DESCRIBED_HERE = (
    *(
        "run",
        "next",
        "previous",
        "explain",
        "validate",
        "simulate",
        "forecast",
        "trigger",
        "backfill",
    ),
    *("list", "describe", "why", "suspend", "resume", "logs", "doctor", "version"),
)
EXAMPLE = re.compile(r"^```\n\$ duepoint (.*)\n((?:.*\n)*?)```$", re.MULTILINE)


def section(name):
    (found,) = [part for part in PAGE.split("\n## ") if f"`duepoint {name}" in part.split("\n")[0]]
    return found


@pytest.mark.parametrize("name", DESCRIBED_HERE)
def test_every_option_has_a_row_and_every_row_an_option(name):
    command = cli.commands.get_command(click.Context(cli.commands), name)
    options = {
        option
        for each in command.params
        if isinstance(each, click.Option)
        for option in (*each.opts, *each.secondary_opts)
    }
    if name == "explain":  # "options as above"
        told = set(re.findall(r"`(--?[A-Za-z][-a-z]*)`", section("explain") + section("next")))
        assert options | {"--count"} == told
        return
    if name in ("suspend", "resume"):  # one section for both
        options |= {"--reason", "--until", "--yes", "-y"}
    cells = [line.split("|")[1] for line in section(name).splitlines() if line.startswith("| `-")]
    told = {option for cell in cells for option in re.findall(r"`(--?[A-Za-z][-a-z]*)`", cell)}
    assert told == options


@pytest.mark.parametrize("name", ["test", "verify"])
def test_every_option_of_webhook_commands_has_a_row_and_every_row_an_option(name):
    group = cli.commands.get_command(click.Context(cli.commands), "webhook")
    command = group.commands[name]
    options = {
        option for each in command.params if isinstance(each, click.Option) for option in each.opts
    }
    rows = [line for line in section(f"webhook {name}").splitlines() if line.startswith("| `-")]
    told = {one for row in rows for one in re.findall(r"`(--?[A-Za-z][-a-z]*)`", row.split("|")[1])}
    assert told == options


@pytest.mark.parametrize(("arguments", "shown"), EXAMPLE.findall(PAGE))
def test_examples_are_what_the_command_prints(arguments, shown):
    result = CliRunner().invoke(cli.commands, shlex.split(arguments))
    assert result.output == shown


def test_there_are_examples():
    assert len(EXAMPLE.findall(PAGE)) >= 2
