"""What commands of the pages say is what their page shows; that they succeed, tests/e2e has."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from tests.support import pageblocks

MANIFEST = """\
apiVersion: duepoint.dev/v1alpha1
kind: Schedule
metadata: {{name: {name}, namespace: reports}}
spec: {{schedule: "{schedule}", webhook: {{url: "https://a.example/"}}}}
"""
CRONJOB = """\
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly, namespace: reports}
spec:
  schedule: "30 2 * * *"
  timeZone: Europe/Rome
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: a}]}}}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files that the pages speak of."""
    (tmp_path / "nightly.yaml").write_text(MANIFEST.format(name="nightly", schedule="0 * * * *"))
    (tmp_path / "schedules").mkdir()
    for name, schedule in {"ticks": "@every 6h", "report": "30 2 * * *"}.items():
        text = MANIFEST.format(name=name, schedule=schedule)
        (tmp_path / "schedules" / f"{name}.yaml").write_text(text)
    (tmp_path / "cronjobs.yaml").write_text(CRONJOB)
    return tmp_path


def shell(line: str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return pageblocks.run(line, variables={"PATH": path}, folder=folder, seconds=300)


def lines_of(page: str, needle: str) -> list[str]:
    """Commands of a page that contain the words, each in one line."""
    return [
        line.strip()
        for path, block in pageblocks.fenced()
        if path.stem == page
        for line in block.replace("\\\n", " ").splitlines()
        if needle in line
    ]


def test_slots_are_counted_as_the_page_counts_them(folder: Path) -> None:
    [line] = lines_of("simulate-an-outage", "ticks.yaml")
    asked, _, _ = line.partition(" | jq")

    found = [json.loads(each) for each in shell(asked, folder).splitlines()]

    assert {each["outcome"] for each in found} == {"Started", "Missed"}
    assert len(found) == 365 * 4 - 1  # the first, at --from itself, is the anchor


def test_the_outage_of_the_page_ends_as_its_table_says(folder: Path) -> None:
    line = lines_of("simulate-an-outage", "duepoint simulate -f nightly.yaml")[0]
    table = next(
        block for page, block in pageblocks.fenced("text") if block.startswith("scheduledTime ")
    )

    found = [json.loads(each) for each in shell(f"{line} -o json", folder).splitlines()]

    keys = ("scheduledTime", "outcome", "reason", "firedAt")
    ours = [[str(each[key]) for key in keys if each.get(key)] for each in found]
    assert ours == [row.split() for row in table.splitlines()[1:]]


def test_differences_of_a_cronjob_are_those_of_the_page(folder: Path) -> None:
    [line] = [
        each
        for each in lines_of("port-a-cronjob", "duepoint validate -f -")
        if each.startswith("kubectl get cronjobs")
    ]
    shown = next(
        block for page, block in pageblocks.fenced("text") if block.startswith("standard input: ")
    )

    ours = shell(line.replace("kubectl get cronjobs -A -o yaml", "cat cronjobs.yaml"), folder)

    # The first line names the next slot, and the others the next clock changes.
    assert without_dates(ours) == without_dates(shown)


def without_dates(text: str) -> list[str]:
    return [re.sub(r"\d{4}-\d\d-\d\d", "DATE", row).strip() for row in text.splitlines()[1:]]
