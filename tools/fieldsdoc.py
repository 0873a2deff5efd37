"""The tables of fields in docs/reference, made from the model of each kind.

A page says where they stand: ``<!-- fields of Schedule: schedule..jitter, webhook. -->`` names the
kind and fields of its spec, the first one up to the second by two points (or to the last, ``..``),
and ``<!-- end of fields -->`` ends the table. A full stop at the end leaves out the fields below.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from duepoint.model import schemas
from duepoint.model.checks import KINDS

REFERENCE = Path(__file__).resolve().parents[1] / "docs" / "reference"
PAGES = [REFERENCE / f"{kind.lower()}.md" for kind in KINDS]
_TABLE = re.compile(r"(<!-- fields of (\w+): (.*?) -->\n).*?(<!-- end of fields -->)", re.DOTALL)
_FIELDS = re.compile(r"(?P<first>\w+)(?P<range>\.\.(?P<last>\w*))?(?P<top>\.)?")
#: The usual length limit, which tables leave out.
_USUAL_LENGTH = 253
#: Fields described elsewhere: templates by Kubernetes, fields of rows on the HTTP API's page.
_ELSEWHERE = ("jobTemplate", "inline")
_MOST_INT32 = 2**31 - 1


def page(path: Path) -> str:
    """Return the page with its tables made from the model."""
    named: set[str] = set()

    def table(found: re.Match[str]) -> str:
        spec = schemas.of(KINDS[found[2]])
        fields: list[str] = []
        for name in found[3].split(", "):
            match = _FIELDS.fullmatch(name)
            assert match is not None, name
            known = list(spec["properties"])
            last = match["last"] or (known[-1] if match["range"] else match["first"])
            some = known[known.index(match["first"]) : known.index(last) + 1]
            named.update(some)
            fields += [f"{one}{match['top'] or ''}" for one in some]
        rows = "\n".join(_rows(spec, fields))
        return f"{found[1]}\n| field | type | meaning |\n|---|---|---|\n{rows}\n\n{found[4]}"

    text = _TABLE.sub(table, path.read_text())
    for kind, model in KINDS.items():
        if path.stem == kind.lower() and (left := schemas.of(model)["properties"].keys() - named):
            raise SystemExit(f"{path.name} has no table with {', '.join(sorted(left))}")
    return text


def _rows(spec: dict[str, Any], names: list[str]) -> Iterator[str]:
    found = {name.rstrip("."): spec["properties"][name.rstrip(".")] for name in names}
    for name in (each.rstrip(".") for each in names if each.endswith(".")):
        found[name] = {"type": "object", "description": found[name].get("description", "")}
    chosen = {**spec, "properties": found}
    for name, field, is_required in fields_of(chosen, "spec."):
        meaning = field.get("description", "").replace("|", "\\|")
        if is_required:
            meaning = f"Required. {meaning}"
        if (default := field.get("default")) not in (None, {}):
            meaning += f" Default: `{str(default).lower() if default is False else default}`."
        yield f"| `{name}` | {type_of(field)} | {meaning} |"


def fields_of(schema: dict[str, Any], prefix: str) -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Yield path, schema and whether it is required, for each field outside of templates."""
    for name, field in schema["properties"].items():
        yield f"{prefix}{name}", field, name in schema.get("required", ())
        inner = field.get("items", field)
        # A reference to a Secret is one row.
        if name not in _ELSEWHERE and inner.get("properties", {}).keys() - {"name", "key"}:
            yield from fields_of(inner, f"{prefix}{name}{'' if inner is field else '[]'}.")


def type_of(field: dict[str, Any]) -> str:
    """Return the type of a field in words, with its bounds."""
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"] if value)
    kind = field.get("format", field.get("type", "any JSON"))
    if isinstance(kind, list):
        kind = " or ".join(one for one in kind if one != "null")
    if kind in {"integer", "int32", "int64"}:
        return f"integer{_between(field, 'minimum', 'maximum')}"
    if kind == "array":
        return f"list{_between(field, 'minItems', 'maxItems')}"
    if kind == "string":
        most = field.get("maxLength", 0)
        return f"text, up to {most}" if most > _USUAL_LENGTH else "text"
    if "x-kubernetes-int-or-string" in field:
        return "integer or text"
    return {"date-time": "time", "double": "number"}.get(kind, str(kind))


def _between(field: dict[str, Any], lower: str, upper: str) -> str:
    least, most = field.get(lower), field.get(upper)
    if most is None or most == _MOST_INT32:
        return "" if least is None else f" >= {least}"
    return f", up to {most}" if least is None else f" {least}-{most}"
