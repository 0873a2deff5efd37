"""An imitation of Argo CD that runs customisations: Lua 5.1 with the few functions it allows.

Without ``useOpenLibs`` a script sees the base functions, ``table``, ``require``, ``os.date`` and
``os.time``; there is no ``string``, not even as methods of a text. Argo CD passes on a script's
result as JSON, in which an empty table becomes a list.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lupa.lua51
import yaml

FILE = Path(__file__).resolve().parents[2] / "gitops" / "argocd-cm.yaml"
_PREFIX = "resource.customizations"
_SANDBOX = """
getmetatable("").__index = nil
local date, time = os.date, os.time
for name in pairs({string = 1, math = 1, io = 1, debug = 1, coroutine = 1, python = 1}) do
  _G[name] = nil
end
os = {date = date, time = time}
package.loaded.os = os
"""


def health(thing: dict[str, Any]) -> dict[str, Any]:
    """Return ``status`` and ``message`` as Argo CD shows them."""
    found = _run(_customisation("health", thing["kind"]), thing)
    assert isinstance(found, dict)
    return found


def actions(thing: dict[str, Any]) -> dict[str, Any]:
    """Return the actions that Argo CD offers for an object."""
    found = _run(_actions(thing)["discovery.lua"], thing)
    assert isinstance(found, dict)
    return found


def act(name: str, thing: dict[str, Any]) -> Any:
    """Return the result of an action: the changed object, or objects to create."""
    for definition in _actions(thing)["definitions"]:
        if definition["name"] == name:
            return _run(definition["action.lua"], thing)
    raise AssertionError(f"no action {name}")


def _actions(thing: dict[str, Any]) -> dict[str, Any]:
    found = yaml.load(_customisation("actions", thing["kind"]), Loader=yaml.CSafeLoader)
    assert isinstance(found, dict)
    return found


def _customisation(what: str, kind: str) -> str:
    data = yaml.load(FILE.read_text(), Loader=yaml.CSafeLoader)["data"]
    return str(data[f"{_PREFIX}.{what}.duepoint.dev_{kind}"])


def _run(script: str, thing: dict[str, Any]) -> Any:
    lua = lupa.lua51.LuaRuntime(unpack_returned_tuples=True)
    lua.execute(_SANDBOX)
    lua.globals().obj = lua.table_from(thing, recursive=True)
    return _plain(lua.execute(script))


def _plain(value: Any) -> Any:
    """Convert a Lua value as the JSON writer of Argo CD does."""
    if lupa.lua51.lua_type(value) != "table":
        return value
    keys = list(value.keys())
    if all(isinstance(key, int) for key in keys):
        return [_plain(value[key]) for key in sorted(keys)]
    return {key: _plain(value[key]) for key in keys}
