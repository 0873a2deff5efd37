"""The effects of each slot in the world, read from a record for the judge."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.simulation import slots
from tests.simulation.history import Record

#: Causes of runs that no slot of a Schedule started.
BY_HAND = frozenset({"Manual", "Backfill"})


@dataclass(frozen=True, slots=True)
class Effect:
    """Something that a slot did in the world.

    Attributes:
        key: by which its receiver deduplicates it.
        event: the id of the slot; it stays the same if a member is lost and made again.
        refused: a receiver answered with an error.
    """

    at_us: int
    key: str
    event: str
    refused: bool = False


#: Effects in order, by (uid, or ``SET/ID`` of a member; whether run by hand), then by slot.
Effects = Mapping[tuple[str, bool], Mapping[int, Sequence[Effect]]]


def effects_of(record: Record) -> Effects:
    """Return the effects of all slots."""
    found: defaultdict[tuple[str, bool], defaultdict[int, list[Effect]]]
    found = defaultdict(lambda: defaultdict(list))
    for job in record.made:
        effect = Effect(job.at_us, job.name, job.name)
        found[job.owner_uid, job.trigger in BY_HAND][job.slot_us].append(effect)
    for seen in record.seen:
        effect = Effect(seen.at_us, seen.id, seen.event, not 200 <= seen.status < 300)
        slot = slots.instant_us(seen.slot)
        found[seen.uid, seen.trigger in BY_HAND][slot].append(effect)
    for id_, fields in _entries(record):
        at_us = int(id_.partition("-")[0]) * 1_000
        effect = Effect(at_us, fields["id"], fields["id"])
        slot = slots.instant_us(fields["scheduled_time"])
        found[_owner(fields), fields["trigger"] in BY_HAND][slot].append(effect)
    return found


def _entries(record: Record) -> Iterator[tuple[str, dict[str, str]]]:
    for entries in record.entries.values():
        yield from entries


def _owner(fields: dict[str, str]) -> str:
    id_ = fields["schedule_id"]
    return f"{fields['set']}/{id_}" if "set" in fields else id_


def all_of(found: Effects) -> set[tuple[str, int]]:
    """Return every (uid, slot) that had an effect."""
    return {(uid, slot) for (uid, _), by_slot in found.items() for slot in by_slot}
