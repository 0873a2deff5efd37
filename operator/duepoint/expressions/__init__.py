"""Text to the instants it names: cron, ``@every``, ``@at``, zones and daylight saving. Pure.

``compile.compile_expression`` is the entry; its ``merged`` joins several schedules, ``windowed``
cuts them to a start and an end. What comes out answers four questions (expression.Expression): the
next slot, the previous one, how many in between, and what it means in words. Nothing in here reads
a clock or does I/O, apart from loading zone files out of the ``tzdata`` package once.

The way of a text::

    compile -> syntax -> fields -> pattern      local times that match
            -> descriptors                      forms without a zone
    cron = pattern x the stretches of a zone    slots
"""

from duepoint.expressions.compile import compile_expression, merged, size_of, windowed
from duepoint.expressions.cron import Gap, Overlap
from duepoint.expressions.expression import Expression
from duepoint.expressions.syntax import WHITE

__all__ = [
    "WHITE",
    "Expression",
    "Gap",
    "Overlap",
    "compile_expression",
    "merged",
    "size_of",
    "windowed",
]
