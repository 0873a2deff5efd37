"""``python -m benchmarks [NAME [PART ...]]``: all short scenarios, or the one named."""

from __future__ import annotations

import functools
import importlib
import os
import runpy
import sys
from pathlib import Path

from benchmarks import report

SCENARIOS = ("lateness", "ready", "idle", "partition")
#: Too long to be run with the others.
LONG = ("kube", "edits", "flush", "fallback", "outages", "tenants", "firststeps", "api")
#: These need no cluster.
ALONE = ("expressions",)
#: Programs of their own, with the words behind their names.
PROGRAMS = {
    "dashboard": ("benchmarks.dashboard",),
    "loads": ("benchmarks.loads",),
    "members": ("benchmarks.members",),
    "members-kills": ("benchmarks.members.kills",),
    "peers": ("benchmarks.peers",),
    "queue": ("benchmarks.queuespeed",),
    "scale": ("benchmarks.scale",),
    "webhook": ("benchmarks.webhooks",),
    "webhook-outage": ("benchmarks.webhooks", "outage"),
}


def _scenario(name: str) -> report.Figures:
    figures: report.Figures = importlib.import_module(f"benchmarks.{name}").run()
    return figures


if __name__ == "__main__":
    os.chdir(Path(__file__).parents[1])
    names = sys.argv[1:]
    if names and names[0] in PROGRAMS:
        module, *words = PROGRAMS[names[0]]
        sys.argv = [module, *words, *names[1:]]
        runpy.run_module(module, run_name="__main__")
        sys.exit()
    if "DUEPOINT_TEST_STATE" not in os.environ and set(names or SCENARIOS) - set(ALONE):
        sys.exit("these need a cluster of their own: run `make bench` or `make bench-NAME`")
    known = (*SCENARIOS, *LONG, *ALONE)
    parts = {name: functools.partial(_scenario, name) for name in known}
    sys.exit(report.measure(parts, SCENARIOS))
