"""What the pages, the chart and the command line say of Duepoint is what Duepoint does."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from duepoint import cli, telemetry

ROOT = Path(__file__).resolve().parents[3]
#: Everything that a person reads before trusting it; design notes and changes tell of the past.
_WHERE = (
    "*.md",
    "docs/*.md",
    "docs/[ehrt]*/*.md",
    "charts/duepoint/*.*",
    "charts/duepoint/templates/*",
    "crds/*.yaml",
    "examples/**/*.*",
    "gitops/*",
    "operator/duepoint/__init__.py",
    "operator/duepoint/cli/root.py",
    "Dockerfile",
    "mkdocs.yml",
    "pyproject.toml",
)
TEXTS = sorted(
    path
    for pattern in _WHERE
    for path in ROOT.glob(pattern)
    if path.is_file() and path.name != "CHANGELOG.md" and path.suffix != ".pyc"
)

#: Claims that do not hold: webhooks, Kafka records and entries elsewhere come at least once; there
#: is a dashboard.
UNTRUE = (
    r"never doubled", r"never twice", r"doubles nothing", r"loses and doubles",
    r"no command to replay", r"seven minutes", r"answer's first kilobyte", r"read the answer in",
    r"dependencies between runs, a user interface",
)  # fmt: skip


def name_of(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", TEXTS, ids=name_of)
def test_nothing_is_claimed_that_does_not_hold(path):
    text = " ".join(path.read_text().split())
    assert [claim for claim in UNTRUE if re.search(claim, text)] == []


@pytest.mark.parametrize(
    "name",
    ["README.md", "operator/duepoint/__init__.py", "crds/duepoint.dev_schedules.yaml"],
)
def test_what_comes_once_and_what_at_least_once_is_said_where_duepoint_is_introduced(name):
    text = " ".join((ROOT / name).read_text().split())
    assert "exactly once" in text
    assert "at least once" in text


def commands():
    """Each command line of the pages, as words, with where it stands."""
    for path in TEXTS:
        if path.suffix != ".md":
            continue
        text = path.read_text().replace("\\\n", " ")
        blocks = re.findall(r"^```[a-z]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        lines = [line for block in blocks for line in block.splitlines()]
        lines += re.findall(r"`(duepoint [^`]+)`", text)
        for line in lines:
            found = re.search(r"(?:^\$? ?|-- |/)duepoint (?P<rest>[a-z].*)$", line.strip())
            if found is not None:
                yield pytest.param(found["rest"], id=f"{name_of(path)}: {found['rest'][:60]}")


@pytest.mark.parametrize("line", list(commands()))
def test_every_command_on_the_pages_exists_with_its_options(line):
    words = shlex.split(re.split(r"\s+(?:#|\||>|2>|&&|<)", line)[0].replace("…", ""), posix=True)
    command: click.Command = cli.commands
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        word = words.pop(0).rstrip(",.;:")
        if "|" in word or word in ("...", "COMMAND"):
            return
        known = command.get_command(click.Context(command), word)
        assert known is not None, f"there is no {word} in {command.name}"
        command = known
    options = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    wanted = [
        word.partition("=")[0] for word in words if re.fullmatch(r"--?[a-z][a-z-]*(=.*)?", word)
    ]
    assert [option for option in wanted if option not in {*options, "--help"}] == []


def test_there_are_commands_on_the_pages():
    assert len(list(commands())) > 40


def test_every_metric_that_a_text_names_is_served():
    served = {
        family.name
        for family in telemetry.registry.collect()
        if family.name.startswith("duepoint_")
    }
    pattern = re.compile(r"\bduepoint_[a-z_]+[a-z]\b")
    named = {path: set(pattern.findall(path.read_text())) for path in TEXTS}
    assert any(named.values())
    for path, names in named.items():
        for name in names:
            bare = re.sub(r"_(total|bucket|count|sum)$", "", name)
            assert bare in served or path.suffix == ".py" or _is_part(name, served), (path, name)


def _is_part(name, served):
    """A text may name a family of metrics by its beginning."""
    return any(one.startswith(name) for one in served)


def test_every_class_of_answer_is_listed_with_the_metric():
    row = re.search(
        r"^\| `duepoint_webhook_attempts_total`.*$",
        (ROOT / "docs/reference/metrics.md").read_text(),
        re.MULTILINE,
    )
    assert row is not None
    targets = ROOT / "operator/duepoint/targets"
    used = {
        found
        for name in (
            "target.py",
            "webhook/credentials.py",
            "webhook/response.py",
            "secretaccess/references.py",
        )
        for found in re.findall(r'code_class(?:: str)? ?= ?"(\w+)"', (targets / name).read_text())
    }
    assert used == {"error", "timeout", "blocked", "secret", "refused"}
    assert [one for one in used if f"`{one}`" not in row[0]] == []


def test_the_install_line_of_the_chart_names_an_image_that_somebody_has_built():
    text = (ROOT / "charts/duepoint/README.md").read_text()
    block = " ".join(line for line in text.splitlines() if line.startswith("    "))
    assert "docker build" in block
    assert "--set image.repository=" in block
