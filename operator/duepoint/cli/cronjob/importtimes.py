"""A CronJob's expression as the same times in our grammar, and what had to be rewritten.

Our grammar refuses texts that CronJob takes and that mean something else than they seem to: a zone
inside the text, a step larger than its field, a range that begins with a star, white space that is
not ASCII's, an ``@every`` with parts of a second. Those are written as what CronJob makes of them.
Any other text is left as it is, without the white space around it, and judged where every
expression is judged. Source: ``parser.go`` and ``constantdelay.go`` of robfig/cron v3.0.1,
``time.ParseDuration`` of Go.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

from duepoint import expressions
from duepoint.expressions import fields

_PREFIX = re.compile(r"(?:CRON_)?TZ=(?P<zone>\S*)\s+(?P<rest>.*)", re.DOTALL)
#: What Go takes for white space besides that of ASCII.
_WIDE = re.compile("[\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]")
_STEPPED = re.compile(r"(?P<range>[^/]+)/(?P<step>\+?\d{1,18})", re.ASCII)
_PART = re.compile(r"(?P<count>\d{1,12}(?:\.\d{0,12})?|\.\d{1,12})(?P<unit>ns|us|µs|μs|ms|s|m|h)")
_FIELDS = (fields.MINUTE, fields.HOUR, fields.DAY, fields.MONTH, fields.WEEKDAY)
_UNIT_SECONDS = {
    "ns": Decimal("1e-9"), "us": Decimal("1e-6"), "µs": Decimal("1e-6"), "μs": Decimal("1e-6"),
    "ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600),
}  # fmt: skip
#: What Go calls the machine's own zone.
_OF_THE_MACHINE = "Local"


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """An expression for a Schedule.

    Attributes:
        text: the expression.
        time_zone: the zone that stood inside the text; None where there was none, and empty for
            the zone of the controller manager.
        rewritten: why the text is another one; empty where it is the same.
    """

    text: str
    time_zone: str | None
    rewritten: str


def ported(text: str) -> Times:
    """The expression with the times that a CronJob gives it."""
    time_zone, rest = _without_zone(text)
    plain = _WIDE.sub(" ", rest).strip()
    wide = _WIDE.search(rest.strip(expressions.WHITE))
    rest = plain if wide else rest.strip(expressions.WHITE)
    words = rest.split()
    if words[:1] == ["@every"] and len(words) == 2:
        new, why = _every(words[1])
    elif len(words) == len(_FIELDS):
        pairs = [_field(kind, word) for kind, word in zip(_FIELDS, words, strict=True)]
        new = " ".join(word for word, _ in pairs)
        why = "; ".join(why for _, why in pairs if why)
    else:
        new, why = rest, ""
    if wide:
        blank = f"U+{ord(wide[0]):04X} is a blank to a CronJob"
        new, why = new or rest, f"{blank}; {why}" if why else blank
    return Times(text=new if why else rest, time_zone=time_zone, rewritten=why)


def _without_zone(text: str) -> tuple[str | None, str]:
    found = _PREFIX.fullmatch(text.strip())
    if found is None:
        return None, text
    zone = found["zone"]
    return ("" if zone == _OF_THE_MACHINE else zone or "Etc/UTC"), found["rest"]


def _field(kind: fields.Kind, word: str) -> tuple[str, str]:
    pairs = [_item(kind, item) for item in word.split(",")]
    return ",".join(item for item, _ in pairs), "; ".join(why for _, why in pairs if why)


def _item(kind: fields.Kind, item: str) -> tuple[str, str]:
    low, dash, _ = item.partition("-")
    if dash and low in ("*", "?"):
        _, slash, step = item.partition("/")  # robfig/cron looks no further than the star
        meant, _ = _item(kind, f"*{slash}{step}")
        return meant, f"a CronJob reads {item} as {meant}"
    stepped = _STEPPED.fullmatch(item)
    if stepped and int(stepped["step"]) > kind.size:
        first = stepped["range"].partition("-")[0]
        first = str(kind.low) if first in ("*", "?") else first
        return first, f"with a step larger than its field, {item} is only ever {first}"
    return item, ""


def _every(period: str) -> tuple[str, str]:
    """Whole seconds, at least one."""
    period = period.removeprefix("+")
    parts = list(_PART.finditer(period))
    if not parts or "".join(part.group() for part in parts) != period:
        return "", ""
    exact = sum(
        (Decimal(part["count"]) * _UNIT_SECONDS[part["unit"]] for part in parts), Decimal(0)
    )
    seconds = max(1, int(exact))
    if exact == seconds and not period.endswith(("ns", "us", "µs", "μs")):
        return "", ""
    return f"@every {seconds}s", f"a CronJob counts whole seconds, at least one: {seconds}s"
