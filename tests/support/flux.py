"""An imitation of Flux that evaluates ``healthCheckExprs`` for an object.

It uses Flux's order: in progress, failed, current; if none is true, the object is in progress.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import celpy
import yaml

FILE = Path(__file__).resolve().parents[2] / "gitops" / "flux-kustomization.yaml"
ORDER = ("inProgress", "failed", "current")


def status(thing: dict[str, Any]) -> str:
    """Return ``inProgress``, ``failed`` or ``current``."""
    (chosen,) = (
        each
        for each in _expressions()
        if (each["apiVersion"], each["kind"]) == (thing["apiVersion"], thing["kind"])
    )
    for name in ORDER:
        if name in chosen and _evaluated(chosen[name], thing):
            return name
    return ORDER[0]


@functools.cache
def _expressions() -> list[dict[str, str]]:
    return yaml.load(FILE.read_text(), Loader=yaml.CSafeLoader)["spec"]["healthCheckExprs"]


@functools.cache
def _compiled(expression: str) -> celpy.Runner:
    environment = celpy.Environment()
    return environment.program(environment.compile(expression))


def _evaluated(expression: str, thing: dict[str, Any]) -> bool:
    result = _compiled(expression).evaluate(
        {key: celpy.json_to_cel(value) for key, value in thing.items()}
    )
    assert isinstance(result, celpy.celtypes.BoolType), result
    return bool(result)
