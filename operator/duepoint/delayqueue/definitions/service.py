"""Definitions as the other services use them: reading, numbering, and both with writing."""

from __future__ import annotations

from duepoint.delayqueue.definitions import briefing, filling, numbering, reading


class Reader(briefing.Briefing):
    """Reads definitions; names what other services need of it."""

    by_bucket = reading.Reading._by_bucket  # noqa: SLF001
    check_meta = reading.Reading._check_meta  # noqa: SLF001
    definition_commands = reading.Reading._definition_commands  # noqa: SLF001
    known_already = reading.Reading._known_already  # noqa: SLF001
    lane_of = reading.Reading._lane_of  # noqa: SLF001
    learn_numbers = reading.Reading._learn_numbers  # noqa: SLF001
    read_here = reading.Reading._read_definitions  # noqa: SLF001


class Numbering(numbering.Numbering):
    """Numbers of texts."""

    intern = numbering.Numbering._intern  # noqa: SLF001


class Definitions(filling.Filling, Reader):
    """Every operation on definitions."""
