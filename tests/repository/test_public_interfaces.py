"""Of libraries the product uses what they document, and nothing that they keep to themselves.

A private name may change in any release, without a line in its change log; where it is a border of
security, nothing would say that the border has moved.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import duepoint

LIBRARIES = frozenset(
    (
        *("aiohappyeyeballs", "aiohttp", "aiokafka", "asyncio", "click", "hiredis", "httptools"),
        *("httpx2", "kopf", "kubernetes", "msgspec", "prometheus_client", "redis", "rich"),
        *("structlog", "uvloop", "yarl"),
    )
)
PRODUCT = Path(duepoint.__file__).parent
#: Documented in spite of their underscore; the type of hashlib's objects has no other name.
DOCUMENTED = frozenset({"_replace", "_exit", "_Hash"})


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in DOCUMENTED


def is_own(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}


def imported(node: ast.AST) -> Iterator[str]:
    """Full path of each library's name that a statement imports."""
    if isinstance(node, ast.Import):
        paths = [each.name for each in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        paths = [f"{node.module}.{each.name}" for each in node.names]
    else:
        return
    yield from (path for path in paths if path.split(".")[0] in LIBRARIES)


def own_privates(nodes: list[ast.AST]) -> Iterator[str]:
    """Private names that the module defines itself: on its classes, or as its own."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_own(node):
            yield node.attr


def findings(code: str) -> list[str]:
    """Every private name of a library that a module imports or reads."""
    nodes = list(ast.walk(ast.parse(code)))
    own = set(own_privates(nodes))
    found = [
        path
        for node in nodes
        for path in imported(node)
        if any(is_private(name) for name in path.split("."))
    ]
    return found + [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in nodes
        if isinstance(node, ast.Attribute) and is_private(node.attr)
        if not (is_own(node) or node.attr in own)
    ]


def test_the_product_keeps_to_what_libraries_document():
    found = {
        str(path.relative_to(PRODUCT)): ways
        for path in PRODUCT.rglob("*.py")
        if (ways := findings(path.read_text()))
    }
    assert found == {}


@pytest.mark.parametrize(
    "code",
    [
        "import kopf._cogs.clients",
        "from aiokafka.client import _x",
        "import redis\nredis.asyncio._parsers",
        "histogram._sum.inc(1)",
    ],
)
def test_each_way_into_a_library_is_found(code):
    assert findings(code)
