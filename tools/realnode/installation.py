"""The installation on the node: DNS, the chart with its defaults, the examples.

The same installation, without DNS, goes to a cluster of the user's. Its image is `IMAGE`, when that
is set; for a cluster of kind it is built by Docker and loaded.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import yaml

from tools import helm
from tools.devcluster import progress
from tools.devcluster.errors import DevClusterError
from tools.devcluster.state import REPOSITORY, Record
from tools.realnode import images
from tools.up import applications
from tools.up.kubectl import Kubectl

DNS = Path(__file__).with_name("dns.yaml")
RECEIVER = Path(__file__).with_name("receiver.yaml")
RELEASE, NAMESPACE = "duepoint", "duepoint-system"
#: The receiver of `make up`, which no Pod reaches, and the Service that replaces it.
_LOCAL_URL = re.compile(r"url: http://127\.0\.0\.1:8089(\S+)")
_SERVICE = r"service: {name: receiver, port: http, path: \1}"
#: A slower installation has failed.
INSTALL_SECONDS = 180


def add_dns(kubectl: Kubectl) -> None:
    kubectl.apply(DNS.read_text().replace("IMAGE", images.COREDNS))
    kubectl.run("rollout", "status", "deploy/coredns", "--namespace=kube-system", "--timeout=60s")


def install(record: Record, *options: str, chart: Path = images.CHART) -> None:
    """Install the chart as its README says, with the development Valkey, and wait for it."""
    kubectl = Kubectl(record.kubeconfig)
    restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
    metadata = {"name": NAMESPACE, "labels": restricted}
    kubectl.apply(yaml.safe_dump({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))
    helm.run(
        *("upgrade", "--install", RELEASE, str(chart)),
        *(f"--kubeconfig={record.kubeconfig}", f"--namespace={NAMESPACE}"),
        *("--set=redis.development.enabled=true", *image_options(), *options),
        *("--wait", f"--timeout={INSTALL_SECONDS}s"),
    )
    for name in ("operator", "worker"):
        target = (f"deploy/{RELEASE}-{name}", f"--namespace={NAMESPACE}")
        kubectl.run("rollout", "status", *target, f"--timeout={INSTALL_SECONDS}s")


def image_options() -> tuple[str, ...]:
    """Return the values for ``IMAGE``; none if it is unset: the build has the chart's name."""
    name, _, tag = os.environ.get("IMAGE", "").rpartition(":")
    return (f"--set=image.repository={name}", f"--set-string=image.tag={tag}") if name else ()


def bring_image(context: str) -> None:
    """Load the image into the nodes of the user's cluster."""
    if os.environ.get("IMAGE"):
        return
    if not context.startswith("kind-") or not all(map(shutil.which, ("docker", "kind"))):
        raise DevClusterError(
            f"the nodes of {context} need the image: push it to their registry and set "
            "IMAGE=registry/name:tag, or use a cluster of kind, with docker and kind on the PATH"
        )
    name = images.product_name().removeprefix("docker.io/library/")
    with progress.long_step("Building the image with docker, and loading it into kind", 90):
        for command in (
            ["docker", "build", "--quiet", "--tag", name, str(REPOSITORY)],
            ["kind", "load", "docker-image", name, "--name", context.removeprefix("kind-")],
        ):
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            if result.returncode:
                raise DevClusterError(f"{' '.join(command[:2])}: {result.stderr.strip()[-1000:]}")


def add_receiver(kubectl: Kubectl, namespace: str) -> None:
    """Create the Service `receiver` and wait until it is ready; see `receiver.yaml`."""
    image = os.environ.get("IMAGE") or images.product_name()
    text = RECEIVER.read_text().replace("IMAGE", image)
    kubectl.apply(text, f"--namespace={namespace}")
    target = ("deploy/receiver", f"--namespace={namespace}")
    kubectl.run("rollout", "status", *target, f"--timeout={INSTALL_SECONDS}s")


def apply_examples(kubectl: Kubectl) -> int:
    """Apply the examples in `default`, with webhooks to a Service there; return their number."""
    add_receiver(kubectl, "default")
    number = 0
    for path in sorted(applications.EXAMPLES.glob("[0-9]*/*.yaml")):
        number += len(kubectl.apply(for_pods(path.read_text())))
    return number


def for_pods(manifest: str) -> str:
    """Return the example with a webhook that calls the Service."""
    return _LOCAL_URL.sub(_SERVICE, manifest)
