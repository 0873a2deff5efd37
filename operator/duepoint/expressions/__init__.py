"""Text to the instants it names: cron, ``@every``, ``@at``, zones and daylight saving. Pure.

``compile.compile_expression`` is the entry; ``merged`` joins several schedules and ``windowed``
cuts them to a start and an end. What comes out answers four questions (expression.Expression): the
next slot, the previous one, how many in between, and what it means in words. Nothing in here reads
a clock or does I/O, apart from loading zone files out of the ``tzdata`` package once.

The way of a text::

    compile -> syntax -> fields -> days, pattern            local times that match
            -> every, at                                     forms without a zone
    timezones -> dst                                         stretches of constant offset
    cron = pattern x dst                                     slots
    combined                                                 several, and from when to when
"""

from duepoint.expressions.combined import merged, windowed
from duepoint.expressions.compile import compile_expression
from duepoint.expressions.dst import Gap, Overlap
from duepoint.expressions.expression import Expression
from duepoint.expressions.sizes import size_of
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
