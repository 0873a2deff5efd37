"""Metrics have a bounded number of series, and each process serves its own."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from aiohttp import ClientSession

import duepoint
from duepoint import app, services, settings, telemetry
from duepoint.runs import outcome, run
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason
from duepoint.targets import target
from duepoint.targets.webhook import response
from duepoint.worker import results
from tests.support.redisserver import free_port

#: Metrics of the Prometheus client, which every process has.
USUAL = re.compile(r"(process|python)_")
_METRICS = ("Counter", "Gauge", "Histogram")


def test_the_first_namespaces_are_labels_and_the_others_share_one():
    namespaces = telemetry.Namespaces()
    namespaces.most = 2
    assert [namespaces.label(name) for name in ("a", "b", "c", "a", "d")] == [
        "a",
        "b",
        "_other",
        "a",
        "_other",
    ]


def test_no_namespace_is_a_label_where_none_may_be():
    namespaces = telemetry.Namespaces()
    namespaces.most = 0
    assert namespaces.label("a") == telemetry.OTHER_NAMESPACES


def test_every_metric_is_served_by_a_process():
    served = {
        family.name for registry in telemetry.processes.values() for family in registry.collect()
    }
    assert served == {family.name for family in telemetry.registry.collect()}


@pytest.mark.parametrize(
    ("process", "of_its_own", "of_others"),
    [
        ("operator", "duepoint_leader", ("duepoint_inflight", "duepoint_http_connections")),
        ("worker", "duepoint_inflight", ("duepoint_leader", "duepoint_http_connections")),
        ("api", "duepoint_http_connections", ("duepoint_leader", "duepoint_inflight")),
    ],
)
async def test_a_process_serves_what_it_fills(process, of_its_own, of_others, tmp_path):
    (key := tmp_path / "key").write_bytes(bytes(32))
    chosen = settings.read(
        settings.OperatorSettings,
        {},
        {
            "redis_url": "redis://127.0.0.1:1/0",
            "blob_key_file": str(key),
            "listen_address": "127.0.0.1",
            "http_port": str(port := free_port()),
        },
    )
    async with (
        app.serving(chosen, services.Health(), process),
        ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}/metrics") as answer,
    ):
        lines = (await answer.text()).splitlines()
    names = {line.split(" ")[0].partition("{")[0] for line in lines if not line.startswith("#")}
    assert of_its_own in names
    assert not names.intersection(of_others)
    assert "process_open_fds" in names


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        ("webhook_seconds", 300),  # the longest time limit of a request
        ("start_lateness_seconds", 86_400),
        ("status_staleness_seconds", 60),
        ("http_seconds", 600),
    ],
)
def test_the_buckets_of_a_histogram_reach_the_longest_time_that_is_measured(name, seconds):
    histogram = getattr(telemetry, name)
    histogram = histogram.labels("x") if name == "http_seconds" else histogram
    before = above(name, seconds)
    histogram.observe(seconds - 0.1)
    assert above(name, seconds) == before


def above(name: str, seconds: float) -> float:
    """Observations above so many seconds, as a reader of the buckets sees them."""
    (family,) = [one for one in telemetry.registry.collect() if one.name == f"duepoint_{name}"]
    buckets = [one for one in family.samples if one.name.endswith("_bucket")]
    reached = {float(one.labels["le"]): one.value for one in buckets}
    assert max(le for le in reached if le != float("inf")) >= seconds
    return reached[float("inf")] - reached[min(le for le in reached if le >= seconds)]


def test_no_line_of_the_log_carries_an_instant_as_a_number():
    """People read ``slot`` as RFC 3339, as annotations of Jobs have it."""
    package = Path(duepoint.__file__).parent
    calls = [
        (path, call)
        for path in package.rglob("*.py")
        if "telemetry" in (text := path.read_text()) and "logger" in text
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and ast.unparse(call.func).startswith("telemetry.logger.")
    ]
    assert len(calls) > 80
    named = [
        f"{path.relative_to(package)}:{call.lineno} {keyword.arg}"
        for path, call in calls
        for keyword in call.keywords
        if keyword.arg and keyword.arg.endswith("_us")
    ]
    assert named == []


def test_a_thousand_namespaces_make_no_more_series_than_there_may_be_namespaces(monkeypatch):
    """Each of them with runs, slots and dropped letters, counted as workers and operators do."""
    monkeypatch.setattr(telemetry.namespaces, "most", 5)
    monkeypatch.setattr(telemetry.namespaces, "_known", set())
    webhook = actions.Action(target=actions.WebhookAction(url="https://hooks.example.com"))
    now_us = 1_800_000_000_000_000
    before = _series()
    for number in range(1_000):
        namespace = f"tenant-{number}"
        missed = run.RunEvent(
            uid="u",
            namespace=namespace,
            name=f"schedule-{number}",
            generation=1,
            slot_us=now_us,
            trigger="Schedule",
            state=run.RunState.MISSED,
            reason=Reason.DEADLINE_EXCEEDED,
            at_us=now_us,
        )
        results.count_ended([missed])
        results.observe_batch(namespace, now_us, [now_us - 1_000 * number])
        target.count(namespace, webhook, outcome.Delivered(accepted_us=now_us))
        target.count_result(namespace, webhook.target, "Succeeded")
        label = telemetry.namespaces.label(namespace)
        telemetry.dead_letters_dropped_total.labels(label).inc()
    # five kinds of counters, of six namespaces, each with the instant of its creation
    assert 0 < _series() - before <= 5 * 6 * 2


def _series() -> int:
    return sum(len(family.samples) for family in telemetry.registry.collect())


def test_every_label_whose_values_users_choose_is_bounded():
    """Users name namespaces and make any number of them: a label not known here is to be judged."""
    tree = ast.parse(Path(telemetry.__file__).read_text())
    labels = {
        label.value
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") in _METRICS
        for given in call.args
        if isinstance(given, ast.List)
        for label in given.elts
    }
    bounded_by_namespaces = {"namespace"}
    words_of_ours = {
        *("target", "outcome", "reason", "result", "kind", "check", "version"),
        *("operation", "status", "verb", "resource", "code", "code_class"),
    }
    assert labels == bounded_by_namespaces | words_of_ours


def test_no_answer_of_a_receiver_makes_another_series_than_one_of_its_class():
    classes = {response.Answer(status=status).code_class for status in range(100, 1_000)}
    assert len(classes) == 9
