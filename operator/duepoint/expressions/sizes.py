"""How much memory a compiled expression takes, at most, with what it remembers while it is used."""

from __future__ import annotations

from duepoint.expressions import combined, cron, expression

#: Of an expression and of the rule that names it, beside times and days.
_OF_EACH = 1_000
_OF_A_CRON = 1_800
#: Of the ways in which several crons meet (``combined.Union``).
_OF_MEETINGS = 16_000


def size_of(compiled: expression.Expression) -> int:
    """Bytes; what it shares with others counts in full."""
    match compiled:
        case cron.Cron():
            return _OF_A_CRON + compiled.pattern.size_bytes
        case combined.Merged():
            return _OF_MEETINGS + sum(map(size_of, compiled.members))
        case combined.Windowed():
            return _OF_EACH + size_of(compiled.inner)
        case _:
            return _OF_EACH
