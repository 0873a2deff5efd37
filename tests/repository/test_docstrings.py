"""What a docstring says of arguments and attributes is said of ones that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(path for part in ("operator", "tools") for path in (ROOT / part).rglob("*.py"))
#: One entry of a section, which is indented by four; it may name several.
ENTRY = re.compile(r"    (\*{0,2}\w+(?:, \*{0,2}\w+)*):(?: |$)")


def named(text: str, section: str) -> Iterator[str]:
    """The names that a section of a docstring has entries for."""
    is_inside = False
    for line in text.splitlines():
        if line and not line.startswith(" "):
            is_inside = line == f"{section}:"
        elif is_inside and (entry := ENTRY.match(line)):
            yield from (name.strip("* ") for name in entry[1].split(","))


def parameters(made: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    given = made.args
    every = (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg)
    return {each.arg for each in every if each is not None}


def wrong(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        text = ast.get_docstring(node) or ""
        if isinstance(node, ast.ClassDef):
            makers = [
                one
                for one in node.body
                if isinstance(one, ast.FunctionDef) and one.name == "__init__"
            ]
            known = set().union(*map(parameters, makers))
            known |= {
                one.target.id
                for one in node.body
                if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
            }
        else:
            known = parameters(node)
        for name in named(text, "Args"):
            if name not in known:
                yield f"{path.relative_to(ROOT)}:{node.lineno}: {node.name} has no {name}"


def test_a_docstring_names_arguments_that_exist() -> None:
    assert [found for path in FILES for found in wrong(path)] == []


def test_an_argument_that_does_not_exist_is_found(tmp_path: Path) -> None:
    text = (
        "Do it.\n\nArgs:\n    there, gone: what\n        goes: on.\n\nRaises:\n    Odd: at times.\n"
    )
    assert list(named(text, "Args")) == ["there", "gone"]
