"""What each slot did in the world, read from a record; for the judge."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from tests.simulation import slots
from tests.simulation.history import Record

#: Of runs that no slot of a Schedule caused.
_BY_HAND = frozenset({"Manual", "Backfill"})


@dataclass(frozen=True, slots=True)
class Effect:
    """Something that a slot did in the world.

    Attributes:
        refused: a receiver answered that it did not take it.
    """

    at_us: int
    key: str
    refused: bool = False


def effects_of(
    record: Record, target: str, uid: str, *, by_hand: bool = False
) -> dict[int, list[Effect]]:
    """By slot, in order: those of its own slots, or those of runs by hand.

    Args:
        uid: of a Schedule; ``SET/ID`` of a member.
    """
    found: defaultdict[int, list[Effect]] = defaultdict(list)
    if target == "job":
        for job in record.made:
            if job.owner_uid == uid and (job.trigger in _BY_HAND) is by_hand:
                found[job.slot_us].append(Effect(job.at_us, job.name))
    elif target == "webhook":
        for seen in record.seen:
            if seen.uid == uid and (seen.trigger in _BY_HAND) is by_hand:
                refused = not 200 <= seen.status < 300
                found[slots.instant_us(seen.slot)].append(Effect(seen.at_us, seen.id, refused))
    else:
        for id_, fields in _entries(record):
            if _owner(fields) == uid and (fields["trigger"] in _BY_HAND) is by_hand:
                at_us = int(id_.partition("-")[0]) * 1_000
                found[slots.instant_us(fields["scheduled_time"])].append(
                    Effect(at_us, fields["id"])
                )
    return dict(found)


def _entries(record: Record) -> Iterator[tuple[str, dict[str, str]]]:
    for entries in record.entries.values():
        yield from entries


def _owner(fields: dict[str, str]) -> str:
    id_ = fields["schedule_id"]
    return f"{fields['set']}/{id_}" if "set" in fields else id_


def all_of(record: Record) -> set[tuple[str, int]]:
    """Whose slots had any effect."""
    return (
        {(job.owner_uid, job.slot_us) for job in record.made}
        | {(seen.uid, slots.instant_us(seen.slot)) for seen in record.seen}
        | {
            (_owner(fields), slots.instant_us(fields["scheduled_time"]))
            for _, fields in _entries(record)
        }
    )
