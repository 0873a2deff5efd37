"""The simulated node, and the wait until it accepts Pods.

kwok plays its kubelet (`stages.yaml` says how Pods end). The node is usable once kwok has made it
Ready and the controller manager has removed the not-ready taint. By then ServiceAccounts exist as
well, so a Job created next becomes a Pod at its first attempt.
"""

from __future__ import annotations

from http import HTTPStatus

from tools.devcluster import apiserver

NODE = "simulated-node"


def add_node(client: apiserver.Client) -> None:
    labels = {
        "kubernetes.io/hostname": NODE,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "type": "kwok",
    }
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": labels}}
    try:
        client.post("/api/v1/nodes", node)
    except apiserver.ApiError as error:
        if error.code != HTTPStatus.CONFLICT:  # it exists from an earlier start
            raise


def is_usable(client: apiserver.Client, name: str = NODE) -> bool:
    """Whether a Pod in the default namespace would be accepted and bound to this node."""
    try:
        client.get("/api/v1/namespaces/default/serviceaccounts/default")
        node = client.get(f"/api/v1/nodes/{name}")
    except (apiserver.ApiError, OSError):
        return False
    conditions = node.get("status", {}).get("conditions", [])
    is_ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return is_ready and not node["spec"].get("taints")
