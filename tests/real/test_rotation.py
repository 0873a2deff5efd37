"""The HTTP API and the dashboard behind their Service with TLS, and secrets that change meanwhile.

One installation for all: a Redis with a password, the API with a certificate of our own authority.
"""

from __future__ import annotations

import json
import time

import pytest

from tests.support import certificates
from tests.support.realcluster import Receiver, schedule, until, webhook
from tools.devcluster.state import Record
from tools.realnode import installation

pytestmark = pytest.mark.alone
NAMESPACE = installation.NAMESPACE
HOST = f"duepoint-api.{NAMESPACE}.svc"
COMPONENTS = ("operator", "worker", "api")


def secret(name, **data):
    metadata = {"name": name}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data}


def certificate(authority):
    pair = authority.signs(HOST, "localhost")
    data = {"tls.crt": pair.certificate.decode(), "tls.key": pair.key.decode()}
    return {**secret("duepoint-api-tls", **data), "type": "kubernetes.io/tls"}


@pytest.fixture(scope="module")
def redis(cluster):
    """A namespace with a Valkey whose password is `first`."""
    with cluster.valkey("--requirepass", "first") as namespace:
        yield namespace


@pytest.fixture(scope="module")
def authorities():
    return certificates.Authority("first"), certificates.Authority("second")


@pytest.fixture(scope="module")
def address(cluster):
    """The only address outside of Duepoint's own that webhooks may reach by a URL."""
    with cluster.namespace("other") as namespace:
        receiver = Receiver(cluster, namespace)
        service = cluster.get("service", "receiver", f"--namespace={namespace}")
        yield receiver, f"http://receiver.{namespace}.svc", service["spec"]["clusterIP"]


@pytest.fixture(scope="module")
def installed(cluster, redis, authorities, address):
    """With what this module is about; afterwards with the defaults."""
    default = Record(kubeconfig=cluster.kubeconfig)
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    metadata = {"name": NAMESPACE, "labels": labels}
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    cluster.apply(
        secret("redis-password", password="first"), certificate(authorities[0]), namespace=NAMESPACE
    )
    installation.install(
        default,
        "--set=redis.development.enabled=false",
        f"--set=redis.url=redis://valkey.{redis}.svc:6379/0",
        "--set=redis.passwordSecret.name=redis-password",
        "--set=api.enabled=true,api.dashboard.enabled=true",
        "--set=api.tls.secretName=duepoint-api-tls",
        f"--set=egress.allowedCIDRs={{{address[2]}/32}}",
    )
    cluster.rolled_out("duepoint-operator", "duepoint-worker", "duepoint-api")
    yield cluster
    installation.install(default)
    cluster("delete", "secret", "redis-password", "duepoint-api-tls", f"-n={NAMESPACE}")


class Client:
    """A Pod of the team's, with the right to change members, that trusts one authority a call."""

    def __init__(self, cluster, team, authorities):
        self._cluster, self._team = cluster, team
        image = cluster.pods("worker")[0]["spec"]["containers"][0]["image"]
        data = {f"{number}.crt": each.pem.decode() for number, each in enumerate(authorities)}
        container = {
            "name": "main",
            "image": image,
            "command": ["sleep", "3600"],
            "env": [{"name": "DUEPOINT_API_URL", "value": f"https://{HOST}"}],
            "volumeMounts": [{"name": "ca", "mountPath": "/ca"}],
        }
        spec = {
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            "volumes": [{"name": "ca", "configMap": {"name": "ca"}}],
        }
        cluster.apply(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ca"}, "data": data},
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "client"}, "spec": spec},
            namespace=team,
        )
        account = (f"--serviceaccount={team}:default", f"--namespace={team}")
        cluster("create", "rolebinding", "edit", "--clusterrole=duepoint-edit", *account)
        cluster(
            "wait", "pod/client", f"--namespace={team}", "--for=condition=Ready", "--timeout=120s"
        )

    def run(self, *command):
        return self._cluster("exec", "client", f"--namespace={self._team}", "--", *command)

    def put(self, member, authority=0):
        options = ("--delay=1s", f"--ca-file=/ca/{authority}.crt", "-n", self._team)
        return self.run("duepoint", "set", "put", "reminders", member, *options)


@pytest.fixture
def client(installed, team, authorities):
    return Client(installed, team, authorities)


def reminders(**spec):
    metadata = {"name": "reminders"}
    return {
        "apiVersion": "duepoint.dev/v1alpha1",
        "kind": "ScheduleSet",
        "metadata": metadata,
        "spec": spec,
    }


