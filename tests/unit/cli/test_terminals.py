"""What a terminal gets: nothing that it cannot show, and nothing that a manifest made up for it."""

from __future__ import annotations

import io

import pytest
from click.testing import CliRunner

from duepoint import cli
from duepoint.cli import output

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


@pytest.mark.parametrize(("term", "can"), [("xterm", True), ("dumb", False), ("unknown", False)])
def test_a_dumb_terminal_cannot_write_a_line_again(monkeypatch, term, can):
    monkeypatch.setenv("TERM", term)
    assert output.can_redraw(Terminal()) is can
    assert not output.can_redraw(io.StringIO())


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
