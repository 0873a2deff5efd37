"""What the pages point to exists: files, headings and make targets."""

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FOLDERS = [each for each in REPOSITORY.iterdir() if each.is_dir() and each.name[0] != "."]
PAGES = sorted(
    {*REPOSITORY.glob("*.md"), *(page for each in FOLDERS for page in each.rglob("*.md"))}
)
MAKEFILE = (REPOSITORY / "Makefile").read_text()
TARGETS = re.findall(r"^([a-z][a-z-]*%?):(?!=)", MAKEFILE, re.MULTILINE)


def anchors(page):
    """Ids of a page's headings, as GitHub and GitLab make them."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def is_there(page, target):
    path, _, anchor = target.partition("#")
    found = (page.parent / path).resolve() if path else page
    if not found.is_relative_to(REPOSITORY) or not found.exists():
        return False
    return not anchor or (found.is_file() and anchor in anchors(found))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_and_make_targets_exist(page):
    prose = FENCED.sub("", page.read_text())
    targets = re.findall(r"\]\(((?![a-z][a-z0-9+.-]*:)[^)\s]+)\)", prose)
    assert [target for target in targets if not is_there(page, target)] == []

    code = [block for _, block in FENCED.findall(page.read_text())]
    code += re.findall(r"`([^`\n]+)`", prose)
    named = {one for each in code for one in re.findall(r"(?:^|[\s(;])make ([a-z][a-z-]*)", each)}
    known = [re.compile(target.replace("%", "[a-z-]+")) for target in TARGETS]
    assert {one for one in named if not any(each.fullmatch(one) for each in known)} == set()
