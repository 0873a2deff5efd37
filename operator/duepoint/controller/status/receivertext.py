"""The conditions that tell of a Schedule's receiver, written and read back.

Both are of the generation that is shown: what an older one's receiver did says nothing of the
newer's. Absent where there is nothing to tell. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from duepoint.runs.receiver import Note, Receiver
from duepoint.schedules.conditions import Condition, ConditionType, Reason


def conditions(receiver: Receiver, generation: int) -> Iterator[Condition]:
    """``EndpointGone`` and ``CircuitOpen`` where they are True."""
    for type_, reason, note in (
        (ConditionType.ENDPOINT_GONE, Reason.ENDPOINT_GONE, receiver.gone),
        (ConditionType.CIRCUIT_OPEN, Reason.CIRCUIT_OPEN, receiver.waits),
    ):
        if note is not None and note.generation >= generation:
            yield Condition(type=type_, status="True", reason=reason, message=note.message)


def loaded(listed: Iterable[Mapping[str, Any]]) -> Receiver:
    """The receiver behind conditions that we, or an earlier process, wrote."""
    found = {one.get("type"): one for one in listed}
    return Receiver(
        gone=_note(found.get(ConditionType.ENDPOINT_GONE)),
        waits=_note(found.get(ConditionType.CIRCUIT_OPEN)),
    )


def _note(one: Mapping[str, Any] | None) -> Note | None:
    """Since when is not written; any newer event counts."""
    if one is None or one.get("status") != "True":
        return None
    generation = one.get("observedGeneration")
    return Note(
        generation=generation if isinstance(generation, int) else 0,
        at_us=0,
        message=str(one.get("message") or ""),
    )
