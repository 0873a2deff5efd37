"""What a simulation holds in memory, seen from outside."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter

from tests.integration.crds.manifests import a_schedule


def test_a_long_simulation_needs_no_more_memory_than_a_short_one(tmp_path):
    """A day of seconds with half a day's outage: a list of it would be some 40 MB."""
    file = tmp_path / "seconds.json"
    file.write_text(json.dumps(a_schedule("x", schedule="@every 1s", catchUpPolicy="All")))
    script = (
        "import contextlib, re, sys; from duepoint import cli\n"
        "with contextlib.suppress(SystemExit): cli.commands(sys.argv[1:])\n"
        # not ru_maxrss: that begins with the size of the process that started this one
        "peak = re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())\n"
        "print(peak[1], file=sys.stderr)"
    )

    def peak_kib(to, down):
        command = [
            sys.executable, "-c", script, "simulate", "-f", str(file), "--from", "2026-12-01",
            "--to", to, "--down", f"2026-12-01T01:00:00Z/{down}", "-o", "json",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        outcomes = Counter(json.loads(line)["outcome"] for line in done.stdout.splitlines())
        return int(done.stderr), outcomes

    short, few = peak_kib("2026-12-01T02:00:00Z", "2026-12-01T01:30:00Z")
    long, many = peak_kib("2026-12-01T16:00:00Z", "2026-12-01T13:00:00Z")
    assert sum(few.values()) == 7_199
    assert many == {"Missed": 12 * 3600 - 99, "Started": 4 * 3600 + 98}
    assert long < short + 4_096
