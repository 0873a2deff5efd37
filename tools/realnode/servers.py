"""The servers of a real node, started inside its machine, and their configuration.

The control plane is that of `tools.devcluster` without its simulated node. containerd imports the
images meanwhile. Pods reach the API server by the address of the node.
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tools.devcluster import apiserver, cluster, credentials, programs
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
    """Return when Pods can be created and would run."""
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
        startup.wait_until("the node is Ready", lambda: _is_usable(admin))
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
            raise DevClusterError(f"{archive} is not imported: {result.stderr[-500:]}")


def _containerd(state: State, binary: Path) -> Program:
    """Version 2 of its configuration, which 1.6 and all later ones read."""
    folder = state.data / "containerd"
    folder.mkdir()
    cni = state.folder / "cni"
    cni.mkdir()
    (cni / "10-node.conflist").write_text(json.dumps(_pod_network(state)))
    config = f"""
version = 2
root = "{folder}"
state = "/run/containerd"
[grpc]
  address = "{SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{state.data / "opt"}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true  # a lower one than ours takes a right that not every root has
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = "{shutil.which("runc")}"
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{requirements.CNI}"
    conf_dir = "{cni}"
"""
    # It looks for its shim by the PATH.
    # runc writes the process of an `exec` to a file, and everything but /run is read-only here.
    path = {"PATH": f"{binary.parent}:{os.environ['PATH']}", "TMPDIR": "/run"}
    file = state.folder / "containerd.toml"
    file.write_text(config)
    return Program(name="containerd", command=(str(binary), f"--config={file}"), environment=path)


def _pod_network(state: State) -> dict[str, Any]:
    addresses = {
        "type": "host-local",
        "dataDir": str(state.data / "addresses"),
        "ranges": [[{"subnet": PODS}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": addresses,
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "0.4.0", "name": "node", "plugins": [bridge, ports]}


def _kubelet(state: State, binary: Path) -> Program:
    """Everybody in the machine may ask it: `kubectl logs` and `exec` come by the API server."""
    resolver = state.folder / "resolv.conf"
    resolver.write_text(f"nameserver {DNS}\n")
    config = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "address": ADDRESS,
        "readOnlyPort": 0,
        "clusterDNS": [DNS],
        "clusterDomain": "cluster.local",
        "resolvConf": str(resolver),
        "podLogsDir": str(state.logs / "pods"),
        "volumePluginDir": str(state.data / "plugins"),
        "failSwapOn": False,
        # It looks for the disk among the host's devices, in vain.
        "localStorageCapacityIsolation": False,
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%"},
        "serializeImagePulls": False,
        "kubeAPIQPS": 100,
        "kubeAPIBurst": 200,
        "oomScoreAdj": 0,
    }
    return Program(
        name="kubelet",
        command=(
            str(binary),
            f"--config={_write(state, 'kubelet', config)}",
            f"--kubeconfig={credentials.kubeconfig_path(state, 'node')}",
            f"--hostname-override={NODE}",
            f"--node-ip={ADDRESS}",
            f"--root-dir={KUBELET}",
            f"--cert-dir={KUBELET / 'pki'}",
        ),
    )


def _kube_proxy(state: State, binary: Path) -> Program:
    config = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": str(credentials.kubeconfig_path(state, "node"))},
        "clusterCIDR": PODS,
        "hostnameOverride": NODE,
        "oomScoreAdj": 0,
        # Limits of connections are the whole kernel's.
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
    }
    config_file = _write(state, "kube-proxy", config)
    return Program(name="kube-proxy", command=(str(binary), f"--config={config_file}"))


def _kube_router(state: State, binary: Path) -> Program:
    """Enforces NetworkPolicies, and nothing else."""
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


def _write(state: State, name: str, config: Mapping[str, Any]) -> Path:
    path = state.folder / f"{name}.json"
    path.write_text(json.dumps(config, indent=2))
    return path


def _is_usable(admin: apiserver.Client) -> bool:
    """True when a Pod of the default namespace would be accepted, bound and started."""
    try:
        admin.get("/api/v1/namespaces/default/serviceaccounts/default")
        node = admin.get(f"/api/v1/nodes/{NODE}")
    except (apiserver.ApiError, OSError):
        return False
    conditions = node["status"].get("conditions", [])
    is_ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return is_ready and not node["spec"].get("taints")
