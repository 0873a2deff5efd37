"""The servers of a real node, started inside its machine, and their configuration.

The control plane is that of `tools.devcluster` without its simulated node. containerd imports the
images meanwhile. Pods reach the API server by the address of the node.
"""

from __future__ import annotations

import concurrent.futures
import os
import shutil
import string
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from tools.devcluster import cluster, credentials, programs, simulation
from tools.devcluster.errors import DevClusterError
from tools.devcluster.processes import Program
from tools.devcluster.state import Record, State
from tools.realnode import requirements
from tools.realnode.machine import Parts

NODE = "real-node"
ADDRESS = "10.99.0.1"
PODS = "10.244.0.0/24"
SERVICES = "10.0.0.0/24"
DNS = "10.0.0.10"
ETCD, ETCD_PEER = 2379, 2380
KUBELET = Path("/var/lib/kubelet")
SOCKET = "/run/containerd/containerd.sock"
PAUSE = "localhost/pause:1"
#: Arguments of `ctr`, before the archive.
IMPORT = ("--namespace=k8s.io", "images", "import")
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
OWN = ("kubelet", "kube-proxy", "kube-router")


def start(state: State, port: int, parts: Parts) -> None:
    """Start all servers; return when Pods can be created and would run."""
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"node: {time.monotonic() - began:5.1f} s  {text}", flush=True)

    found = {name: Path(path) for name, path in parts.programs.items()}
    server = f"https://127.0.0.1:{port}"
    credentials.write(state, server)
    startup = cluster.Startup(state, Record(kubeconfig=str(state.kubeconfig), server=server))
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        startup.start(_containerd(state, found["containerd"]))
        startup.wait_until("containerd listens", Path(SOCKET).exists)
        imported = pool.submit(import_images, found["ctr"], parts.images)
        startup.start(programs.etcd(state, found["etcd"], ETCD, ETCD_PEER))
        startup.wait_until("etcd listens", lambda: cluster.listens(ETCD))
        etcd = f"http://127.0.0.1:{ETCD}"
        startup.start(programs.api_server(state, found["kube-apiserver"], port, etcd, ADDRESS))
        admin = cluster.client(state, startup.record)
        startup.wait_until("the API server is ready", admin.is_ready)
        say("the API server is ready")
        startup.start(programs.controller_manager(state, found["kube-controller-manager"]))
        startup.start(programs.scheduler(state, found["kube-scheduler"]))
        startup.start(_kubelet(state, found["kubelet"]))
        startup.start(_kube_proxy(state, found["kube-proxy"]))
        startup.wait_until("the node is Ready", lambda: simulation.is_usable(admin, NODE))
        startup.start(_kube_router(state, found["kube-router"]))  # it asks for the node
        say("the node is Ready")
        imported.result()
        say("the images are imported")
    startup.finish()


def import_images(ctr: Path, archives: Iterable[str]) -> None:
    for archive in archives:
        command = [str(ctr), *IMPORT, archive]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            raise DevClusterError(f"{archive} cannot be imported: {result.stderr[-500:]}")


def _containerd(state: State, binary: Path) -> Program:
    (state.data / "containerd").mkdir()
    (state.folder / "cni").mkdir()
    network = _filled_in(state, "network.json")
    network.rename(state.folder / "cni" / "10-node.conflist")
    # It looks for its shim by the PATH.
    # runc writes the process of an `exec` to a file, and everything but /run is read-only here.
    path = {"PATH": f"{binary.parent}:{os.environ['PATH']}", "TMPDIR": "/run"}
    config = f"--config={_filled_in(state, 'containerd.toml')}"
    return Program(name="containerd", command=(str(binary), config), environment=path)


def _kubelet(state: State, binary: Path) -> Program:
    (state.folder / "resolv.conf").write_text(f"nameserver {DNS}\n")
    return Program(
        name="kubelet",
        command=(
            str(binary),
            f"--config={_filled_in(state, 'kubelet.yaml')}",
            f"--kubeconfig={credentials.kubeconfig_path(state, 'node')}",
            f"--hostname-override={NODE}",
            f"--node-ip={ADDRESS}",
            f"--root-dir={KUBELET}",
            f"--cert-dir={KUBELET / 'pki'}",
        ),
    )


def _kube_proxy(state: State, binary: Path) -> Program:
    config = f"--config={_filled_in(state, 'kube-proxy.yaml')}"
    return Program(name="kube-proxy", command=(str(binary), config))


def _kube_router(state: State, binary: Path) -> Program:
    """Return kube-router, which only enforces NetworkPolicies here."""
    return Program(
        name="kube-router",
        command=(
            str(binary),
            f"--kubeconfig={credentials.kubeconfig_path(state, 'node')}",
            f"--hostname-override={NODE}",
            "--run-firewall=true",
            "--run-router=false",
            "--run-service-proxy=false",
            f"--service-cluster-ip-range={SERVICES}",
        ),
    )


def _filled_in(state: State, name: str) -> Path:
    """Fill in a configuration file of this folder for the node, and return its path."""
    values = {
        "folder": state.folder, "data": state.data, "logs": state.logs,
        "kubeconfig": credentials.kubeconfig_path(state, "node"),
        "socket": SOCKET, "pause": PAUSE, "address": ADDRESS, "dns": DNS, "pods": PODS,
        "node": NODE, "runc": shutil.which("runc"), "cni_programs": requirements.CNI,
    }  # fmt: skip
    text = string.Template(Path(__file__).with_name(name).read_text()).substitute(values)
    path = state.folder / name
    path.write_text(text)
    return path
