"""How much of the machine other guests used: the processors' time that the host gave away."""

from __future__ import annotations

from pathlib import Path
from typing import Self

_STAT = Path("/proc/stat")
#: The columns of the first line after its name; ``steal`` is the eighth (man proc_stat).
_STEAL, _COUNTED = 7, 8


class Stolen:
    """Counts from its beginning on."""

    def __init__(self, counters: tuple[int, int]) -> None:
        self._stolen, self._all = counters

    @classmethod
    def from_now(cls) -> Self:
        return cls(_counters())

    def percent(self) -> float:
        """The stolen share of the time since then, 0 to 100; 0 where no host tells."""
        stolen, everything = _counters()
        passed = everything - self._all
        return 100 * (stolen - self._stolen) / passed if passed else 0.0


def _counters() -> tuple[int, int]:
    try:
        ticks = [int(word) for word in _STAT.read_text().split("\n", 1)[0].split()[1:]]
    except OSError:
        return 0, 0
    return ticks[_STEAL], sum(ticks[:_COUNTED])
