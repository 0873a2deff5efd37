"""Of libraries the product uses what they document, and nothing that they keep to themselves.

A private name may change in any release, without a line in its change log; where it is a border of
security, nothing would say that the border has moved. So no name with a leading underscore of a
library is imported, read, set or overridden, no function is rebuilt from its parts, and no module
of a library is changed.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import textwrap
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
#: Parts of functions from which another function can be made.
INNER_PARTS = frozenset(
    {"__code__", "__globals__", "__kwdefaults__", "__closure__", "FunctionType", "CodeType"}
)


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in DOCUMENTED


def is_own(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}


def root_of(node: ast.expr) -> str | None:
    """The name that a chain of attributes and calls begins with."""
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def imported(nodes: list[ast.AST]) -> Iterator[tuple[str, str]]:
    """Name in the module and full path of each import of a library."""
    for node in nodes:
        if isinstance(node, ast.Import):
            pairs = [(each.asname or each.name.split(".")[0], each.name) for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            pairs = [
                (each.asname or each.name, f"{node.module}.{each.name}") for each in node.names
            ]
        else:
            continue
        yield from (pair for pair in pairs if pair[1].split(".")[0] in LIBRARIES)


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
    """Every way into a library that a module takes."""
    nodes = list(ast.walk(ast.parse(code)))
    libraries, own, found = dict(imported(nodes)), set(own_privates(nodes)), []
    found += [path for path in libraries.values() if any(map(is_private, path.split(".")))]
    for node in nodes:
        name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
        is_library = isinstance(node, ast.Attribute) and root_of(node.value) in libraries
        is_bad = name in INNER_PARTS or (
            isinstance(node, ast.Call) and getattr(node.func, "id", "") in {"setattr", "delattr"}
        )
        if isinstance(node, ast.Attribute) and is_private(name):
            is_bad |= is_library or not (is_own(node) or name in own)
        if is_library and isinstance(node.ctx, ast.Store | ast.Del):
            is_bad |= isinstance(node.value, ast.Name | ast.Attribute)
        if is_bad:
            found.append(f"line {node.lineno}: {ast.unparse(node)}")
    return found


def test_the_product_keeps_to_what_libraries_document():
    found = {
        str(path.relative_to(PRODUCT)): ways
        for path in PRODUCT.rglob("*.py")
        if (ways := findings(path.read_text()))
    }
    assert found == {}


def library_bases(cls: type) -> list[type]:
    return [base for base in cls.__mro__ if base.__module__.split(".")[0] in LIBRARIES]


def attributes(cls: type) -> Iterator[ast.Attribute]:
    """What the class reads and sets of ``self`` and ``cls``; nothing where it has no source."""
    try:
        code = textwrap.dedent(inspect.getsource(cls))
    except (OSError, TypeError):
        return
    nodes = ast.walk(ast.parse(code))
    yield from (node for node in nodes if isinstance(node, ast.Attribute) and is_own(node))


def taken_over(cls: type) -> set[str]:
    """Private methods of a library that are overridden, and private values that it sets."""
    bases = library_bases(cls)
    methods = {name for base in bases for name in vars(base)} & set(vars(cls))
    values = {
        node.attr for base in bases for node in attributes(base) if isinstance(node.ctx, ast.Store)
    }
    overridden = {name for name in methods if callable(vars(cls)[name])}
    return {
        name
        for name in overridden | (values & {node.attr for node in attributes(cls)})
        if is_private(name)
    }


def test_no_private_method_or_value_of_a_library_is_taken_over():
    found = {}
    for module in pkgutil.walk_packages([str(PRODUCT)], "duepoint."):
        if module.name == "duepoint.__main__":
            continue
        for _, cls in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if cls.__module__ == module.name and library_bases(cls) and taken_over(cls):
                found[cls.__qualname__] = taken_over(cls)
    assert found == {}


@pytest.mark.parametrize(
    "code",
    [
        "import kopf._cogs.clients",
        "from aiokafka.client import _x",
        "import redis\nredis.asyncio._parsers",
        "histogram._sum.inc(1)",
        "self.histogram._sum",
        "made = f.__code__",
        "import types\nx = types.FunctionType",
        "import aiohttp.connector\naiohttp.connector.f = g",
        "setattr(client, 'bootstrap', ours)",
    ],
)
def test_each_way_into_a_library_is_found(code):
    assert findings(code)


def test_what_is_taken_over_from_a_library_is_found():
    import asyncio

    import structlog

    class Overriding(asyncio.SelectorEventLoop):
        def _run_once(self) -> None: ...

    class Inheriting(structlog.PrintLogger):
        def close(self) -> None:
            self._file.close()

    assert taken_over(Overriding) == {"_run_once"}
    assert taken_over(Inheriting) == {"_file"}
