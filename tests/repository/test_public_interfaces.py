"""Of libraries the product uses what they document, and nothing that they keep to themselves.

A private name may change in any release, without a line in its change log; where it is a border of
security, nothing would say that the border has moved. So no name with a leading underscore of a
library is imported, read, set or overridden, no function is rebuilt from its parts, and no module
of a library is changed.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import duepoint

LIBRARIES = frozenset(
    {
        *(
            "aiohappyeyeballs",
            "aiohttp",
            "aiokafka",
            "click",
            "hiredis",
            "httptools",
            "httpx2",
            "kopf",
        ),
        *("kubernetes", "msgspec", "prometheus_client", "redis", "rich", "structlog", "uvloop"),
        *("yarl", "asyncio"),
    }
)
PRODUCT = Path(duepoint.__file__).parent
#: Documented in spite of their underscore.
DOCUMENTED = frozenset({"_replace", "_exit"})
#: Parts of functions from which another function can be made.
INNER_PARTS = frozenset(
    {"__code__", "__globals__", "__kwdefaults__", "__closure__", "FunctionType", "CodeType"}
)


#: Text without which no rule finds anything in a module: an import of a library, a private name
#: of something else than ``self`` or ``cls``, and the names that the rules know.
_SUSPICIOUS = re.compile(
    rf"^\s*(?:from|import) +(?:{'|'.join(sorted(LIBRARIES))})\b"
    r"|(?<!\bself)(?<!\bcls)\._[a-z]"
    rf"|\b(?:setattr|delattr|{'|'.join(sorted(INNER_PARTS))})\b",
    re.MULTILINE,
)
#: What the rules look at, of a module, in the order of ``ast.walk``.
Nodes = list[ast.AST]
_LOOKED_AT = (
    *(ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef),
    *(ast.AnnAssign, ast.Attribute, ast.Call, ast.Name),
)


@functools.cache
def modules() -> tuple[tuple[str, Nodes], ...]:
    """Every module in which a rule may find something, parsed and walked once for all rules."""
    texts = {str(path.relative_to(PRODUCT)): path.read_text() for path in PRODUCT.rglob("*.py")}
    return tuple(
        (name, nodes_of(text)) for name, text in sorted(texts.items()) if _SUSPICIOUS.search(text)
    )


def nodes_of(code: str) -> Nodes:
    return [node for node in ast.walk(ast.parse(code)) if isinstance(node, _LOOKED_AT)]


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in DOCUMENTED


def private_imports(nodes: Nodes) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            paths = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            paths = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for path in paths:
            parts = path.split(".")
            if parts[0] in LIBRARIES and any(map(is_private, parts)):
                yield f"line {node.lineno}: imports {path}"


def library_names(nodes: Nodes) -> dict[str, str]:
    """Names of a module that stand for a library, or for something in it."""
    found = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name.split(".")[0]] = alias.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                found[alias.asname or alias.name] = node.module.split(".")[0]
    return {name: library for name, library in found.items() if library in LIBRARIES}


def root_of(node: ast.expr) -> str | None:
    """The name that a chain of attributes and calls begins with."""
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def is_own(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}


def own_privates(nodes: Nodes) -> set[str]:
    """Private names that the module defines itself: on its classes, or as its own."""
    names = set()
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_own(node):
            names.add(node.attr)
    return names


def private_attributes(nodes: Nodes) -> Iterator[str]:
    """Also on values, whose type is not known here: unless the module defines such a name."""
    libraries, own = library_names(nodes), own_privates(nodes)
    for node in nodes:
        if not (isinstance(node, ast.Attribute) and is_private(node.attr)):
            continue
        root = root_of(node.value)
        if root in libraries or not (is_own(node) or node.attr in own):
            yield f"line {node.lineno}: uses {ast.unparse(node)}"


def rebuilt_functions(nodes: Nodes) -> Iterator[str]:
    for node in nodes:
        name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
        if name in INNER_PARTS:
            yield f"line {node.lineno}: takes a function apart by {name}"


def patched_libraries(nodes: Nodes) -> Iterator[str]:
    libraries = library_names(nodes)
    for node in nodes:
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store | ast.Del)
            and isinstance(node.value, ast.Name | ast.Attribute)
            and root_of(node) in libraries
        ):
            yield f"line {node.lineno}: sets {ast.unparse(node)}"
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in {"setattr", "delattr"}:
            yield f"line {node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize(
    "rule", [private_imports, private_attributes, rebuilt_functions, patched_libraries]
)
def test_the_product_keeps_to_what_libraries_document(rule):
    found = [f"{name} {finding}" for name, nodes in modules() for finding in rule(nodes)]
    assert not found, "\n".join(found)


@functools.cache
def derived_classes() -> tuple[type, ...]:
    """The product's classes that inherit from one of a library."""
    found = []
    for module in pkgutil.walk_packages([str(PRODUCT)], "duepoint."):
        if module.name == "duepoint.__main__":
            continue
        for _, cls in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if cls.__module__ == module.name and library_bases(cls):
                found.append(cls)
    return tuple(found)


def test_no_private_method_of_a_library_is_overridden():
    found = [f"{cls.__qualname__}.{name}" for cls in derived_classes() for name in overridden(cls)]
    assert found == []


def test_no_private_value_that_a_library_keeps_in_our_object_is_used():
    found = [f"{cls.__qualname__}.{name}" for cls in derived_classes() for name in inherited(cls)]
    assert found == []


def library_bases(cls: type) -> list[type]:
    return [base for base in cls.__mro__ if base.__module__.split(".")[0] in LIBRARIES]


def overridden(cls: type) -> list[str]:
    return [
        name
        for name, value in vars(cls).items()
        if is_private(name)
        and callable(value)
        and any(name in vars(base) for base in library_bases(cls))
    ]


def own_attributes(cls: type) -> Iterator[ast.Attribute]:
    """What the class reads and sets of ``self`` and ``cls``; nothing where it has no source."""
    try:
        code = textwrap.dedent(inspect.getsource(cls))
    except (OSError, TypeError):
        return
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Attribute) and is_own(node):
            yield node


def inherited(cls: type) -> list[str]:
    """Private values that a library's constructor or methods set, and the class uses."""
    theirs = {
        node.attr
        for base in library_bases(cls)
        for node in own_attributes(base)
        if isinstance(node.ctx, ast.Store)
    }
    ours = {node.attr for node in own_attributes(cls)}
    return sorted(filter(is_private, theirs & ours))


@pytest.mark.parametrize(
    ("code", "rule"),
    [
        ("import kopf._cogs.clients", private_imports),
        ("from aiokafka.client import _x", private_imports),
        ("import redis\nredis.asyncio._parsers", private_attributes),
        ("histogram._sum.inc(1)", private_attributes),
        ("self.histogram._sum", private_attributes),
        ("made = f.__code__", rebuilt_functions),
        ("import types\nx = types.FunctionType", rebuilt_functions),
        ("import aiohttp.connector\naiohttp.connector.f = g", patched_libraries),
        ("setattr(client, 'bootstrap', ours)", patched_libraries),
    ],
)
def test_each_way_into_a_library_is_found(code, rule):
    assert _SUSPICIOUS.search(code)
    assert list(rule(nodes_of(code)))


def test_an_overridden_private_method_is_found():
    import asyncio

    class Ours(asyncio.SelectorEventLoop):
        def _run_once(self) -> None: ...

    assert overridden(Ours) == ["_run_once"]


def test_an_inherited_private_value_is_found():
    import structlog

    class Ours(structlog.PrintLogger):
        def close(self) -> None:
            self._file.close()

    assert inherited(Ours) == ["_file"]
