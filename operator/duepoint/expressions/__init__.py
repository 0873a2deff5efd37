"""Compiles schedule texts to slots: cron, ``@every``, ``@at``, zones, daylight saving. Pure.

``compile.compile_expression`` is the entry point; ``merged`` joins several expressions, and
``windowed`` cuts one to a start and an end. An ``expression.Expression`` answers four questions:
the next slot, the previous one, how many in between, and the meaning in words. Nothing in here
reads a clock or does I/O, apart from loading zone files from the ``tzdata`` package once.

How a text is compiled::

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
