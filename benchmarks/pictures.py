"""``python -m benchmarks.pictures``: bars as SVG out of ``benchmarks/results/*.jsonl``.

One picture for each results file that holds rates, longest bar first, the value beside it and the
spread as a thin line. No library: an SVG is text. Pictures go to ``docs/reference/pictures``; what
is in them comes from the results files alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.sax import saxutils

_RESULTS = Path(__file__).parent / "results"
_PICTURES = Path(__file__).parents[1] / "docs" / "reference" / "pictures"
_UNITS = {"points/s", "firings/s", "jobs/s"}
_LEFT, _WIDTH, _ROW, _TOP = 380, 380, 26, 34


def main() -> int:
    _PICTURES.mkdir(parents=True, exist_ok=True)
    for path in sorted(_RESULTS.glob("*-queue-*.jsonl")):
        rows = [row for row in map(json.loads, path.read_text().splitlines()) if _is_rate(row)]
        if rows:
            target = _PICTURES / f"{path.stem}.svg"
            target.write_text(picture(path.stem, rows), encoding="utf-8")
            print(target.relative_to(_PICTURES.parents[2]))
    return 0


def _is_rate(row: dict[str, object]) -> bool:
    return row.get("unit") in _UNITS


def picture(title: str, rows: list[dict[str, object]]) -> str:
    """The SVG of some figures."""
    ordered = sorted(rows, key=_value, reverse=True)
    height = _TOP + _ROW * len(ordered) + 8
    most = max(map(_value, ordered))
    lines = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + 130}"'
            f' height="{height}" font-family="sans-serif" font-size="12">'
        ),
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="8" y="20" font-weight="bold">{saxutils.escape(title)}</text>',
        *(line for n, row in enumerate(ordered) for line in _bar(row, _TOP + n * _ROW, most)),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _bar(row: dict[str, object], top: int, most: float) -> Iterator[str]:
    name = saxutils.escape(str(row["figure"]))
    width = max(1.0, _value(row) / most * _WIDTH)
    colour = "#9aa5b1" if row["benchmark"] == "peers" and not name.startswith("ours") else "#2f6fab"
    yield f'<text x="{_LEFT - 8}" y="{top + 16}" text-anchor="end">{name}</text>'
    yield f'<rect x="{_LEFT}" y="{top + 4}" width="{width:.1f}" height="16" fill="{colour}"/>'
    spread = row.get("spread")
    if isinstance(spread, list):
        least, greatest = (_LEFT + min(one / most, 1.0) * _WIDTH for one in spread)
        yield f'<path d="M{least:.1f} {top + 12}H{greatest:.1f}" stroke="black"/>'
    told = f"{_value(row):,.0f} {row['unit']}"
    yield f'<text x="{_LEFT + width + 6:.1f}" y="{top + 16}">{told}</text>'


def _value(row: dict[str, object]) -> float:
    return float(str(row["value"]))


if __name__ == "__main__":
    sys.exit(main())
