"""Many combinations of values: what each changes, and that a server accepts all of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.chart import cases
from tests.integration.chart.helm import Helm, objects
from tests.integration.chart.test_on_a_cluster import assert_accepted
from tests.integration.crds import kubeapi
from tests.integration.crds.conftest import install
from tests.support.controlplane import ControlPlane

pytestmark = pytest.mark.xdist_group("chart")

OTHER_CRDS = sorted((Path(__file__).parent / "othercrds").glob("*.yaml"))


#: What a case adds to the rendering of the default, beside what test_rendering.py looks at.
ADDS = {
    "traces": ('"http://otel-collector.monitoring:4318"',),
    "image-by-digest": (f"registry.example.com/duepoint@sha256:{'a' * 64}", "- name: registry"),
    "image-by-tag": ("image: duepoint:1.2.3", "imagePullPolicy: Always"),
    "redis-by-url": ('url: "rediss://user:pass@redis.example.com/1"',),
    "redis-cluster-with-tls": ("secretName: ca", "secretName: tls", "key: address"),
    "redis-sentinel": ("DUEPOINT_REDIS_SENTINEL_PASSWORD_FILE", "secretName: sentinel"),
    "accounts-by-name": ("serviceAccountName: op", "serviceAccountName: wo"),
    "extra-arguments": ("- --log-level=debug", "- --concurrency=64", "- --lease-seconds=5"),
    "extra-environment": ("fieldPath: spec.nodeName", "- name: TZ", "name: proxy"),
    "extra-volumes": ("mountPath: /etc/extra", "name: extra"),
    "annotations": ("a: deployment", "a: pod", "a: account", "b: pod"),
    "placement": (
        *("kubernetes.io/os: linux", "priorityClassName: system-cluster-critical"),
        *("operator: Exists", "whenUnsatisfiable: DoNotSchedule", "preferredDuringScheduling"),
    ),
    "budgets": ("kind: PodDisruptionBudget", "minAvailable: 50%", "AlwaysAllow"),
    "budgets-of-none": ("kind: PodDisruptionBudget", "maxUnavailable: 25%", "IfHealthyBudget"),
    "autoscaling": ("kind: HorizontalPodAutoscaler", "maxReplicas: 40"),
    "autoscaling-by-keda": ("kind: ScaledObject", f'serverAddress: "{cases.PROMETHEUS}"'),
    "pod-monitor": ("kind: PodMonitor", "namespace: monitoring", "15s", "labeldrop"),
    "service-monitor": ("kind: ServiceMonitor", "regex: python_.*"),
    "alerts-of-schedules": (
        *("kind: PrometheusRule", "DuepointScheduleMissed", "team: platform"),
        "https://git.example.com/duepoint/docs/howto/runbooks.md#duepointschedulemissed",
    ),
    "dashboard": ("grafana_folder", "namespace: monitoring"),
    "egress": ('"10.1.2.0/24"', '"10.1.2.3/32"', '"10.96.0.0/12"', "value: allowlist"),
    "process-settings": (
        "value: debug",
        "terminationGracePeriodSeconds: 70",
    ),
    "http-api-behind-a-proxy": (
        *("name: duepoint-api", "team: shop"),
        "DUEPOINT_API_AUDIENCES",
    ),
    "http-api-behind-an-ingress": ("kind: Ingress", "name: duepoint-api"),
}


@pytest.fixture(scope="module")
def default(helm: Helm) -> str:
    return helm.text(cases.BASE)


@pytest.mark.parametrize("name", ADDS)
def test_a_value_reaches_the_objects(helm: Helm, default: str, name: str) -> None:
    text = helm.text(cases.merged(cases.BASE, cases.CASES[name]))
    assert [added for added in ADDS[name] if added not in text] == []
    assert [added for added in ADDS[name] if added in default] == []


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (
            {part: {"serviceAccount": {"name": "same"}} for part in ("operator", "worker")},
            "give each process an account of its own",
        ),
        (
            {"worker": {"pod": {"env": [{"name": "DUEPOINT_EGRESS_MODE", "value": "open"}]}}},
            "worker.pod.env has the name DUEPOINT_EGRESS_MODE, which is taken",
        ),
        (
            {"operator": {"pod": {"volumes": [{"name": "tmp", "emptyDir": {}}]}}},
            "operator.pod.volumes has the name tmp, which is taken",
        ),
        (
            {"worker": {"pod": {"volumeMounts": [{"name": "mine", "mountPath": "/tmp"}]}}},
            "worker.pod.volumeMounts has the mountPath /tmp, which is taken",
        ),
        (
            {"worker": {"pod": {"labels": {"app.kubernetes.io/name": "mine"}}}},
            "worker.pod.labels has app.kubernetes.io/name, which the chart sets itself",
        ),
        (
            {"commonLabels": {"team": "a"}, "worker": {"pod": {"labels": {"team": "b"}}}},
            "worker.pod.labels has team, and so has commonLabels",
        ),
        ({"commonLabels": {"bad key!": "a"}}, 'commonLabels has "bad key!"'),
        ({"api": {"dashboard": {"enabled": True}}}, "set api.enabled=true"),
        ({"fullnameOverride": "UPPER"}, "/fullnameOverride"),
        ({"egress": {"allowedCIDRs": ["10.0.0.0/33"]}}, "/egress/allowedCIDRs/0"),
        ({"egress": {"deniedCIDRs": ["10.0.256.0/24"]}}, "/egress/deniedCIDRs/0"),
        (
            {"worker": {"podDisruptionBudget": {"minAvailable": 1, "maxUnavailable": 1}}},
            "worker.podDisruptionBudget has both",
        ),
        (
            {"worker": {"autoscaling": {"kind": "KEDA"}}},
            "worker.autoscaling.prometheusAddress must be the URL",
        ),
        (
            {"worker": {"autoscaling": {"kind": "HorizontalPodAutoscaler", "minReplicas": 20}}},
            "lower the one or raise the other",
        ),
        ({"commonLabels": {"app.kubernetes.io/name": "mine"}}, "commonLabels"),
        ({"worker": {"pod": {"args": ["concurrency=4"]}}}, "args"),
        ({"worker": {"pod": {"env": [{"name": "A", "valuefrom": {}}]}}}, "env"),
        ({"worker": {"pod": {"volume": []}}}, "volume"),
    ],
    ids=[
        "one account for both",
        "variable of the chart",
        "volume of the chart",
        "path of the chart",
        "Pod label of the chart",
        "Pod label twice",
        "not a valid label name",
        "dashboard without the API",
        "capital letters",
        "prefix beyond the address",
        "no address",
        "two budgets",
        "KEDA without Prometheus",
        "least above most",
        "label of the chart",
        "argument that is not a flag",
        "misspelt source of a variable",
        "misspelt value",
    ],
)  # fmt: skip
def test_contradictions_are_refused_by_name(helm: Helm, values: Any, says: str) -> None:
    assert says in helm.text(cases.merged(cases.BASE, values), refused=True)


@pytest.fixture(scope="module")
def api_with_other_crds(api: kubeapi.KubeApi, duepoint_plane: ControlPlane) -> kubeapi.KubeApi:
    """Knows the kinds of the Prometheus Operator and of KEDA as well."""
    assert duepoint_plane
    for path in OTHER_CRDS:
        install(api, yaml.load(path.read_text(), Loader=yaml.CSafeLoader))
    for name in ("monitoring", *cases.TEAMS):
        api.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    return api


@pytest.mark.parametrize("name", cases.CASES)
def test_an_api_server_accepts_every_object_in_a_restricted_namespace(
    helm: Helm, api_with_other_crds: kubeapi.KubeApi, restricted_namespace: str, name: str
) -> None:
    values = cases.merged(cases.BASE, cases.CASES[name])
    things = objects(helm.text(values, namespace=restricted_namespace))
    assert len(things) > 20
    for thing in things:
        assert_accepted(api_with_other_crds, thing)
