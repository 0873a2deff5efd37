"""Partitioning of the queue in memory: the same steps, each over a whole shard at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from duepoint import errors
from duepoint.delayqueue import messages, sharding
from duepoint.delayqueue.resharding import export, resharding
from duepoint.schedules import points
from tests.fakes import memoryshard

Shards = dict[messages.ShardId, memoryshard.MemoryShard]


@dataclass(slots=True)
class Record:
    """What the layout record says besides the layout.

    Attributes:
        knows: number of the layout that each worker has said it knows.
    """

    wanted: int = 0
    phase: resharding.Phase = resharding.Phase.STABLE
    moved: int = 0
    left: int = 0
    waiting: str = ""
    knows: dict[str, int] = field(default_factory=dict)


def check_number(shards: int) -> None:
    """Raise InvalidSetting where an index cannot have so many shards."""
    if not (sharding.is_power_of_two(shards) and shards <= sharding.MOST_SHARDS):
        raise errors.InvalidSetting("shards", f"{shards} is no power of two")


def move(shards: Shards, shard: messages.ShardId, layout: messages.Layout) -> export.Moved:
    """Whatever nobody holds is in its new shard."""
    source = shards[shard]
    source.state = "draining"
    if source.back_us or source.held_points():  # it is compared here, or nowhere
        left_out = len(source.definitions) + len(source.members)
        return export.Moved(cursor=None, moved=0, left_out=left_out)

    def target_of(schedule_id: points.ScheduleId) -> memoryshard.MemoryShard:
        return shards[sharding.home(schedule_id, layout)]

    moved = left_out = 0
    for schedule_id, stored in list(source.definitions.items()):
        chain = source.members.get(schedule_id + stored.timing_version)
        if chain is not None and chain.holder is not None:
            left_out += 1
            continue
        target = target_of(schedule_id)
        target.definitions[schedule_id] = source.definitions.pop(schedule_id)
        if stored.target in source.blobs:
            target.blobs.setdefault(stored.target, source.blobs[stored.target])
        moved += 1
    left_out += _move_points(source, target_of)
    for letter in source.dead:
        target = target_of(points.ScheduleId(letter.member[:8].ljust(8, b"\0")))
        target.dead.append(letter)
    source.dead.clear()
    return export.Moved(cursor=None, moved=moved, left_out=left_out)


def _move_points(
    source: memoryshard.MemoryShard,
    target_of: Callable[[points.ScheduleId], memoryshard.MemoryShard],
) -> int:
    """Points of schedules that have moved; how many are held."""
    left_out = 0
    for member, point in list(source.members.items()):
        schedule_id = points.ScheduleId(member[:8])
        if point.holder is not None or schedule_id in source.definitions:
            left_out += 1
            continue
        target = target_of(schedule_id)
        if schedule_id in target.definitions:
            target.members.setdefault(member, memoryshard.Point(point.lane, point.due_us))
            if member in source.records:
                target.records.setdefault(member, source.records[member])
        source.drop(member)
    return left_out


def why_not_closed(source: memoryshard.MemoryShard) -> str:
    """What is left in a shard that is being emptied; empty text when nothing is."""
    if source.definitions:
        return "definitions"
    if source.members:
        return "points"
    if source.outcomes:
        return "outcomes"
    return "dead" if source.dead else ""
