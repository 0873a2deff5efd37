"""What people see of the CRDs through kubectl, and the limits that the CRDs must keep."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.crds import kubeapi
from tests.integration.crds.conftest import CRDS, definitions
from tests.integration.crds.manifests import ABSENT, a_schedule, a_schedule_run

KUBECTL = str(Path(sys.executable).with_name("kubectl"))


def _kubectl(kubeconfig: Path, *arguments: str) -> str:
    done = subprocess.run(
        [KUBECTL, *arguments],
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _table(text: str) -> list[dict[str, str]]:
    """Rows of a kubectl table by column, cut where the header's words begin."""
    header, *lines = text.splitlines()
    names = header.split()
    starts = [header.index(name) for name in names]
    ends = [*starts[1:], None]
    return [
        {
            name: line[start:end].strip()
            for name, start, end in zip(names, starts, ends, strict=True)
        }
        for line in lines
    ]


@pytest.fixture(scope="module")
def printed(api: kubeapi.KubeApi, namespace: str, kubeconfig: Path) -> dict[str, dict[str, str]]:
    """Wide rows of a Schedule that has run and of one with a list, by name."""
    ran = api.create(a_schedule("ran", namespace=namespace, timeZone="Europe/Rome")).body
    several = a_schedule(
        "several", namespace=namespace, schedule=ABSENT, schedules=["0 1 * * *", "0 2 * * *"]
    )
    assert api.create(several).ok
    status = {
        "observedGeneration": 1,
        "nextScheduleTime": "2030-01-01T00:00:00Z",
        "lastScheduleTime": "2026-01-01T00:00:00Z",
        "lastRun": {"outcome": "Succeeded", "startTime": "2026-01-01T00:00:00Z"},
        "activeCount": 2,
        "target": "Stream ticks",
        "runs": {"missed": 3},
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
                "message": "armed",
            }
        ],
    }
    assert api.merge(kubeapi.location(ran) + "/status", {"status": status}).ok
    rows = _table(_kubectl(kubeconfig, "get", "sched", "-o", "wide", "-n", namespace))
    return {row["NAME"]: row for row in rows}


def test_kubectl_get_tells_how_a_schedule_stands(printed: dict[str, dict[str, str]]) -> None:
    row = dict(printed["ran"])
    assert row.pop("AGE")
    assert row.pop("LAST").endswith("d")
    assert row == {
        "NAME": "ran",
        "SCHEDULE": "*/5 * * * *",
        "SUSPEND": "false",
        "NEXT": "2030-01-01T00:00:00Z",
        "RESULT": "Succeeded",
        "READY": "True",
        "FAILING": "",
        "TIMEZONE": "Europe/Rome",
        "ACTIVE": "2",
        "TARGET": "Stream ticks",
        "MISSED": "3",
        "MESSAGE": "armed",
    }


def test_kubectl_get_tells_how_a_run_stands(
    api: kubeapi.KubeApi, namespace: str, kubeconfig: Path
) -> None:
    run = api.create(a_schedule_run("now", namespace=namespace)).body
    status = {
        "observedGeneration": 1,
        "runs": {"planned": 1, "succeeded": 1, "failed": 0},
        "conditions": [
            {"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        ],
    }
    assert api.merge(kubeapi.location(run) + "/status", {"status": status}).ok
    [row] = _table(_kubectl(kubeconfig, "get", "srun", "-n", namespace))
    assert row.pop("AGE")
    assert row == {
        "NAME": "now",
        "SCHEDULE": "nightly",
        "PLANNED": "1",
        "SUCCEEDED": "1",
        "FAILED": "0",
        "COMPLETE": "True",
    }


def test_client_side_apply_takes_the_crds_within_the_cost_budget(
    api: kubeapi.KubeApi, kubeconfig: Path
) -> None:
    """The API server computes the cost of every rule when a CRD is applied; dry runs too."""
    assert api is not None, "the CRDs are installed"
    told = _kubectl(kubeconfig, "apply", "--dry-run=server", "-f", str(CRDS))
    assert told.count("(server dry run)") == len(definitions())
