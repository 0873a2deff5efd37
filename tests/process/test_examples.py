"""The programs of examples/ as a reader starts them, against a real HTTP server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.fakes.memoryapi import MemoryApi

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_the_set_of_devices_is_filled_once_and_emptied():
    api = MemoryApi()

    def fill(*arguments):
        done = subprocess.run(
            [sys.executable, str(EXAMPLES / "13-set-stream" / "fill.py"), "--devices", "30",
             "--namespace", "shop", "--set", "reminders", *arguments],
            env={"DUEPOINT_API_URL": api.url, "DUEPOINT_API_TOKEN": "good", "PATH": "/usr/bin"},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout.strip()

    with api.serving():
        assert fill() == "{'Created': 30}"
        assert api.members["device-0007"]["schedule"] == "@every 6s"
        assert fill() == "{'Unchanged': 30}"
        assert fill("--remove") == "{'Removed': 30}"