def test_a_member_that_a_pod_puts_through_the_service_with_tls_fires(
    installed, team, receiver, client
):
    installed.apply(reminders(webhook=webhook("/remind")), namespace=team)

    until("the member is put", lambda: client.put("order-17"))

    (request, *_) = until("it fires", lambda: receiver.requests("/remind"))
    assert "order-17" in request["body"]


def test_an_address_from_a_secret_is_called_and_not_shown(installed, team, address):
    receiver, url, _ = address
    named = secret("url", url=f"{url}/of-a-secret")
    named["metadata"]["annotations"] = {"duepoint.dev/send-to": "*"}
    hook = {"urlFrom": {"secretKeyRef": {"name": "url", "key": "url"}}}
    installed(
        *("create", "rolebinding", "reader", "--clusterrole=duepoint-secret-reader"),
        *(f"--serviceaccount={NAMESPACE}:duepoint-worker", f"--namespace={team}"),
    )
    installed.apply(named, schedule("hook", "@every 1s", webhook=hook), namespace=team)

    until("a request came", lambda: receiver.requests("/of-a-secret"))

    shown = installed("get", "schedule", "hook", "-o", "yaml", f"--namespace={team}")
    assert "of-a-secret" not in shown + installed.duepoint("why", "hook", "-n", team).stdout


# -- secrets that change ---------------------------------------------------------------------------


def ours(cluster):
    """Pods with the number of their restarts."""
    return {
        pod["metadata"]["name"]: pod["status"]["containerStatuses"][0]["restartCount"]
        for component in COMPONENTS
        for pod in cluster.pods(component)
    }


def mounted_anew(cluster):
    """Let the node look at mounted Secrets now; it would within a minute or two."""
    for component in COMPONENTS:
        label = f"--selector=app.kubernetes.io/component={component}"
        now = f"tests.duepoint.dev/now={time.time_ns()}"
        cluster("annotate", "pods", label, now, "--overwrite", f"--namespace={NAMESPACE}")


_SHOWN = "import ssl, sys; print(ssl.get_server_certificate((sys.argv[1], 8443)))"
_ASKED = """
import redis, sys
redis.Redis(sys.argv[1], password=sys.argv[2]).execute_command(*sys.argv[3:])
"""


def test_a_rotated_certificate_and_a_rotated_password_are_used_without_a_restart(
    installed, team, receiver, client, authorities, redis
):
    hook = schedule("hook", "@every 1s", webhook=webhook("/hook"))
    installed.apply(hook, reminders(webhook=webhook("/remind")), namespace=team)
    until("the member is put", lambda: client.put("order-1"))
    until("it fires", lambda: receiver.requests("/hook"))
    before = ours(installed)

    def of_redis(password, *command):
        where = ("deploy/duepoint-worker", f"--namespace={NAMESPACE}")
        asked = ("python", "-c", _ASKED, f"valkey.{redis}.svc", password, *command)
        installed("exec", *where, "--", *asked)

    of_redis("first", "ACL", "SETUSER", "default", ">second")  # both are right for a while
    new = certificate(authorities[1])
    installed.apply(secret("redis-password", password="second"), new, namespace=NAMESPACE)
    mounted_anew(installed)
    read = (f"--namespace={NAMESPACE}", "--", "cat", "/etc/duepoint/redis-password/password")
    for name in before:
        until("it is mounted", lambda name=name: installed("exec", name, *read) == "second")
    of_redis("second", "ACL", "SETUSER", "default", "<first")
    for kind in ("normal", "pubsub"):
        of_redis("second", "CLIENT", "KILL", "TYPE", kind)

    for pod in installed.pods("api"):
        where = pod["status"]["podIP"]
        until(
            "it shows the new certificate",
            lambda where=where: (
                client.run("python", "-c", _SHOWN, where).strip()
                == new["stringData"]["tls.crt"].strip()
            ),
        )
    until("the member is put", lambda: client.put("order-2", authority=1))
    until("it fires", lambda: "order-2" in json.dumps(receiver.requests("/remind")))
    fired = len(receiver.requests("/hook"))
    until("workers go on", lambda: receiver.requests("/hook")[fired + 5 :])
    installed.apply(schedule("next", "@every 1s", webhook=webhook("/next")), namespace=team)
    until("the operator goes on", lambda: receiver.requests("/next"))
    assert ours(installed) == before
