"""What the pages, the chart and the command line say of Duepoint is what Duepoint does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from duepoint import telemetry

ROOT = Path(__file__).resolve().parents[3]
#: Everything that a person reads before trusting it; design notes and changes tell of the past.
TEXTS = sorted(
    path
    for pattern in (
        *("*.md", "docs/*.md", "docs/[ehrt]*/*.md", "charts/duepoint/*.*", "crds/*.yaml"),
        *("charts/duepoint/files/*", "charts/duepoint/templates/*", "examples/**/*.*", "gitops/*"),
        *("operator/duepoint/__init__.py", "operator/duepoint/cli/root.py", "pyproject.toml"),
        *("Dockerfile", "mkdocs.yml"),
    )
    for path in ROOT.glob(pattern)
    if path.is_file() and path.name != "CHANGELOG.md" and path.suffix != ".pyc"
)
#: Claims that do not hold: webhooks, Kafka records and entries elsewhere come at least once; there
#: is a dashboard.
UNTRUE = re.compile(
    "never doubled|never twice|doubles nothing|loses and doubles|no command to replay"
    "|dependencies between runs, a user interface"
)


def test_nothing_is_claimed_that_does_not_hold() -> None:
    found = {
        str(path.relative_to(ROOT)): claims
        for path in TEXTS
        if (claims := UNTRUE.findall(" ".join(path.read_text().split())))
    }
    assert found == {}


@pytest.mark.parametrize(
    "name",
    ["README.md", "operator/duepoint/__init__.py", "crds/duepoint.dev_schedules.yaml"],
)
def test_what_comes_once_and_what_at_least_once_is_said_where_duepoint_is_introduced(name) -> None:
    text = " ".join((ROOT / name).read_text().split())
    assert "exactly once" in text
    assert "at least once" in text


def test_every_metric_that_a_text_names_is_served() -> None:
    served = {family.name for family in telemetry.registry.collect()}
    wrong = [
        (path.name, name)
        for path in TEXTS
        if path.suffix != ".py"
        for name in set(re.findall(r"\bduepoint_[a-z_]+[a-z]\b", path.read_text()))
        if not any(one.startswith(re.sub("_(total|bucket|count|sum)$", "", name)) for one in served)
    ]
    assert wrong == []
