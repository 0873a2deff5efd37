"""What people see of the CRDs through kubectl, and the limits that the CRDs must keep."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.crds import kubeapi
from tests.integration.crds.conftest import CRDS, definition
from tests.integration.crds.manifests import ABSENT, a_schedule, a_schedule_run

KUBECTL = str(Path(sys.executable).with_name("kubectl"))
LAST_APPLIED_LIMIT = 262_144


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


def test_a_list_of_expressions_is_printed_in_the_same_column(
    printed: dict[str, dict[str, str]],
) -> None:
    assert "0 1 * * *" in printed["several"]["SCHEDULE"]


@pytest.mark.usefixtures("printed")
@pytest.mark.parametrize("word", ["schedules.duepoint.dev", "dps", "duepoint", "all"])
def test_every_name_and_the_category_find_it(kubeconfig: Path, namespace: str, word: str) -> None:
    assert "ran" in _kubectl(kubeconfig, "get", word, "-n", namespace, "-o", "name")


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


def test_kubectl_explain_tells_what_unset_means(api: kubeapi.KubeApi, kubeconfig: Path) -> None:
    assert api is not None, "the CRDs are installed"
    told = _kubectl(
        kubeconfig, "explain", "schedules.spec.jitter", "--api-version=duepoint.dev/v1alpha1"
    )
    assert "unset = 0" in told


@pytest.mark.parametrize("path", CRDS, ids=lambda path: path.stem)
def test_a_crd_fits_into_the_annotation_of_client_side_apply(path: Path) -> None:
    assert len(json.dumps(definition(path))) < LAST_APPLIED_LIMIT


def test_client_side_apply_takes_the_crds_within_the_cost_budget(
    api: kubeapi.KubeApi, kubeconfig: Path
) -> None:
    """The API server computes the cost of every rule when a CRD is applied; dry runs too."""
    assert api is not None, "the CRDs are installed"
    files = [part for path in CRDS for part in ("-f", str(path))]
    told = _kubectl(kubeconfig, "apply", "--dry-run=server", *files)
    assert told.count("(server dry run)") == len(CRDS)


@pytest.mark.parametrize("path", CRDS, ids=lambda path: path.stem)
def test_no_field_has_a_name_that_yaml_reads_as_a_boolean(path: Path) -> None:
    traps = {"on", "off", "yes", "no", "y", "n", "true", "false"}
    assert not {str(name).lower() for name in _field_names(definition(path))} & traps


def _field_names(node: object) -> set[object]:
    if isinstance(node, list):
        return {name for item in node for name in _field_names(item)}
    if not isinstance(node, dict):
        return set()
    own = set(node["properties"]) if isinstance(node.get("properties"), dict) else set()
    return own | {name for value in node.values() for name in _field_names(value)}
