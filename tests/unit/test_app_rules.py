"""What the settings of an installation come to in the rules that a worker asks."""

from __future__ import annotations

import ipaddress
import sys

import pytest

from duepoint import app, errors, settings, tracing
from duepoint.net import egressrules


@pytest.fixture
def a_worker(tmp_path):
    key = tmp_path / "key"
    key.write_bytes(b"k" * 32)
    needed = {"DUEPOINT_REDIS_URL": "redis://a", "DUEPOINT_BLOB_KEY_FILE": str(key)}

    def made(**flags):
        return settings.read(settings.WorkerSettings, needed, flags)

    return made


def test_in_a_pod_no_url_leads_into_its_own_network(a_worker, monkeypatch):
    pods = (ipaddress.ip_network("192.0.2.0/24"),)
    chosen = a_worker(egress_mode="open", egress_cluster_cidrs="10.96.0.0/12")
    route = egressrules.Route(scheme="https", web=True)

    def denied() -> list[str]:
        policy = app.egress_policy(chosen)
        return [
            one
            for one in ("192.0.2.7", "10.96.0.1", "10.1.1.1")
            if isinstance(egressrules.verdict(one, 443, policy, route), egressrules.Denied)
        ]

    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert denied() == ["10.96.0.1"]
    monkeypatch.setattr(app.resolving, "pod_networks", lambda: pods)
    assert denied() == ["192.0.2.7", "10.96.0.1"]


def test_every_rule_of_the_settings_reaches_the_guard(a_worker):
    policy = app.egress_policy(
        a_worker(
            egress_mode="allowlist",
            egress_allowed_cidrs="10.1.0.0/16",
            egress_denied_cidrs="10.1.2.0/24",
            webhook_insecure="http",
        )
    )
    assert (policy.mode, policy.allow_http) == ("allowlist", True)
    assert [str(one) for one in policy.allowed] == ["10.1.0.0/16"]
    assert [str(one) for one in policy.denied] == ["10.1.2.0/24"]


def test_without_a_collector_there_are_no_traces(a_worker):
    assert app.span_exporter(a_worker(), {}) is None


def test_a_collector_without_its_packages_is_a_wrong_setting(a_worker, monkeypatch):
    monkeypatch.delitem(sys.modules, "duepoint.tracing.otlp", raising=False)
    monkeypatch.delattr(tracing, "otlp", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}
    with pytest.raises(errors.InvalidSetting, match=r"OTLP_ENDPOINT.*duepoint\[otel\]"):
        app.span_exporter(a_worker(), environment)


@pytest.mark.parametrize("value", ["1.5", "-1", "half", "nan"])
def test_a_share_of_slots_is_a_number_from_0_to_1(value):
    with pytest.raises(errors.InvalidSetting, match="write 0 to 1"):
        app.traced_share({"OTEL_TRACES_SAMPLER_ARG": value})
