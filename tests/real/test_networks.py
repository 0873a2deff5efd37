"""NetworkPolicies as a network enforces them: what is open, what is closed, who may scrape.

One installation for all, with policies and with metrics for one namespace.
"""

from __future__ import annotations

import json
import os

import pytest
import yaml

from tests.support.realcluster import schedule, until, webhook
from tools.devcluster.errors import DevClusterError
from tools.devcluster.state import Record
from tools.realnode import images, installation

pytestmark = pytest.mark.alone
NAMESPACE = installation.NAMESPACE
METADATA = "169.254.169.254"  # of clouds: it hands out the machine's credentials


@pytest.fixture(scope="module")
def monitoring(cluster):
    """The namespace that may scrape."""
    with cluster.namespace("monitoring", security="privileged") as namespace:
        yield namespace


@pytest.fixture(scope="module")
def installed(cluster, monitoring):
    """Behind policies, with new Pods; afterwards with the defaults."""
    default = Record(kubeconfig=cluster.kubeconfig)
    (server,) = cluster.get("endpoints", "kubernetes", "-n=default")["subsets"]
    peers = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": monitoring}}}]
    installation.install(
        default,
        "--set=networkPolicy.enabled=true",
        f"--set=networkPolicy.apiServer.ports={{{server['ports'][0]['port']}}}",
        f"--set-json=networkPolicy.metricsFrom={json.dumps(peers)}",
        f"--set=egress.allowedCIDRs={{{METADATA}/32}}",
    )
    names = ("duepoint-operator", "duepoint-worker")
    cluster("rollout", "restart", *(f"deploy/{name}" for name in names), f"-n={NAMESPACE}")
    cluster.rolled_out(*names)
    yield cluster
    installation.install(default)


@pytest.fixture
def elsewhere(installed, team):
    """The name of a Pod of a team's, which no policy is about."""
    return pod(installed, team, "elsewhere")


def pod(cluster, namespace, name, **container):
    """A Pod that runs; by default it has Python, and waits."""
    image = cluster.pods("worker")[0]["spec"]["containers"][0]["image"]
    whole = {"name": "main", "image": image, "command": ["sleep", "3600"], **container}
    spec = {"terminationGracePeriodSeconds": 1, "containers": [whole]}
    metadata = {"name": name}
    cluster.apply(
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, namespace=namespace
    )
    ready = ("--for=condition=Ready", "--timeout=120s")
    cluster("wait", f"pod/{name}", f"--namespace={namespace}", *ready)
    return name


_CONNECT = """
import socket, sys
socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5)
"""


def reaches(cluster, namespace, whence, host, port):
    """Whether a connection from a Pod is taken."""
    where = (whence, f"--namespace={namespace}")
    try:
        cluster("exec", *where, "--", "python", "-c", _CONNECT, host, str(port))
    except DevClusterError as refusal:
        if "TimeoutError" in str(refusal) or "ConnectionRefused" in str(refusal):
            return False
        raise
    return True


def address(cluster, component):
    return cluster.pods(component)[0]["status"]["podIP"]


def test_schedules_fire_and_probes_pass(installed, team, receiver):
    installed.apply(schedule("hook", "@every 1s", webhook=webhook("/hook")), namespace=team)

    until("a request came", lambda: receiver.requests("/hook"))


def test_other_namespaces_reach_neither_metrics_nor_the_development_valkey(
    installed, team, elsewhere, monitoring
):
    allowed = pod(installed, monitoring, "allowed")

    for component in ("operator", "worker"):
        assert reaches(installed, monitoring, allowed, address(installed, component), 8080)
        assert not reaches(installed, team, elsewhere, address(installed, component), 8080)
    assert not reaches(installed, team, elsewhere, address(installed, "valkey"), 6379)
    assert not reaches(installed, monitoring, allowed, address(installed, "valkey"), 6379)


def test_no_worker_reaches_the_address_of_metadata_that_its_guard_was_let_allow(
    installed, team, elsewhere
):
    serve = f"ip address add {METADATA}/32 dev lo && exec httpd -f -p {METADATA}:80"
    with installed.namespace("cloud", security="privileged") as cloud:
        spec = {
            "hostNetwork": True,
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": "main",
                    "image": "busybox:1.37",
                    "command": ["sh", "-c", serve],
                    "securityContext": {"capabilities": {"add": ["NET_ADMIN"]}},
                    "lifecycle": {
                        "preStop": {
                            "exec": {
                                "command": ["ip", "address", "del", f"{METADATA}/32", "dev", "lo"]
                            }
                        }
                    },
                }
            ],
        }
        metadata = {"name": "metadata"}
        installed.apply(
            {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, namespace=cloud
        )
        until("it listens", lambda: reaches(installed, team, elsewhere, METADATA, 80))
        hook = {"url": f"http://{METADATA}/latest/meta-data/"}
        installed.apply(schedule("hook", "@every 1s", webhook=hook), namespace=team)

        worker = installed.pods("worker")[0]["metadata"]["name"]
        assert not reaches(installed, NAMESPACE, worker, METADATA, 80)
        until("its run fails", lambda: last_run(installed, team, "hook").get("message"))
        assert last_run(installed, team, "hook")["reason"] == "Network"
        installed("delete", "pod", "metadata", f"--namespace={cloud}", "--timeout=60s")


def last_run(cluster, team, name):
    return cluster.get("schedule", name, f"--namespace={team}")["status"]["lastRun"]


# -- the port of the name server -------------------------------------------------------------------

_ASK = """
import socket, sys
name = b"".join(bytes([len(part)]) + part.encode() for part in sys.argv[2].split("."))
question = bytes([7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0]) + name + bytes([0, 0, 1, 0, 1])
asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
asking.settimeout(5)
asking.sendto(question, (sys.argv[1], 53))
print(asking.recv(512)[7])
"""


@pytest.mark.skipif(
    os.environ.get("DUEPOINT_TEST_CLUSTER") != "real", reason="its name server is the cluster's own"
)
def test_a_name_server_on_port_53_and_one_on_another_port_are_reached(installed):
    """That of the node listens on 5353; this is a second one."""
    second = []
    for each in yaml.safe_load_all(installation.DNS.read_text().replace("IMAGE", images.COREDNS)):
        if each["kind"] not in ("ConfigMap", "Deployment", "Service"):
            continue
        each["metadata"]["name"] = "dns53"
        text = json.dumps(each).replace("5353", "53").replace("kube-dns", "dns53")
        made = json.loads(text)
        if each["kind"] == "Deployment":
            template = made["spec"]["template"]["spec"]
            template["volumes"][0]["configMap"]["name"] = "dns53"
            lowest = {"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}
            template["securityContext"]["sysctls"] = [lowest]
        made["spec" if "spec" in made else "data"].pop("clusterIP", None)
        second.append(made)
    installed.apply(*second, namespace="kube-system")
    try:
        installed.rolled_out("dns53", namespace="kube-system")
        where = ("deploy/duepoint-operator", f"--namespace={NAMESPACE}")
        for name in ("dns53", "kube-dns"):
            service = installed.get("service", name, "--namespace=kube-system")
            server = service["spec"]["clusterIP"]
            asked = ("python", "-c", _ASK, server, "kubernetes.default.svc.cluster.local")
            answers = until(
                "it answers", lambda asked=asked: installed("exec", *where, "--", *asked)
            )
            assert int(answers) == 1
    finally:
        installed("delete", "deploy,service,configmap", "dns53", "--namespace=kube-system")


# -- a Prometheus ----------------------------------------------------------------------------------
