"""Flux's side of ``healthCheckExprs``: which of them says what an object is.

Evaluated in Flux's order: in progress, failed, current; what none of them claims is in progress.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import celpy
import yaml

FILE = Path(__file__).resolve().parents[2] / "gitops" / "flux-kustomization.yaml"
ORDER = ("inProgress", "failed", "current")


def status(thing: dict[str, Any]) -> str:
    """``inProgress``, ``failed`` or ``current``."""
    (chosen,) = (
        each
        for each in yaml.safe_load(FILE.read_text())["spec"]["healthCheckExprs"]
        if (each["apiVersion"], each["kind"]) == (thing["apiVersion"], thing["kind"])
    )
    for name in ORDER:
        if name in chosen and _evaluated(chosen[name], thing):
            return name
    return ORDER[0]


def _evaluated(expression: str, thing: dict[str, Any]) -> bool:
    environment = celpy.Environment()
    program = environment.program(environment.compile(expression))
    result = program.evaluate({key: celpy.json_to_cel(value) for key, value in thing.items()})
    assert isinstance(result, celpy.celtypes.BoolType), result
    return bool(result)
