"""``make env``: what a shell needs to look at a development cluster."""

from __future__ import annotations

import argparse
import shlex

from tools.devcluster import __main__ as devcluster
from tools.devcluster.state import Record


def test_kubectl_and_duepoint_are_pointed_at_the_cluster(monkeypatch, capsys):
    record = Record(complete=True, kubeconfig="/a b/config", redis_url="redis://127.0.0.1:7/0")
    monkeypatch.setattr(devcluster, "_record", lambda: record)

    devcluster.env(argparse.Namespace())

    exports = dict(
        shlex.split(line)[1].split("=", 1) for line in capsys.readouterr().out.splitlines()
    )
    assert exports == {
        "KUBECONFIG": "/a b/config",
        "REDIS_URL": "redis://127.0.0.1:7/0",
        "DUEPOINT_REDIS_URL": "redis://127.0.0.1:7/0",
    }
