"""What a terminal gets: nothing that it cannot show, and nothing that a manifest made up for it."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from duepoint import cli
from duepoint.cli import output
from duepoint.cli.queue import partition
from duepoint.delayqueue.resharding import resharding

LOGGING = """\
from duepoint import telemetry
telemetry.configure_logging("info", "text")
telemetry.logger.warning("said")
"""


HOSTILE = """\
apiVersion: {}
kind: {}
metadata: {{name: "a\\e[2Jb\\nc"}}
spec: {{}}
"""


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def a_terminal(monkeypatch: pytest.MonkeyPatch, term: str) -> Terminal:
    """The standard output of the process from now on; of the whole test pytest has its own."""
    found = Terminal()
    monkeypatch.setattr(sys, "stdout", found)
    monkeypatch.setenv("TERM", term)
    return found


@pytest.mark.parametrize(("term", "can"), [("xterm", True), ("dumb", False), ("unknown", False)])
def test_a_dumb_terminal_cannot_write_a_line_again(monkeypatch, term, can):
    monkeypatch.setenv("TERM", term)
    assert output.can_redraw(Terminal()) is can
    assert not output.can_redraw(io.StringIO())


@pytest.mark.parametrize(("term", "form"), [("xterm", "view"), ("dumb", "text")])
def test_run_shows_its_view_only_where_a_screen_can_be_drawn(monkeypatch, term, form):
    terminal = a_terminal(monkeypatch, term)
    command = cli.commands.get_command(click.Context(cli.commands), "run")
    assert command is not None
    assert command.make_context("run", ["examples"]).params["form"] == form
    assert terminal.getvalue() == ""


@pytest.mark.parametrize(("term", "moves"), [("xterm", True), ("dumb", False)])
def test_a_move_of_shards_is_lines_on_a_dumb_terminal(monkeypatch, term, moves):
    terminal = a_terminal(monkeypatch, term)
    shown = partition._Shown("table")
    for moved in (1, 2):
        shown.show(
            resharding.ReshardingProgress(
                layout=2,
                shards=128,
                former_shards=64,
                wanted=0,
                phase=resharding.Phase.MOVING,
                moved=moved,
                left=2 - moved,
                waiting="",
            )
        )
    shown.end()
    assert ("\x1b" in terminal.getvalue()) is moves
    assert terminal.getvalue().count("\n") == (1 if moves else 2)


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
    ids=str,
)
def test_lines_of_the_log_have_colours_only_where_they_are_wanted(environment, coloured):
    ours, theirs = os.openpty()
    try:
        subprocess.run(
            [sys.executable, "-c", LOGGING],
            stderr=theirs,
            check=True,
            env={key: value for key, value in os.environ.items() if key != "NO_COLOR"}
            | {"TERM": "xterm", **environment},
        )
        said = os.read(ours, 4096)
    finally:
        os.close(ours)
        os.close(theirs)
    assert b"said" in said
    assert (b"\x1b" in said) is coloured


@pytest.mark.parametrize(
    ("command", "api", "kind"),
    [
        ("validate", "duepoint.dev/v1alpha1", "Schedule"),
        ("import cronjob", "batch/v1", "CronJob"),
    ],
)
def test_a_name_in_a_manifest_moves_no_cursor(tmp_path, command, api, kind):
    path = tmp_path / "a.yaml"
    path.write_text(HOSTILE.format(api, kind))
    done = CliRunner().invoke(cli.commands, [*command.split(), "-f", str(path)])
    assert done.exit_code == output.BAD_INPUT
    assert "\x1b" not in done.output
    assert f"({kind} " in done.output
    assert "a\\x1b[2Jb\\nc): " in done.output
