"""Whose name may be taken over: that of a process that has ended, and of no other."""

from __future__ import annotations

import subprocess
import sys

from duepoint.election import elector

#: Says its identity, and lives until its input ends.
_PROCESS = """
import pathlib, sys
from duepoint.election import elector
print(elector.kept(sys.argv[1], pathlib.Path(sys.argv[2])), flush=True)
sys.stdin.read()
"""


class Process:
    def __init__(self, name, file):
        command = [sys.executable, "-c", _PROCESS, name, str(file)]
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.identity = self._child.stdout.readline().strip()

    def kill(self):
        self._child.kill()
        self._child.communicate()


def test_the_name_of_a_living_process_is_never_taken_over(tmp_path):
    first = Process("pod", tmp_path / "identity")
    second = Process("pod", tmp_path / "identity")
    first.kill()
    third = Process("pod", tmp_path / "identity")
    assert second.identity != first.identity
    assert third.identity == first.identity
    second.kill()
    third.kill()


def test_a_file_of_another_name_or_of_nonsense_is_written_anew(tmp_path):
    file = tmp_path / "identity"
    for content in (b"another_1", b"pod_\x00\xff"):
        file.write_bytes(content)
        process = Process("pod", file)
        process.kill()
        assert process.identity.startswith("pod_")
        assert process.identity.encode() != content
        assert file.read_text() == process.identity


def test_a_file_that_cannot_be_used_costs_the_quick_takeover_alone(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for file in (tmp_path, tmp_path / "missing" / "identity", tmp_path / "link"):
        assert elector.kept("pod", file).startswith("pod_")
    assert not (tmp_path / "elsewhere").exists()
