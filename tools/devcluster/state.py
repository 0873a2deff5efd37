"""The state folder of a cluster: its processes, their logs, and the lock of `up` and `down`.

`up` rewrites `cluster.json` (atomically) after every started process, so that after any stop the
next command knows what to end; it sets `complete` last. The default folder is `.duepoint/` in the
repository, `$DUEPOINT_STATE` chooses another: two folders are two clusters.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tools.devcluster import progress

REPOSITORY = Path(__file__).parent.parent.parent
FORMAT = 1
SIMULATED, REAL, CURRENT = "simulated", "real", "current"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A process that we started; `started` distinguishes it from a later one with its pid."""

    name: str
    pid: int
    started: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The content of `cluster.json`. `server`, `etcd` and `kubernetes`, the control plane's version
    such as 1.36, are empty for the user's own cluster.

    `processes` are the servers, `applications` the programs that use them.
    """

    kind: str = SIMULATED
    complete: bool = False
    kubeconfig: str = ""
    server: str = ""
    etcd: str = ""
    kubernetes: str = ""
    redis_url: str = ""
    processes: tuple[Running, ...] = ()
    applications: tuple[Running, ...] = ()

    def environment(self) -> dict[str, str]:
        """Return the variables that a program needs to use this cluster."""
        return {"KUBECONFIG": self.kubeconfig, "REDIS_URL": self.redis_url}


class State:
    """The paths of a cluster; the constructor touches nothing on the disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.logs = self.folder / "logs"
        self.credentials = self.folder / "credentials"
        self.data = self.folder / "data"
        self.kubeconfig = self.folder / "kubeconfig"
        self.record_file = self.folder / "cluster.json"
        self.ports_file = self.folder / "ports.json"

    def prepare(self) -> None:
        """Make the folders; only their owner can read them, because tokens are inside."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        for part in (self.logs, self.credentials, self.data):
            part.mkdir(exist_ok=True)

    def read(self) -> Record | None:
        """Return the record, or None if there is no readable one."""
        try:
            stored = json.loads(self.record_file.read_text())
            return _record(stored)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, record: Record) -> None:
        """Replace the record in one step: a reader sees the old one or the new one."""
        fresh = self.record_file.with_suffix(".new")
        stored = {"format": FORMAT, **dataclasses.asdict(record)}
        fresh.write_text(json.dumps(stored, indent=2) + "\n")
        fresh.replace(self.record_file)

    def read_ports(self) -> dict[str, int]:
        try:
            stored = json.loads(self.ports_file.read_text())
            return {str(name): int(port) for name, port in stored.items()}
        except (OSError, ValueError, AttributeError):
            return {}

    def write_ports(self, ports: Mapping[str, int]) -> None:
        self.ports_file.write_text(json.dumps(dict(ports), indent=2) + "\n")

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Allow one `up` or `down` at a time; the lock ends with its process, however that ends."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                progress.say(f"Another command works on {self.folder}; waiting for it")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def default(environment: Mapping[str, str] = os.environ) -> State:
    """Return the state in `$DUEPOINT_STATE`, else in `.duepoint/` of the repository."""
    chosen = environment.get("DUEPOINT_STATE")
    return State(Path(chosen).expanduser() if chosen else REPOSITORY / ".duepoint")


def _record(stored: dict[str, Any]) -> Record | None:
    if stored.pop("format") != FORMAT:
        return None
    processes = _running(stored.pop("processes"))
    applications = _running(stored.pop("applications"))
    return Record(**stored, processes=processes, applications=applications)


def _running(stored: list[dict[str, Any]]) -> tuple[Running, ...]:
    return tuple(Running(**one) for one in stored)
