"""Commands of helm on the pages: the chart takes every value that they set."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pytest
import yaml

from tests.integration.chart.helm import ROOT, Helm

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "howto").glob("*.md"))]
COMMAND = re.compile(r"^ *helm (?:install|upgrade) (?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
YAML = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: What the chart needs, if the page's reader gave it before.
BEFORE = {
    "redis": ("redis.existingSecret.name", "redis"),
    "blobKey": ("blobKey.existingSecret", "key"),
}
WHERE = re.compile(r"redis\.(url|existingSecret|development\.enabled)")


def commands() -> Iterator[object]:
    for page in PAGES:
        for number, command in enumerate(COMMAND.findall(page.read_text())):
            yield pytest.param(command, id=f"{page.stem}:{number}")


def settings(command: str) -> list[str]:
    """The options of a command that set values."""
    words = iter(shlex.split(command.replace("\\\n", " ")))
    found = []
    for word in words:
        option, mark, value = word.partition("=")
        if option in ("--set", "--set-string"):
            found += [option, value if mark else next(words)]
    return found


def rendered(helm: Helm, given: list[str], values: str = "{}") -> str:
    text = " ".join(given) + values
    extra = [] if WHERE.search(text) or "existingSecret" in values else [BEFORE["redis"]]
    extra += [] if "blobKey" in text else [BEFORE["blobKey"]]
    options = [f"--set={name}={value}" for name, value in extra]
    chart = str(ROOT / "charts" / "duepoint")
    return helm.run(
        "template", "duepoint", chart, "--namespace=duepoint-system", "--kube-version=v1.36.0",
        "--values=-", *options, *given, given=values,
    )  # fmt: skip


@pytest.mark.parametrize("command", list(commands()))
def test_the_chart_takes_what_a_command_sets(helm: Helm, command: str) -> None:
    assert "kind: Deployment" in rendered(helm, settings(command))


def test_the_chart_takes_the_values_of_the_application(helm: Helm) -> None:
    page = (ROOT / "docs/howto/install-with-gitops.md").read_text()
    [application] = [
        document
        for block in YAML.findall(page)
        for document in yaml.safe_load_all(block)
        if document["kind"] == "Application"
    ]
    source = application["spec"]["source"]

    assert (ROOT / source["path"] / "Chart.yaml").exists()
    text = rendered(helm, [], yaml.safe_dump(source["helm"]["valuesObject"]))
    assert "registry.example.com/duepoint" in text
    assert "kind: CustomResourceDefinition" not in text
