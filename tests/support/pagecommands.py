"""The commands on the documentation's pages, and why tests do not run some of them.

A command block is the text between two fences without a language, or with a shell's; output and
drawings are blocks of ``text``. A comment before a block, which readers do not see, says what not
to run:

    <!-- not run: tests/integration/chart/test_operating_pages.py does -->
    <!-- not run (kubectl logs; kubectl port-forward): no container runs in the test's cluster -->

The first is about the whole block, the second about commands that begin with these words. If the
reason names a test file, that test runs them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    *(
        page
        for folder in ("tutorial", "howto", "reference", "explanation")
        for page in sorted((ROOT / "docs" / folder).glob("*.md"))
    ),
]
_BLOCK = re.compile(
    r"((?:^ *<!-- not run.*? -->\n)*)^( *)```(\w*)\n(.*?)^\2```$",
    re.MULTILINE | re.DOTALL,
)
_MARK = re.compile(r"<!-- not run(?: \(([^)]*)\))?: (.*?) -->")
_FILE_OF_TESTS = re.compile(r"tests/[\w/]+\.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageBlock:
    """A block with commands.

    Attributes:
        number: its number on the page, from 1.
        commands: those to run, in order.
        left_out: command -> why it is not run.
        shown: the block as it stands on the page.
    """

    page: Path
    number: int
    commands: tuple[str, ...]
    left_out: dict[str, str] = field(default_factory=dict)
    shown: str = ""

    @property
    def name(self) -> str:
        return f"{name_of(self.page)} {self.number}"

    @property
    def tests(self) -> list[str]:
        """Return the test files that run the commands left out here."""
        return _FILE_OF_TESTS.findall(" ".join(self.left_out.values()))


def blocks_of(page: Path) -> list[PageBlock]:
    """Return the command blocks of a page."""
    return list(_found(page))


def name_of(page: Path) -> str:
    """Return the name of a page with its folder, but no folders above that."""
    return page.stem if page.parent == ROOT else f"{page.parent.name}/{page.stem}"


def _found(page: Path) -> Iterator[PageBlock]:
    number = 0
    for marks, indent, language, text in _BLOCK.findall(page.read_text()):
        if language not in ("", "sh", "bash", "console"):
            continue
        shown = re.sub(f"^{indent}", "", text, flags=re.MULTILINE)
        whole = list(commands_of(shown))
        number += 1
        reasons = _MARK.findall(marks)
        left_out = {
            command: reason
            for command in whole
            for words, reason in reasons
            if not words or command.startswith(tuple(each.strip() for each in words.split(";")))
        }
        commands = tuple(command for command in whole if command not in left_out)
        yield PageBlock(page=page, number=number, commands=commands, left_out=left_out, shown=shown)


def commands_of(text: str) -> Iterator[str]:
    """Yield whole commands: continued lines, multi-line quotes and here-documents stay together.

    The commands of a transcript are the lines after ``$``.
    """
    lines = text.splitlines()
    if any(line.startswith("$ ") for line in lines):
        lines = [line[2:] for line in lines if line.startswith("$ ")]
    waiting: list[str] = []
    for line in lines:
        waiting.append(line)
        whole = "\n".join(waiting)
        if whole.strip() and _is_complete(whole):
            yield whole
            waiting = []
    if "\n".join(waiting).strip():
        yield "\n".join(waiting)


def _is_complete(text: str) -> bool:
    if text.endswith("\\"):
        return False
    if ends := re.search(r"<<-?'?(\w+)", text):
        return text.splitlines()[-1] == ends[1]
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return False
    return True


def programs_of(command: str) -> set[str]:
    """Return the programs that a command calls, as far as a machine may lack them."""
    return {
        name for name in ("jq", "openssl", "curl") if re.search(rf"(?:^|[|&(]\s*){name} ", command)
    }


def python_of(page: Path) -> list[str]:
    """Return the blocks of Python."""
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
