"""A budget of the surface: how many names a user may meet, of each kind.

Whoever adds one above a bound takes another one away. The bounds only go down.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sized
from pathlib import Path

import click
import pytest

from duepoint import cli, settings, telemetry
from duepoint.httpapi import problems
from duepoint.schedules.conditions import Reason
from tools import chartdoc

ROOT = Path(__file__).resolve().parents[2]


def commands(command: click.Command, context: click.Context) -> Iterator[click.Command]:
    """Every command that does something: groups without a command are only names."""
    if not isinstance(command, click.Group):
        yield command
        return
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        if not found.hidden:
            yield from commands(found, click.Context(found, parent=context, info_name=name))


def every_command() -> list[click.Command]:
    return list(commands(cli.commands, click.Context(cli.commands)))


def every_option() -> set[str]:
    """The options that are not settings."""
    of_settings = {settings.flag(name) for name in every_setting()}
    return {
        max(option.opts, key=len)
        for command in every_command()
        for option in command.params
        if isinstance(option, click.Option) and not option.hidden
    } - of_settings


def every_setting() -> set[str]:
    kinds = settings.OperatorSettings, settings.WorkerSettings, settings.ApiSettings
    return {field.name for kind in kinds for field in dataclasses.fields(kind)}


def every_value() -> list[str]:
    """The rows of the chart's README that have a default; a Pod's fields are one."""
    return [row.path for row in chartdoc.rows(chartdoc.VALUES.read_text()) if row.default]


def every_metric() -> list[str]:
    names = [family.name for family in telemetry.registry.collect()]
    return [name for name in names if name.startswith("duepoint_")]


def every_make_target() -> list[str]:
    return re.findall(r"^([a-z][a-z-]*):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize(
    ("names", "most"),
    [
        (every_command, 32),
        (every_option, 52),
        (every_setting, 30),
        (every_value, 97),
        (every_metric, 30),
        (every_make_target, 20),
        (lambda: list(Reason), 35),
        (lambda: list(problems.KINDS), 25),
    ],
    ids=["commands", "options", "settings", "values", "metrics", "targets", "reasons", "codes"],
)
def test_there_are_no_more_names_than_the_budget_has(names: Callable[[], Sized], most: int) -> None:
    assert len(names()) <= most, "take another one away"
