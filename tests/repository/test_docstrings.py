"""What a docstring says of arguments is said of ones that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = [path for part in ("operator", "tools") for path in (ROOT / part).rglob("*.py")]
ARGS = re.compile(r"^Args:\n((?:(?: .*)?\n?)*)", re.MULTILINE)
#: An entry is indented by four, and may name several.
ENTRY = re.compile(r"^    (\*{0,2}\w+(?:, \*{0,2}\w+)*):(?: |$)", re.MULTILINE)
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


def parameters(node: ast.AST) -> set[str]:
    """Of a function; of a class those it is made with."""
    if isinstance(node, FUNCTION):
        return {each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)}
    body = node.body if isinstance(node, ast.ClassDef) else []
    fields = [each.target for each in body if isinstance(each, ast.AnnAssign)]
    makers = [each for each in body if isinstance(each, FUNCTION) and each.name == "__init__"]
    names = {each.id for each in fields if isinstance(each, ast.Name)}
    return names.union(*map(parameters, makers))


def wrong(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (*FUNCTION, ast.ClassDef)):
            for section in ARGS.findall(ast.get_docstring(node) or ""):
                named = {
                    each.strip("* ")
                    for entry in ENTRY.findall(section)
                    for each in entry.split(",")
                }
                yield from (f"{node.name} has no {each}" for each in named - parameters(node))


def test_a_docstring_names_arguments_that_exist() -> None:
    found = {path: names for path in FILES if (names := list(wrong(path.read_text())))}
    assert found == {}


def test_an_argument_that_does_not_exist_is_found() -> None:
    docstring = "It.\n\n    Args:\n        b, c: so\n            d: on.\n    "
    assert list(wrong(f'class A:\n    """{docstring}"""\n    b: int\n')) == ["A has no c"]
