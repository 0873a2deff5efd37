"""The user's own servers: the current kubeconfig context, and the Redis at REDIS_URL.

This tool does not start, change or stop any of them. It only starts a Valkey if no Redis is given.
It recognises a setting that points back at our own cluster (exported earlier by `make env`), and
does not take it for the user's server.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import urllib.parse
from collections.abc import Mapping
from pathlib import Path

from tools.devcluster import cluster, ports, programs
from tools.devcluster.errors import DevClusterError
from tools.devcluster.state import CURRENT, Record, State


def redis_url(state: State, environment: Mapping[str, str] = os.environ) -> str:
    """Return REDIS_URL if it names a server other than ours, which must answer; "" = ours."""
    given = environment.get("REDIS_URL", "")
    own = f"redis://127.0.0.1:{state.read_ports().get('valkey', 0)}/0"
    if not given or given == own:
        return ""
    address = urllib.parse.urlsplit(given)
    try:
        socket.create_connection((address.hostname or "", address.port or 6379), timeout=3).close()
    except OSError as refusal:
        shown = f"{address.scheme}://{address.hostname}:{address.port or 6379}"
        raise DevClusterError(
            f"REDIS_URL names {shown}, which does not answer ({refusal}); start it, or unset "
            "REDIS_URL to use the Valkey that comes with the development cluster"
        ) from refusal
    return given


def up(state: State, redis: str) -> Record:
    """Return the user's current context once it answers, with a Valkey unless `redis` is given."""
    kubeconfig = _kubeconfig(state)
    _check_context(kubeconfig)
    with state.exclusive():
        record = state.read()
        same = record is not None and record.kubeconfig == kubeconfig
        if record is not None and same and cluster.suits(state, record, CURRENT, redis):
            return record
        cluster.end(state)
        state.prepare()
        port = ports.choose(["valkey"], state.read_ports())["valkey"]
        url = redis or f"redis://127.0.0.1:{port}/0"
        startup = cluster.Startup(state, Record(kind=CURRENT, kubeconfig=kubeconfig, redis_url=url))
        if not redis:
            startup.start(programs.valkey(state, port))
            startup.wait_until("Valkey listens", lambda: cluster.listens(port))
            state.write_ports({**state.read_ports(), "valkey": port})
        return startup.finish()


def kubectl() -> str:
    """Return the kubectl of the virtual environment, else the one on the path."""
    own = Path(sys.executable).with_name("kubectl")
    found = str(own) if own.exists() else shutil.which("kubectl")
    if found is None:
        raise DevClusterError("no kubectl found; `make venv` installs one")
    return found


def _kubeconfig(state: State) -> str:
    chosen = os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    if chosen == str(state.kubeconfig):
        raise DevClusterError(
            "KUBECONFIG names the development cluster itself; unset it or let it name your own"
        )
    return chosen


def _check_context(kubeconfig: str) -> None:
    command = [kubectl(), "--kubeconfig", kubeconfig, "--request-timeout=10s"]
    answer = subprocess.run(
        [*command, "get", "--raw", "/readyz"], capture_output=True, text=True, check=False
    )
    if answer.returncode:
        raise DevClusterError(
            f"CLUSTER=current: the current context of {kubeconfig} does not answer; "
            f"kubectl says: {answer.stderr.strip()[-300:]}"
        )
