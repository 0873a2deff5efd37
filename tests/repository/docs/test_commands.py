"""Commands on the pages exist, print what is shown, and are run by a test or say why not."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from duepoint import cli
from tests.support import pagecommands

ROOT = Path(__file__).resolve().parents[3]
REFERENCE = ROOT / "docs" / "reference"
PAGES = sorted({*pagecommands.PAGES, *ROOT.glob("docs/*.md"), ROOT / "charts/duepoint/README.md"})
EXAMPLES = re.findall(
    r"^```\n\$ duepoint (.*)\n((?:.*\n)*?)```$",
    (REFERENCE / "command-line.md").read_text(),
    re.MULTILINE,
)
#: A mark with its words, the block that it stands before, and nothing between them.
MARK = re.compile(
    r"^ *<!-- not run(?: \(([^)]*)\))?: .+ -->\n(?: *<!-- .* -->\n)* *```", re.MULTILINE
)


def lines() -> Iterator[str]:
    """Each command line of the pages, without the name of the program."""
    for path in PAGES:
        text = path.read_text().replace("\\\n", " ")
        blocks = re.findall(r"^```[a-z]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        found = [line for block in blocks for line in block.splitlines()]
        for line in [*found, *re.findall(r"`(duepoint [^`]+)`", text)]:
            if matched := re.search(r"(?:^\$? ?|-- |/)duepoint ([a-z].*)$", line.strip()):
                yield pytest.param(matched[1], id=f"{path.stem}: {matched[1][:60]}")


def options(command: click.Command) -> set[str]:
    return {name for each in command.params for name in (*each.opts, *each.secondary_opts)}


@pytest.mark.parametrize("line", list(lines()))
def test_every_command_on_the_pages_exists_with_its_options(line: str) -> None:
    words = shlex.split(re.split(r"\s+(?:#|\||>|2>|&&|<)", line)[0].replace("…", ""), posix=True)
    command: click.Command = cli.commands
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        word = words.pop(0).rstrip(",.;:")
        if "|" in word or word in ("...", "COMMAND"):
            return
        known = command.get_command(click.Context(command), word)
        assert known is not None, f"there is no {word} in {command.name}"
        command = known
    if "ignore_unknown_options" in command.context_settings:
        return  # the others are those of another program
    wanted = [
        word.partition("=")[0] for word in words if re.fullmatch(r"--?[a-z][a-z-]*(=.*)?", word)
    ]
    assert [option for option in wanted if option not in {*options(command), "--help"}] == []


@pytest.mark.parametrize(("arguments", "shown"), EXAMPLES)
def test_examples_are_what_the_command_prints(arguments: str, shown: str) -> None:
    assert CliRunner().invoke(cli.commands, shlex.split(arguments)).output == shown


@pytest.mark.parametrize("page", pagecommands.PAGES, ids=pagecommands.name_of)
def test_every_command_of_a_page_is_run_by_a_test_or_says_why_not(page: Path) -> None:
    blocks = pagecommands.blocks_of(page)
    marks = MARK.findall(page.read_text())
    assert page.read_text().count("<!-- not run") == len(marks)
    assert len(marks) == sum(bool(block.left_out) for block in blocks)
    for block in blocks:
        assert block.commands or block.left_out, block.name
        for file in block.tests:
            text = (pagecommands.ROOT / file).read_text()
            assert page.stem in text or f'"{page.parent.name}"' in text, (block.name, file)
