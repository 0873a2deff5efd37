"""Which zone somebody probably meant: a hint for a name that the IANA database does not have.

Most wrong names are right ones in other letters, a city without its continent, an offset, an
abbreviation (which several places share, so one is named as an example), or a slip of the finger.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

#: Abbreviations that are no zone, and the place that most people mean.
_ABBREVIATIONS = {
    **dict.fromkeys(("et", "edt"), "America/New_York"),
    **dict.fromkeys(("ct", "cst", "cdt"), "America/Chicago"),
    **dict.fromkeys(("mt", "mdt"), "America/Denver"),
    **dict.fromkeys(("pt", "pst", "pdt"), "America/Los_Angeles"),
    "bst": "Europe/London",
    "cest": "Europe/Berlin",
    "eest": "Europe/Helsinki",
    "west": "Europe/Lisbon",
    "msk": "Europe/Moscow",
    "ist": "Asia/Kolkata",  # codespell:ignore ist
    "sgt": "Asia/Singapore",
    "hkt": "Asia/Hong_Kong",
    "jst": "Asia/Tokyo",
    "kst": "Asia/Seoul",
    **dict.fromkeys(("aest", "aedt"), "Australia/Sydney"),
    **dict.fromkeys(("nzst", "nzdt"), "Pacific/Auckland"),
    "brt": "America/Sao_Paulo",
    "z": "Etc/UTC",
}
_LOCAL = {"local", "localtime", "system", "default"}
_OFFSET = re.compile(r"(?:utc|gmt|etc/utc|etc/gmt)?([+-])(\d{1,2})(?::?(\d\d))?", re.ASCII)
_EXAMPLE = 'write a name such as "Europe/Rome" or "Etc/UTC"'


def for_zone(zone: str, known: Iterable[str]) -> str:
    """What to write instead of ``zone``."""
    wanted = re.sub(r"\s+", "_", zone.strip().lower())
    if wanted in _LOCAL:
        return f"no machine's own zone is used; {_EXAMPLE}"
    by_lower = {name.lower(): name for name in sorted(known)}
    if wanted in by_lower:
        return f'write it as "{by_lower[wanted]}"'
    if wanted in _ABBREVIATIONS:
        return f'abbreviations are not unique; did you mean "{_ABBREVIATIONS[wanted]}"?'
    if offset := _OFFSET.fullmatch(wanted):
        return _for_offset(offset)
    cities = [name for lower, name in by_lower.items() if lower.endswith(f"/{wanted}")]
    if cities:
        return f'did you mean "{cities[0]}"?'
    return _near(wanted, by_lower) or _EXAMPLE


def _for_offset(offset: re.Match[str]) -> str:
    sign, hours, minutes = offset[1], int(offset[2]), offset[3] or "00"
    if minutes != "00" or hours > (14 if sign == "+" else 12):
        return "an offset is no zone; write the name of a place that has it"
    if hours == 0:
        return 'write "Etc/UTC"'
    turned = "-" if sign == "+" else "+"
    return (
        f"an offset knows no daylight saving; write the name of a place, "
        f'or "Etc/GMT{turned}{hours}", whose sign is the other way round'
    )


def _near(wanted: str, by_lower: dict[str, str]) -> str:
    """The name that differs by a slip; whole names first, then their last parts."""
    if not 3 <= len(wanted) <= 40:
        return ""
    alike = [name for name in by_lower if abs(len(name) - len(wanted)) <= 4]
    near = difflib.get_close_matches(wanted, alike, n=1, cutoff=0.8)
    if not near:
        cities = {name.rpartition("/")[2]: name for name in by_lower}
        last = difflib.get_close_matches(wanted.rpartition("/")[2], cities, n=1, cutoff=0.8)
        near = [cities[last[0]]] if last else []
    return f'did you mean "{by_lower[near[0]]}"?' if near else ""
