"""What a page says is not run is there, has a reason, and is run by the test that it names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import pagecommands

#: A mark with its words, the block that it stands before, and nothing between them.
MARK = re.compile(
    r"^ *<!-- not run(?: \(([^)]*)\))?: .+ -->\n(?: *<!-- .* -->\n)* *```", re.MULTILINE
)


def test_here_documents_quotes_and_continued_lines_belong_to_their_command() -> None:
    text = (
        "a 'x\ny' | b\nkubectl create -f - <<YAML\nkind: A\nYAML\nduepoint set \\\n  get  # why\n"
    )

    assert list(pagecommands.commands_of(text)) == [
        "a 'x\ny' | b",
        "kubectl create -f - <<YAML\nkind: A\nYAML",
        "duepoint set \\\n  get  # why",
    ]


def test_of_a_transcript_the_commands_count() -> None:
    text = "$ kubectl get schedules\nNAME   AGE\n$ duepoint version\n0.1.0\n"

    assert list(pagecommands.commands_of(text)) == ["kubectl get schedules", "duepoint version"]


def test_a_mark_leaves_out_what_it_names_and_nothing_else(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```yaml\nkind: A\n```\n\n<!-- not run (kubectl logs; make): no container -->\n"
        "```\nkubectl get pods\nkubectl logs a\nmake down\n```\n"
    )

    [block] = pagecommands.blocks_of(page)

    assert block.commands == ("kubectl get pods",)
    assert block.left_out == {"kubectl logs a": "no container", "make down": "no container"}


@pytest.mark.parametrize("page", pagecommands.PAGES, ids=pagecommands.name_of)
def test_no_page_needs_openssl_which_continuous_integration_hides(page: Path) -> None:
    commands = [each for block in pagecommands.blocks_of(page) for each in block.commands]

    assert [each for each in commands if "openssl" in each] == []


@pytest.mark.parametrize("page", pagecommands.PAGES, ids=pagecommands.name_of)
def test_every_mark_of_a_page_leaves_something_out(page: Path) -> None:
    blocks = pagecommands.blocks_of(page)
    text = page.read_text()

    assert text.count("<!-- not run") == len(MARK.findall(text))
    assert len(MARK.findall(text)) == sum(bool(block.left_out) for block in blocks)
    for block in blocks:
        for file in block.tests:
            text = (pagecommands.ROOT / file).read_text()
            assert page.stem in text or f'"{page.parent.name}"' in text, (block.name, file)


@pytest.mark.parametrize("page", pagecommands.PAGES, ids=pagecommands.name_of)
def test_every_command_of_a_page_is_run_or_says_why_not(page: Path) -> None:
    for block in pagecommands.blocks_of(page):
        assert block.commands or block.left_out, block.name


def test_there_are_twenty_tasks_of_at_most_two_commands() -> None:
    [page] = [page for page in pagecommands.PAGES if page.stem == "twenty-tasks"]
    blocks = pagecommands.blocks_of(page)

    assert len(blocks) == 20
    assert max(len(block.commands) for block in blocks) <= 2


def test_the_python_of_every_page_is_run_by_a_test() -> None:
    tests = [
        "tests/e2e/test_page_commands.py",
        "tests/process/test_verify_page.py",
        "tests/repository/docs/test_page_python.py",
    ]
    text = "".join((pagecommands.ROOT / test).read_text() for test in tests)
    pages = [page for page in pagecommands.PAGES if pagecommands.python_of(page)]

    assert len(pages) >= 4
    assert [page.name for page in pages if page.name not in text] == []
