"""What the pages point to exists: files, headings, make targets; and their Schedules are valid."""

import json
import re
from pathlib import Path

import pytest
import yaml

from duepoint.schedules import spec

REPOSITORY = Path(__file__).resolve().parents[3]
OUTSIDE = re.compile(r"^[a-z][a-z0-9+.-]*:")
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def pages():
    """Every Markdown file of the repository; hidden folders (.venv, .git) are none of it."""
    folders = [each for each in REPOSITORY.iterdir() if each.is_dir() and each.name[0] != "."]
    found = [*REPOSITORY.glob("*.md"), *(page for each in folders for page in each.rglob("*.md"))]
    return sorted(str(page.relative_to(REPOSITORY)) for page in found)


def prose(text):
    return FENCED.sub("", text)


def code(text):
    """What stands in code fences and in backticks."""
    return [block for _, block in FENCED.findall(text)] + re.findall(r"`([^`\n]+)`", prose(text))


def anchors(page):
    """Ids of a page's headings, as GitHub and GitLab make them."""
    headings = re.findall(r"^#+ (.+)$", prose(page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(text):
    targets = re.findall(r"\]\(([^)\s]+)\)", prose(text))
    return [target for target in targets if not OUTSIDE.match(target)]


def is_there(page, target):
    path, _, anchor = target.partition("#")
    found = (page.parent / path).resolve() if path else page
    if not found.is_relative_to(REPOSITORY) or not found.exists():
        return False
    return not anchor or (found.is_file() and anchor in anchors(found))


@pytest.mark.parametrize("name", pages())
def test_links_lead_somewhere(name):
    page = REPOSITORY / name
    text = page.read_text()

    assert [target for target in links(text) if not is_there(page, target)] == []


def test_a_link_to_a_missing_file_or_heading_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(f"{__name__}.REPOSITORY", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("# One heading\n")

    assert is_there(page, "#one-heading")
    assert not is_there(page, "#another-heading")
    assert not is_there(page, "missing.md")


def make_targets():
    makefile = (REPOSITORY / "Makefile").read_text()
    return re.findall(r"^([a-z][a-z-]*%?):(?!=)", makefile, re.MULTILINE)


@pytest.mark.parametrize("name", pages())
def test_make_targets_exist(name):
    mentioned = {
        target
        for piece in code((REPOSITORY / name).read_text())
        for target in re.findall(r"(?:^|[\s(;])make ([a-z][a-z-]*)", piece)
    }
    known = [re.compile(target.replace("%", "[a-z]+")) for target in make_targets()]

    assert {one for one in mentioned if not any(each.fullmatch(one) for each in known)} == set()


def schedules():
    for name in pages():
        for index, (language, block) in enumerate(FENCED.findall((REPOSITORY / name).read_text())):
            if language == "yaml":
                for document in yaml.safe_load_all(block):
                    if isinstance(document, dict) and document.get("kind") == "Schedule":
                        yield pytest.param(document, id=f"{name}:{index}")


@pytest.mark.parametrize("document", list(schedules()))
def test_schedules_on_the_pages_are_accepted(document):
    assert document["apiVersion"] == "duepoint.dev/v1alpha1"

    accepted = spec.parse(
        json.dumps(document["spec"]).encode(),
        namespace="default",
        name=document["metadata"]["name"],
        uid="7e2f6a52-6f55-4f4f-9a54-0d1b5b1f5c11",
        generation=1,
        created_us=1_795_000_000_000_000,
    )

    assert accepted.rule.timing.schedules
