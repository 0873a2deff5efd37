"""A cluster that really runs containers, with kubectl, the chart, namespaces and a receiver.

It is a private node of `tools.realnode`, or the cluster of the user's current context.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import yaml

from tools.devcluster.errors import DevClusterError
from tools.realnode import images, installation
from tools.up.kubectl import Kubectl

#: How long to wait; generous, because the machine may be ten times as busy as it should be.
SECONDS = 120.0
POLL_SECONDS = 0.25

Found = TypeVar("Found")


class Cluster:
    """A cluster, used as its administrator; a failed command raises `DevClusterError`."""

    def __init__(self, kubeconfig: str) -> None:
        self.kubeconfig = kubeconfig
        self.kubectl = Kubectl(kubeconfig)

    def __call__(self, *arguments: str, text: str | None = None) -> str:
        """Run kubectl with `text` as standard input, and return its output."""
        return self.kubectl.run(*arguments, text=text)

    def apply(self, *objects: dict[str, Any], namespace: str = "default") -> None:
        self.kubectl.apply(yaml.safe_dump_all(objects), f"--namespace={namespace}")

    def get(self, *arguments: str) -> dict[str, Any]:
        """Return an object, or a list."""
        return self.kubectl.json("get", *arguments)

    def items(self, *arguments: str) -> list[dict[str, Any]]:
        return list(self.get(*arguments)["items"])

    def duepoint(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run our command on this machine, as a user does."""
        program = str(Path(sys.executable).with_name("duepoint"))
        environment = {**os.environ, "KUBECONFIG": self.kubeconfig}
        result = subprocess.run(
            [program, *arguments], env=environment, capture_output=True, text=True, check=False
        )
        if check and result.returncode:
            raise AssertionError(f"duepoint {' '.join(arguments)}: {result.stdout}{result.stderr}")
        return result

    @contextlib.contextmanager
    def namespace(self, name: str = "team", security: str = "baseline") -> Iterator[str]:
        """Yield a namespace with a fresh name, and delete it afterwards."""
        fresh = f"{name}-{uuid.uuid4().hex[:6]}"
        labels = {"pod-security.kubernetes.io/enforce": security}
        metadata = {"name": fresh, "labels": labels}
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        try:
            yield fresh
        finally:
            self("delete", "namespace", fresh, "--wait=false", "--ignore-not-found")

    @contextlib.contextmanager
    def valkey(self, *options: str) -> Iterator[str]:
        """Yield a namespace with a Valkey without persistence behind the Service `valkey`."""
        with self.namespace("redis") as fresh:
            command = ["valkey-server", "--save", "", *options]
            container = {"name": "valkey", "image": valkey_image(), "command": command}
            metadata = {"name": "valkey", "labels": {"app": "valkey"}}
            ports = {"selector": metadata["labels"], "ports": [{"port": 6379}]}
            named = {"apiVersion": "v1", "metadata": metadata}
            self.apply(
                {**named, "kind": "Pod", "spec": {"containers": [container]}},
                {**named, "kind": "Service", "spec": ports},
                namespace=fresh,
            )
            ready = ("--for=condition=Ready", f"--timeout={SECONDS:.0f}s")
            self("wait", "pod/valkey", f"--namespace={fresh}", *ready)
            yield fresh

    def pods(self, component: str) -> list[dict[str, Any]]:
        """Return the Pods of a component, such as `worker`, that are not being deleted."""
        label = f"app.kubernetes.io/component={component}"
        found = self.items("pods", f"--namespace={installation.NAMESPACE}", f"--selector={label}")
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def rolled_out(self, *names: str, namespace: str = installation.NAMESPACE) -> None:
        for name in names:
            target = (f"deploy/{name}", f"--namespace={namespace}")
            self("rollout", "status", *target, f"--timeout={SECONDS:.0f}s")


def valkey_image() -> str:
    """Return the image of the chart's development Valkey, which the node has."""
    values = yaml.safe_load((images.CHART / "values.yaml").read_text())
    return str(values["redis"]["development"]["image"])


class Receiver:
    """The Service `receiver` of a namespace, reached through the API server."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._path = f"/api/v1/namespaces/{namespace}/services/receiver:http/proxy"
        installation.add_receiver(cluster.kubectl, namespace)

    def requests(self, path: str = "") -> list[dict[str, Any]]:
        """Return the requests of a path in order: arrived, path, headers, peer, body."""
        found = json.loads(self._cluster("get", "--raw", f"{self._path}/_requests"))
        return [one for one in found if one["path"].startswith(path)]

    def answer(self, path: str, status: int = 204, seconds: float = 0) -> None:
        """Answer requests of a path with this status from now on, after this many seconds."""
        text = json.dumps({path: {"status": status, "seconds": seconds}})
        self._cluster("create", "--raw", f"{self._path}/_answers", "-f", "-", text=text)


def until(what: str, look: Callable[[], Found], seconds: float = SECONDS) -> Found:
    """Return the first truthy result of `look`; a failure of kubectl counts as not yet."""
    deadline = time.monotonic() + seconds
    last: object = None
    while time.monotonic() < deadline:
        try:
            if found := look():
                return found
            last = found
        except (DevClusterError, KeyError, IndexError) as error:
            last = error
        time.sleep(POLL_SECONDS)
    raise AssertionError(f"waited {seconds:.0f} s until {what}; last: {last!r}")


def schedule(name: str, every: str, **spec: Any) -> dict[str, Any]:
    """Return a Schedule; `spec` has its target and its policies."""
    return {
        "apiVersion": "duepoint.dev/v1alpha1",
        "kind": "Schedule",
        "metadata": {"name": name},
        "spec": {"schedule": every, **spec},
    }


def job(script: str, **pod: Any) -> dict[str, Any]:
    """Return a `jobTemplate` whose container runs a shell script; `pod` extends the Pod's spec."""
    container = {"name": "main", "image": "busybox:1.37", "command": ["sh", "-c", script]}
    spec = {"restartPolicy": "Never", "containers": [container], **pod}
    return {"spec": {"backoffLimit": 0, "template": {"spec": spec}}}


def webhook(path: str, **settings: Any) -> dict[str, Any]:
    """Return a `webhook` to the receiver of the same namespace."""
    return {"service": {"name": "receiver", "port": "http", "path": path}, **settings}
