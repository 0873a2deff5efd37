"""The installation and its load: Schedules, members of a set, a client of the HTTP API.

The chart has its defaults except for what the incidents need: the HTTP API with TLS, our own Valkey
whose password can change, and a ConfigMap of settings. Like the development Valkey, ours does not
persist anything, so the set's members come from rows of a ConfigMap.
"""

from __future__ import annotations

import json
import os
import string
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.support import certificates
from tests.support.realcluster import Cluster, job, schedule, until, valkey_image, webhook
from tools import helm
from tools.devcluster import external
from tools.devcluster.state import Record, State
from tools.realnode import images, installation

HERE = Path(__file__).parent
NAMESPACE = installation.NAMESPACE
HOST = f"duepoint-api.{NAMESPACE}.svc"
COMPONENTS = ("operator", "worker", "api")
#: What a slot is missed by default is the policy's choice; half of the Schedules keep that default.
ALL = {"catchUpPolicy": "All", "catchUpLimit": 1000}
HOOKS = {f"hook-{number}": ALL if number % 2 else {} for number in range(8)}
#: Four Schedules, which together make forty Jobs a minute.
JOBS, JOB_SECONDS = [f"job-{number}" for number in range(4)], 6
REPORTING = 'wget -q -O- --post-data "$HOSTNAME" http://receiver/job'
#: Enough for a minute and a half, so that the thread that lists Jobs sees each of them.
HISTORY = {"successfulJobsHistoryLimit": 20, "failedJobsHistoryLimit": 20}
MEMBERS = 1_000


