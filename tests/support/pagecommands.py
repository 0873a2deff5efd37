"""The commands on the pages, and why some of them are not run.

A command block is what stands between two fences without a language, or with a shell's; output and
drawings are blocks of ``text``. A page says itself what is not run, in a comment before the block,
which a reader does not see:

    <!-- not run: tests/integration/chart/test_operating_pages.py does -->
    <!-- not run (kubectl logs; kubectl port-forward): no container runs in the test's cluster -->

The first is about the whole block, the second about commands that begin with these words. Where the
reason names a file of the tests, that test runs them.
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
        number: counted on its page, from 1.
        commands: those to run, in their order.
        left_out: command -> why it is not run.
        shown: the block as the page has it.
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
        """Files of tests that run what is left out here."""
        return _FILE_OF_TESTS.findall(" ".join(self.left_out.values()))


def blocks_of(page: Path) -> list[PageBlock]:
    """The command blocks of a page."""
    return list(_found(page))


def name_of(page: Path) -> str:
    """Folder and name of a page, without what is above."""
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
    """Whole commands of a block: continued lines, quotes over lines and here-documents are one.

    Of a transcript these are the lines behind ``$``.
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
    """Programs that are called, as far as they may be missing on a machine."""
    return {
        name for name in ("jq", "openssl", "curl") if re.search(rf"(?:^|[|&(]\s*){name} ", command)
    }


def python_of(page: Path) -> list[str]:
    """The blocks of Python."""
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
