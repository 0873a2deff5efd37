"""The processes of `make up` and their settings: receiver, token keeper, operator, worker.

Operator and worker get everything by environment, as in a Deployment; settings of the user's own
shell (DUEPOINT_LOG_LEVEL, say) reach them too. The worker may call the receiver because its exact
address is on the egress guard's list; no other loopback address is.
"""

from __future__ import annotations

import dataclasses
import secrets
import sys
from pathlib import Path

from tools.devcluster import ports, processes
from tools.devcluster.processes import Program
from tools.devcluster.state import Record, Running, State
from tools.up import accounts, receiver
from tools.up.installation import NAMESPACE, Accounts
from tools.up.kubectl import Kubectl

HTTP_PORTS = ("operator-http", "worker-http")


class Workplace:
    """The files of `make up` inside the state of a cluster."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.folder = state.data / "up"
        self.deliveries = self.folder / "deliveries.jsonl"
        self.blob_key = state.folder / "blob-key"

    def prepare(self) -> None:
        """An empty place. The key that signs what is kept in Redis outlives it, as a Redis may."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        if not self.blob_key.exists():
            self.blob_key.touch(mode=0o600)
            self.blob_key.write_bytes(secrets.token_bytes(32))
        self.deliveries.write_text("")

    def log(self, name: str) -> Path:
        return self.state.logs / f"{name}.log"


def receiver_port() -> int:
    """The port examples name, unless another program has it."""
    return receiver.PORT if ports.is_free(receiver.PORT) else ports.any_free()


def programs(place: Workplace, record: Record, names: Accounts, port: int) -> list[Program]:
    """In the order of starting; each finds what it needs in place."""
    chosen = ports.choose(HTTP_PORTS, place.state.read_ports())
    place.state.write_ports({**place.state.read_ports(), **chosen})
    return [
        _ours("receiver", "--port", str(port), "--file", str(place.deliveries)),
        _ours(
            "accounts",
            *("--kubeconfig", record.kubeconfig, "--folder", str(place.folder)),
            *(names.operator, names.worker),
        ),
        _process("operator", settings(place, record, names.operator, chosen["operator-http"])),
        _process("worker", settings(place, record, names.worker, chosen["worker-http"]) | egress()),
    ]


def settings(place: Workplace, record: Record, account: str, http_port: int) -> dict[str, str]:
    """The settings of both operator and worker."""
    return {
        "DUEPOINT_REDIS_URL": record.redis_url,
        "DUEPOINT_KUBECONFIG": str(place.folder / f"{account}.kubeconfig"),
        "DUEPOINT_NAMESPACE": NAMESPACE,
        "DUEPOINT_BLOB_KEY_FILE": str(place.blob_key),
        "DUEPOINT_LISTEN_ADDRESS": "127.0.0.1",
        "DUEPOINT_HTTP_PORT": str(http_port),
    }


def egress() -> dict[str, str]:
    return {"DUEPOINT_EGRESS_ALLOWED_CIDRS": f"{receiver.HOST}/32"}


def start(place: Workplace, record: Record, wanted: list[Program]) -> Record:
    """Start `wanted`, each in the record before the next one starts."""
    for program in wanted:
        place.log(program.name).unlink(missing_ok=True)
        running = processes.start(program, place.log(program.name), place.state.folder)
        record = dataclasses.replace(record, applications=(*record.applications, running))
        place.state.write(record)
    return record


def stop(place: Workplace, record: Record) -> Record:
    """End what is left of an earlier start, and strike it off the record."""
    processes.end(record.applications)
    record = dataclasses.replace(record, applications=())
    place.state.write(record)
    return record


def ended(record: Record) -> list[Running]:
    """Processes that should run and do not."""
    return [one for one in record.applications if not processes.is_alive(one)]


def log_in(place: Workplace, kubectl: Kubectl, names: Accounts) -> accounts.Server:
    """Tokens and kubeconfigs for both processes."""
    server = accounts.server_of(kubectl, place.folder)
    for name in (names.operator, names.worker):
        accounts.renew(kubectl, place.folder, name)
        accounts.write_kubeconfig(place.folder, server, name)
    return server


def _ours(module: str, *arguments: str) -> Program:
    return Program(name=module, command=(sys.executable, "-m", f"tools.up.{module}", *arguments))


def _process(name: str, environment: dict[str, str]) -> Program:
    return Program(
        name=name, command=(sys.executable, "-m", "duepoint", name), environment=environment
    )
