"""What fault points cost while no test uses them: CPU time of a worker with and without them.

``python -m benchmarks.faultpoints [PAIRS] [POINTS]``: processes in turn fire so many due webhooks
(answered in memory) and stream entries over a Valkey of their own; in every second one, ``await
faults.reach(...)`` is taken out of each module when it is imported. CPU time is the worker's own
and hardly depends on what else the machine does.
"""

from __future__ import annotations

import ast
import asyncio
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from types import CodeType, ModuleType


class _Without(ast.NodeTransformer):
    """Statements ``await faults.reach(...)`` become ``pass``."""

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        if ast.unparse(node).startswith("await faults.reach("):
            return ast.copy_location(ast.Pass(), node)
        return node


class _Loader(importlib.machinery.SourceFileLoader):
    def source_to_code(self, data, path, *, _optimize=-1) -> CodeType:  # type: ignore[no-untyped-def,override]
        tree = _Without().visit(ast.parse(data))
        return compile(tree, path, "exec", dont_inherit=True)

    def get_code(self, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith("duepoint."):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def main() -> None:
    """Print CPU time per firing with and without points, and what one point costs."""
    if os.environ.get("FAULTPOINTS_ROLE"):
        print(json.dumps(_measured(int(sys.argv[1]))))
        return
    pairs, points = (int(text) for text in (*sys.argv[1:], "5", "4000")[:2])
    found: dict[str, dict[str, list[float]]] = {}
    for number in range(2 * pairs):
        role = ("with", "without")[(number + number // 2) % 2]
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.faultpoints", str(points)],
            env={**os.environ, "FAULTPOINTS_ROLE": role},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        for kind, cpu_us in json.loads(done.stdout.splitlines()[-1]).items():
            found.setdefault(kind, {}).setdefault(role, []).append(cpu_us)
    for kind, by_role in found.items():
        medians = {role: statistics.median(values) for role, values in by_role.items()}
        spread = {role: f"{min(values):.1f}-{max(values):.1f}" for role, values in by_role.items()}
        change = (medians["with"] / medians["without"] - 1) * 100
        print(
            f"{kind}: {medians['with']:.1f} us CPU a firing with ({spread['with']}),"
            f" {medians['without']:.1f} without ({spread['without']}): {change:+.1f} %"
        )
    print(f"one point: {asyncio.run(_one_point_ns()):.0f} ns")


async def _one_point_ns() -> float:
    from duepoint import faults  # noqa: PLC0415 - after the choice of the role

    count, best = 200_000, float("inf")
    for _ in range(5):
        began = time.process_time()
        for _ in range(count):
            await faults.reach(faults.FaultPoint.BEFORE_ATTEMPT)
        best = min(best, time.process_time() - began)
    return best / count * 1e9


def _measured(count: int) -> dict[str, float]:
    if os.environ["FAULTPOINTS_ROLE"] == "without":
        sys.meta_path.insert(0, _Finder())
    from benchmarks import faultworker  # noqa: PLC0415 - after the choice of the role

    return asyncio.run(faultworker.measure(count))


if __name__ == "__main__":
    main()
