"""What a terminal gets: nothing that it cannot show, and nothing that a manifest made up for it."""

from __future__ import annotations

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
