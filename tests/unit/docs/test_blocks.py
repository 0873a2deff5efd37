"""Blocks of the pages that need no server do what the page says: manifests, values, commands."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner

from duepoint import cli

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("[ehrt]*/*.md"))]
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
VALUES = json.loads((ROOT / "charts/duepoint/values.schema.json").read_text())
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


def blocks(language: str) -> Iterator[tuple[Path, str]]:
    for page in PAGES:
        for indent, word, text in BLOCK.findall(page.read_text()):
            if word == language:
                yield page, re.sub(f"^{indent}", "", text, flags=re.MULTILINE)


def documents() -> Iterator[tuple[str, dict[str, Any]]]:
    for page, text in blocks("yaml"):
        for document in yaml.safe_load_all(text):
            if isinstance(document, dict):
                yield page.stem, document


MANIFESTS = [
    pytest.param(document, id=f"{page}: {document['kind']}")
    for page, document in documents()
    if str(document.get("apiVersion")).startswith("duepoint.dev/")
]
#: A part of a spec, shown alone.
PARTS = [
    pytest.param(document, id=f"{page}: {next(iter(document))}")
    for page, document in documents()
    if document.keys() <= {"signing", "stream", "kafka"}
]
#: Values of the chart.
CHOSEN = [
    pytest.param(document, id=f"{page}: {' '.join(document)}")
    for page, document in documents()
    if "kind" not in document and document.keys() <= VALUES["properties"].keys()
]


def is_valid(document: dict[str, Any]) -> None:
    shown = CliRunner().invoke(cli.commands, ["validate", "-"], input=json.dumps(document))
    assert shown.exit_code == 0, shown.output


@pytest.mark.parametrize("document", MANIFESTS)
def test_a_manifest_is_valid(document: dict[str, Any]) -> None:
    is_valid(document)


@pytest.mark.parametrize("part", PARTS)
def test_a_part_of_a_spec_is_valid_where_it_belongs(part: dict[str, Any]) -> None:
    spec = part if "signing" not in part else {"webhook": {"url": "https://a.example/", **part}}
    is_valid(yaml.safe_load(MANIFEST.format(name="a", schedule="@hourly")) | {
        "spec": {"schedule": "@hourly", **spec}
    })  # fmt: skip


@pytest.mark.parametrize("values", CHOSEN)
def test_values_are_ones_that_the_chart_has(values: dict[str, Any]) -> None:
    jsonschema.Draft7Validator(VALUES).validate(values)


def test_there_are_blocks_of_each_sort() -> None:
    assert len(MANIFESTS) > 15
    assert len(PARTS) >= 3
    assert len(CHOSEN) >= 5


# -- commands, run by a shell as a person types them ---------------------------------------------


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
    done = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", line],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, (line, done.stdout, done.stderr)
    return done.stdout


def lines_of(page: str, needle: str) -> list[str]:
    """Commands of a page that contain the words, each in one line."""
    text = next(each for each in PAGES if each.stem == page).read_text().replace("\\\n", " ")
    return [
        line.strip()
        for _, _, block in BLOCK.findall(text)
        for line in block.splitlines()
        if needle in line
    ]


@pytest.mark.parametrize(
    ("page", "needle"),
    [
        ("simulate-an-outage", "duepoint simulate -f nightly.yaml"),
        ("spread-the-load", "duepoint forecast -R"),
        ("command-line", "duepoint forecast schedules/"),
        ("command-line", "duepoint import cronjob -f"),
        ("very-many-schedules", "duepoint explain"),
        ("upgrade", "duepoint validate"),
    ],
)
def test_a_command_without_a_server_does_its_work(page: str, needle: str, folder: Path) -> None:
    found = lines_of(page, needle)
    assert found
    for line in found:
        shell(line, folder)


def test_slots_are_counted_as_the_page_counts_them(folder: Path) -> None:
    [line] = lines_of("simulate-an-outage", "ticks.yaml")
    asked, _, _ = line.partition(" | jq")

    found = [json.loads(each) for each in shell(asked, folder).splitlines()]

    assert {each["outcome"] for each in found} == {"Started", "Missed"}
    assert len(found) == 365 * 4 - 1  # the first, at --from itself, is the anchor


def test_the_outage_of_the_page_ends_as_its_table_says(folder: Path) -> None:
    line = lines_of("simulate-an-outage", "duepoint simulate -f nightly.yaml")[0]
    table = next(block for page, block in blocks("") if block.startswith("scheduledTime "))

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
    shown = next(block for page, block in blocks("") if block.startswith("standard input: "))

    ours = shell(line.replace("kubectl get cronjobs -A -o yaml", "cat cronjobs.yaml"), folder)

    # The first line names the next slot, and the others the next clock changes.
    assert without_dates(ours) == without_dates(shown)


def without_dates(text: str) -> list[str]:
    return [re.sub(r"\d{4}-\d\d-\d\d", "DATE", row).strip() for row in text.splitlines()[1:]]