class Scene:
    """A cluster with the installation and its load."""

    def __init__(self, cluster: Cluster, namespace: str, members: int) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.members = members
        self.state = State(Path(os.environ["DUEPOINT_TEST_STATE"]))
        self.authority = certificates.Authority("hour")
        self.password = "first"

    def install(self, *options: str) -> None:
        installation.install(
            Record(kubeconfig=self.cluster.kubeconfig),
            "--set=redis.development.enabled=false",
            f"--set=redis.url=redis://valkey.{NAMESPACE}.svc:6379/0",
            "--set=redis.passwordSecret.name=redis-password",
            "--set=api.enabled=true,api.tls.secretName=duepoint-api-tls",
            *(f"--set={name}.pod.envFrom[0].configMapRef.name=settings" for name in COMPONENTS),
            *options,
        )
        self.cluster.rolled_out("duepoint-operator", "duepoint-worker", "duepoint-api")

    def uninstall(self) -> None:
        """Remove the installation, with its objects outside its namespace."""
        helm.run(
            *("uninstall", installation.RELEASE, "--ignore-not-found", "--wait"),
            *(f"--kubeconfig={self.cluster.kubeconfig}", f"--namespace={NAMESPACE}"),
        )
        self.cluster("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=120s")

    def prepare(self) -> None:
        """Remove any earlier installation, and install everything except the load."""
        self.uninstall()
        restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
        self.cluster.apply(_object("Namespace", NAMESPACE, labels=restricted))
        self.cluster.apply(
            self.redis_password(), self.certificate(), self.settings("info"), namespace=NAMESPACE
        )
        self._apply("valkey")
        self.cluster.rolled_out("valkey")
        self.install()
        code = {name: (HERE / name).read_text() for name in ("receiver.py", "client.py")}
        self.cluster.apply(_config("code", code), namespace=self.namespace)
        self._apply("receiver")
        self.cluster.rolled_out("receiver", namespace=self.namespace)

    # -- objects that incidents change ---------------------------------------------------------

    def redis_password(self) -> dict[str, Any]:
        return _secret("redis-password", password=self.password)

    def certificate(self) -> dict[str, Any]:
        pair = self.authority.signs(HOST)
        data = {"tls.crt": pair.certificate.decode(), "tls.key": pair.key.decode()}
        return {**_secret("duepoint-api-tls", **data), "type": "kubernetes.io/tls"}

    def settings(self, level: str) -> dict[str, Any]:
        return _config("settings", {"DUEPOINT_LOG_LEVEL": level})

    def hook_key(self, key: str) -> dict[str, Any]:
        consent = {"duepoint.dev/send-to": "*"}
        return {**_secret("hook", key=key), **_object("Secret", "hook", annotations=consent)}

    # -- the load ------------------------------------------------------------------------------

    def load(self) -> None:
        """Start the load, and return when every kind of it arrives."""
        self.cluster.apply(self.hook_key("first"), namespace=self.namespace)
        reader = ("create", "rolebinding", "reader", "--clusterrole=duepoint-secret-reader")
        worker = f"--serviceaccount={NAMESPACE}:duepoint-worker"
        self.cluster(*reader, worker, f"--namespace={self.namespace}")
        self.cluster.apply(*self._schedules(), namespace=self.namespace)
        authority = {"ca.crt": self.authority.pem.decode()}
        self.cluster.apply(_config("ca", authority), namespace=self.namespace)
        account = (f"--serviceaccount={self.namespace}:default", f"--namespace={self.namespace}")
        self.cluster("create", "rolebinding", "edit", "--clusterrole=duepoint-edit", *account)
        self._apply("client")
        for path in ("/hook", "/job", "/member", "/order"):
            until(
                f"{path} is called",
                lambda path=path: f" {path}" in self.received("tail", "-c200000"),
            )

    def _schedules(self) -> Iterator[dict[str, Any]]:
        key = {"name": "X-Key", "valueFrom": {"secretKeyRef": {"name": "hook", "key": "key"}}}
        for name, policy in HOOKS.items():
            target = webhook("/hook", headers=[key] if name == "hook-0" else [])
            yield schedule(name, "@every 1s", webhook=target, **policy)
        for name in JOBS:
            every = f"@every {JOB_SECONDS}s"
            yield schedule(name, every, jobTemplate=job(REPORTING), **ALL, **HISTORY)
        rows = [
            json.dumps({"id": f"m-{number}", "schedule": "@every 1s", "payload": f"m-{number}"})
            for number in range(self.members)
        ]
        yield _config("rows", {"rows.ndjson": "\n".join(rows)})
        source = {"rows": {"configMapRef": {"name": "rows"}}, "defaults": ALL}
        yield _set("members", stream={"name": "members", "maxLength": 100_000}, **source)
        yield _set("orders", webhook=webhook("/order"))

    def silence(self) -> None:
        """Stop the load, so that nothing more becomes due."""
        for kind in ("schedules.duepoint.dev", "schedulesets.duepoint.dev"):
            for one in self.cluster.items(kind, f"--namespace={self.namespace}"):
                self.cluster(
                    *("patch", kind, one["metadata"]["name"], f"--namespace={self.namespace}"),
                    *("--type=merge", '--patch={"spec": {"suspend": true}}'),
                )

    # -- what came -----------------------------------------------------------------------------

    def received(self, *command: str) -> str:
        where = ("exec", "deploy/receiver", f"--namespace={self.namespace}", "--")
        return self.cluster(*where, *command, "/log/received")

    def keep(self, file: Path) -> None:
        """Copy the receiver's whole log into a file."""
        command = [external.kubectl(), "--kubeconfig", self.cluster.kubeconfig, "exec"]
        command += ["deploy/receiver", f"--namespace={self.namespace}", "--"]
        command += ["cat", "/log/received"]
        with file.open("wb") as output:
            subprocess.run(command, stdout=output, check=True)

    def answers(self) -> list[list[str]]:
        """Return the client's log: time, member, answer."""
        said = self.cluster("logs", "client", f"--namespace={self.namespace}")
        return [line.split(" ", 2) for line in said.splitlines()]

    # -- manifests -----------------------------------------------------------------------------

    def _apply(self, *names: str) -> None:
        """Apply the objects in `scene.yaml` with these names."""
        text = string.Template((HERE / "scene.yaml").read_text()).substitute(
            redis=NAMESPACE,
            namespace=self.namespace,
            host=HOST,
            valkey_image=valkey_image(),
            image=os.environ.get("IMAGE") or images.product_name(),
        )
        found = [one for one in yaml.safe_load_all(text) if one["metadata"]["name"] in names]
        self.cluster.kubectl.apply(yaml.safe_dump_all(found))


def _object(kind: str, name: str, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, **metadata}}


def _config(name: str, data: dict[str, str]) -> dict[str, Any]:
    return {**_object("ConfigMap", name), "data": data}


def _secret(name: str, **data: str) -> dict[str, Any]:
    return {**_object("Secret", name), "stringData": data}


def _set(name: str, **spec: Any) -> dict[str, Any]:
    return {**_object("ScheduleSet", name), "apiVersion": "duepoint.dev/v1alpha1", "spec": spec}
