"""The processes of `make up`, their logins and settings, and the manifests of examples/.

Operator and worker get everything by environment, as in a Deployment; settings of the user's own
shell (DUEPOINT_LOG_LEVEL, say) reach them too. The worker may call the receiver because its exact
address is on the egress guard's list; no other loopback address is.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.devcluster import apiserver, credentials, ports, processes
from tools.devcluster.errors import DevClusterError
from tools.devcluster.processes import Program
from tools.devcluster.state import REPOSITORY, Record, Running, State
from tools.up import receiver
from tools.up.installation import NAMESPACE, Accounts
from tools.up.kubectl import Kubectl

EXAMPLES = REPOSITORY / "examples"
HTTP_PORTS = ("operator-http", "worker-http")
#: A month; a cluster of the user's may give less.
TOKEN_SECONDS = 30 * 24 * 3600


class Workplace:
    """The files of `make up` inside the state of a cluster."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.folder = state.data / "up"
        self.deliveries = self.folder / "deliveries.jsonl"
        self.blob_key = state.folder / "blob-key"

    def prepare(self) -> None:
        """Empty the folder, but keep the key: a Redis may still have data that it signed."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        if not self.blob_key.exists():
            self.blob_key.touch(mode=0o600)
            self.blob_key.write_bytes(secrets.token_bytes(32))
        self.deliveries.write_text("")

    def log(self, name: str) -> Path:
        return self.state.logs / f"{name}.log"

    def kubeconfig(self, account: str) -> Path:
        return self.folder / f"{account}.kubeconfig"


def log_in(place: Workplace, kubectl: Kubectl, names: Accounts) -> None:
    """Write a kubeconfig for each of the two ServiceAccounts."""
    view = kubectl.json("config", "view", "--minify", "--raw", "--flatten")
    cluster = view["clusters"][0]["cluster"]
    encoded = cluster.get("certificate-authority-data")
    if not encoded:
        raise DevClusterError(
            f"the kubeconfig names no certificate authority for {cluster['server']}; "
            "`make up` needs one for the kubeconfigs of operator and worker"
        )
    authority = _authority(place)
    authority.write_bytes(base64.b64decode(encoded))
    for name in (names.operator, names.worker):
        options = (f"--namespace={NAMESPACE}", f"--duration={TOKEN_SECONDS}s")
        token = kubectl.run("create", "token", name, *options).strip()
        text = credentials.kubeconfig(cluster["server"], authority, token, NAMESPACE)
        credentials.private(place.kubeconfig(name), text)


def client(place: Workplace, account: str) -> apiserver.Client:
    """Return a client of the API server that acts as one of these accounts."""
    config = json.loads(place.kubeconfig(account).read_text())
    server = config["clusters"][0]["cluster"]["server"]
    return apiserver.Client(server, _authority(place), config["users"][0]["user"]["token"])


def _authority(place: Workplace) -> Path:
    return place.folder / "ca.crt"


def start(place: Workplace, record: Record, names: Accounts, port: int) -> Record:
    """Start receiver, operator and worker; record each one before the next one starts."""
    for program in _programs(place, record, names, port):
        place.log(program.name).unlink(missing_ok=True)
        running = processes.start(program, place.log(program.name), place.state.folder)
        record = dataclasses.replace(record, applications=(*record.applications, running))
        place.state.write(record)
    return record


def _programs(place: Workplace, record: Record, names: Accounts, port: int) -> Iterator[Program]:
    chosen = ports.choose(HTTP_PORTS, place.state.read_ports())
    place.state.write_ports({**place.state.read_ports(), **chosen})
    receive = ("-m", "tools.up.receiver", "--port", str(port), "--file", str(place.deliveries))
    yield Program(name="receiver", command=(sys.executable, *receive))
    allowed = {"DUEPOINT_EGRESS_ALLOWED_CIDRS": f"{receiver.HOST}/32"}
    for role, account, more in (
        ("operator", names.operator, {}),
        ("worker", names.worker, allowed),
    ):
        settings = {
            "DUEPOINT_REDIS_URL": record.redis_url,
            "KUBECONFIG": str(place.kubeconfig(account)),
            "DUEPOINT_NAMESPACE": NAMESPACE,
            "DUEPOINT_BLOB_KEY_FILE": str(place.blob_key),
            "DUEPOINT_LISTEN_ADDRESS": "127.0.0.1",
            "DUEPOINT_HTTP_PORT": str(chosen[f"{role}-http"]),
        }
        command = (sys.executable, "-m", "duepoint", role)
        yield Program(name=role, command=command, environment={**settings, **more})


def stop(place: Workplace, record: Record) -> Record:
    """End the processes of an earlier start, and remove them from the record."""
    processes.end(record.applications)
    record = dataclasses.replace(record, applications=())
    place.state.write(record)
    return record


def ended(record: Record) -> list[Running]:
    """Return the processes that should run but have ended."""
    return [one for one in record.applications if not processes.is_alive(one)]


def receiver_port() -> int:
    """Return the port that the examples name, or a free one if another program has it."""
    return receiver.PORT if ports.is_free(receiver.PORT) else ports.any_free()


def apply_examples(kubectl: Kubectl, port: int) -> int:
    """Apply the manifests of examples/, which call the receiver where it listens; count objects."""
    usual, actual = (f"http://{receiver.HOST}:{number}/" for number in (receiver.PORT, port))
    return sum(
        len(kubectl.apply(path.read_text().replace(usual, actual)))
        for path in sorted(EXAMPLES.glob("[0-9]*/*.yaml"))
    )
