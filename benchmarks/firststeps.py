"""How long the first steps of a new user take: from each command to the first thing that fired.

Three ways in: `duepoint run` with a file, in an environment that is ready; `make demo` in a fresh
clone, with the packages in pip's cache; the chart, applied by `helm template | kubectl apply
--server-side`, to the first Job. A simulated node runs no container: once their Deployments are
there, operator and worker are started as processes of this machine, with the chart's accounts.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from benchmarks import report
from benchmarks.report import Figure
from tools.devcluster import external
from tools.devcluster import state as states
from tools.devcluster.errors import DevClusterError
from tools.up import applications, installation
from tools.up.kubectl import Kubectl

NAME = "firststeps"
ROOT = Path(__file__).resolve().parents[1]
TURNS = int(os.environ.get("TURNS", "3"))
#: The first step that takes longer has failed.
_MOST_SECONDS = 300.0

EVERY_SECOND = """\
apiVersion: duepoint.dev/v1alpha1
kind: Schedule
metadata: {name: first, namespace: default}
spec:
  schedule: "@every 1s"
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          containers: [{name: main, image: busybox}]
"""


async def run() -> list[Figure]:
    """In this order: what starts fewest processes comes first."""
    return await asyncio.to_thread(_figures)


def _figures() -> list[Figure]:
    report.say(f"duepoint run -f FILE, {TURNS} times")
    alone = [_seconds_of_run() for _ in range(TURNS)]
    report.say("make demo in a fresh clone, once to fill the cache of packages and then once more")
    demo = [_seconds_of_demo() for _ in range(2)]
    report.say("helm template | kubectl apply --server-side, to the first Job")
    install, warnings = _seconds_of_install()
    return [
        Figure(benchmark=NAME, figure="duepoint run -f FILE: first slot that fired", unit="s",
               value=statistics.median(alone), spread=(min(alone), max(alone)), runs=TURNS,
               bar="<= 5"),
        Figure(benchmark=NAME, figure="make demo, fresh clone, packages cached: first slot",
               unit="s", value=demo[1], bar="<= 60",
               compared_with=f"{demo[0]:.1f} s with the cache as it was found"),
        Figure(benchmark=NAME, figure="helm template | kubectl apply: first Job", unit="s",
               value=install, bar="<= 60"),
        Figure(benchmark=NAME, figure="warnings of kubectl apply", unit="warnings",
               value=warnings, bar="= 0"),
    ]  # fmt: skip


def _seconds_of_run() -> float:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "first.yaml"
        file.write_text(EVERY_SECOND)
        command = [sys.executable, "-m", "duepoint", "run", "-f", str(file), "-o", "json"]
        return _until_first(command, ROOT, _is_run_record)


def _is_run_record(line: str) -> bool:
    with contextlib.suppress(json.JSONDecodeError):
        found: Any = json.loads(line)
        return isinstance(found, dict) and found.get("event") == "run" and "startTime" in found
    return False


def _seconds_of_demo() -> float:
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "duepoint"
        subprocess.run(
            ["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone)], check=True
        )
        fired = re.compile(r"^\d\d:\d\d:\d\d\.\d{3}  (Running|Succeeded) ")
        return _until_first(["make", "demo"], clone, lambda line: fired.match(line) is not None)


def _until_first(command: list[str], folder: Path, is_it: Callable[[str], bool]) -> float:
    """Seconds from a command to its first line of that kind; it is ended then."""
    # What this program's own environment says of Python and make is not for the user's.
    ours = ("VIRTUAL_ENV", "PYTHONPATH", "MAKEFLAGS", "MAKELEVEL", "VENV")
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    started = time.monotonic()
    with _child(command, folder, environment) as child:
        assert child.stdout is not None
        seen = []
        for line in child.stdout:
            if is_it(line):
                return time.monotonic() - started
            seen.append(line)
            if time.monotonic() - started > _MOST_SECONDS:
                break
    raise RuntimeError(f"{' '.join(command)} fired nothing:\n{''.join(seen[-20:])}")


@contextlib.contextmanager
def _child(
    command: list[str], folder: Path, environment: dict[str, str]
) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, start_new_session=True,
    ) as child:  # fmt: skip
        try:
            yield child
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGTERM)


def _seconds_of_install() -> tuple[float, int]:
    """To the first Job; and how many warnings kubectl gave."""
    state = states.State(Path(os.environ["DUEPOINT_TEST_STATE"]))
    record = state.read()
    assert record is not None
    kubectl = Kubectl(record.kubeconfig)
    kubectl.run("create", "namespace", installation.NAMESPACE)
    helm = os.environ.get("DUEPOINT_TEST_HELM") or shutil.which("helm")
    place = applications.Workplace(state)
    place.prepare()
    started = time.monotonic()
    rendered = subprocess.run(
        [str(helm), "template", "duepoint", str(ROOT / "charts" / "duepoint"),
         "--namespace", installation.NAMESPACE, "--kube-version", "v1.36.0",
         "--set", f"redis.url={record.redis_url}", "--set", "blobKey.existingSecret=blob-key"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    applied = subprocess.run(
        [external.kubectl(), "--kubeconfig", record.kubeconfig,
         "apply", "--server-side", "-f", "-"],
        input=rendered, capture_output=True, text=True, check=True,
    )  # fmt: skip
    names = installation.accounts([one for one in yaml.safe_load_all(rendered) if one])
    applications.log_in(place, kubectl, names)
    port = applications.receiver_port()
    record = applications.start(place, record, applications.programs(place, record, names, port))
    try:
        _apply_once_served(kubectl)
        while not kubectl.json("get", "jobs", "-n", "default")["items"]:
            if time.monotonic() - started > _MOST_SECONDS:
                raise RuntimeError(f"no Job; see {state.logs}")
            time.sleep(0.05)
        return time.monotonic() - started, applied.stderr.count("Warning:")
    finally:
        applications.stop(place, record)


def _apply_once_served(kubectl: Kubectl) -> None:
    """The API server needs a moment to serve a kind that was just defined."""
    for _ in range(100):
        with contextlib.suppress(DevClusterError):
            kubectl.apply(EVERY_SECOND)
            return
        time.sleep(0.1)
    raise RuntimeError("the Schedule was never accepted")
