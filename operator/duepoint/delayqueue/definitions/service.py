"""Definitions as a user of the queue has them: storing, reading and removing in one place."""

from __future__ import annotations

from duepoint.delayqueue.definitions import briefing, occurrences, reading, upsert


class Definitions:
    """Operations on stored definitions; each is documented where it is made."""

    def __init__(
        self,
        *,
        reader: reading.Reader,
        briefing: briefing.Briefing,
        upsert: upsert.Upsert,
        occurrences: occurrences.Occurrences,
    ) -> None:
        self.digest = upsert.digest
        self.upsert = upsert.upsert
        self.remove = occurrences.remove
        self.definition = reader.definition
        self.read_definitions = reader.read_definitions
        self.read_columns = briefing.read_columns
        self.known = reader.known
        self.all_definitions = reader.all_definitions
        self.namespaces = reader.namespaces
        self.blob = reader.blob
