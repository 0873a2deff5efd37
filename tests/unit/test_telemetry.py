"""Metrics have a bounded number of series, and each process serves its own."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from aiohttp import ClientSession

from duepoint import app, services, settings, telemetry
from duepoint.runs import run
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason
from duepoint.targets import outcome, target
from duepoint.worker import results
from tests.support.redisserver import free_port

_METRICS = ("Counter", "Gauge", "Histogram")


def test_the_first_namespaces_are_labels_and_the_others_share_one(monkeypatch):
    monkeypatch.setattr(telemetry, "_labelled", set())
    monkeypatch.setattr(telemetry, "_MOST_NAMESPACES", 2)
    assert [telemetry.namespace_label(name) for name in ("a", "b", "c", "a", "d")] == [
        "a",
        "b",
        "_other",
        "a",
        "_other",
    ]


@pytest.mark.parametrize(
    ("process", "of_its_own", "of_others"),
    [
        ("operator", "duepoint_leader", ("duepoint_inflight",)),
        ("worker", "duepoint_inflight", ("duepoint_leader",)),
        ("api", "duepoint_redis_up", ("duepoint_leader", "duepoint_inflight")),
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


def test_a_thousand_namespaces_make_no_more_series_than_there_may_be_namespaces(monkeypatch):
    """Each of them with runs, slots and dropped letters, counted as workers and operators do."""
    monkeypatch.setattr(telemetry, "_MOST_NAMESPACES", 5)
    monkeypatch.setattr(telemetry, "_labelled", set())
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
        label = telemetry.namespace_label(namespace)
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
