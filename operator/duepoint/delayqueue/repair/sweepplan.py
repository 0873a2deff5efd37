"""In which steps a shard is swept.

A namespace of usual size is looked at in one step: all definitions and all points, compared as
sets. Small ones share a step; a large one is taken apart, definitions a few buckets at a time, then
points a few hundred at a time. Two namespaces with the same population share buckets and are looked
at together. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from duepoint.delayqueue import keys
from duepoint.schedules import points

#: Points of one step that compares whole namespaces: some 10 ms of the sweeper's time.
_TOGETHER = 10_000
#: Lanes of one step: their heads are looked at by one script.
_LANES_TOGETHER = 32
#: From here on a population is taken apart.
_LARGE = 40_000
_BUCKETS_TOGETHER = 32


@dataclass(frozen=True, slots=True)
class Whole:
    """All definitions of these populations, and all points of their lanes."""

    populations: tuple[str, ...]
    lanes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Buckets:
    """Some definitions of a population, whose chains are in one of these lanes."""

    population: str
    first: int
    last: int
    lanes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Lane:
    """The points of one lane, in as many steps as it needs."""

    number: int


Step = Whole | Buckets | Lane


@dataclass(frozen=True, slots=True)
class Plan:
    """One round of one shard."""

    steps: tuple[Step, ...]
    lanes_of: Mapping[str, tuple[int, ...]]

    def lanes_of_member(self, member: bytes) -> tuple[int, ...]:
        """Where a point may be by its id; somewhere, where no namespace is known for it."""
        population = f"n{keys.place_of(points.ScheduleId(member[:8]), 1):x}"
        return self.lanes_of.get(population) or next(iter(self.lanes_of.values()), ())


def plan(namespaces: Mapping[int, str], sizes: Mapping[int, int], buckets: int) -> Plan:
    """The steps for these lanes (number -> namespace), with so many points each."""
    lanes_of: dict[str, list[int]] = {}
    for lane in sorted(namespaces):
        lanes_of.setdefault(keys.population_of(namespaces[lane]), []).append(lane)
    frozen = {population: tuple(lanes) for population, lanes in lanes_of.items()}
    return Plan(tuple(_steps(frozen, sizes, buckets)), frozen)


def _steps(
    lanes_of: Mapping[str, tuple[int, ...]], sizes: Mapping[int, int], buckets: int
) -> Iterator[Step]:
    small: list[str] = []
    lanes: list[int] = []
    count = 0
    for population, of_population in lanes_of.items():
        size = sum(sizes[lane] for lane in of_population)
        if size > _LARGE:
            yield from _apart(population, of_population, buckets)
            continue
        if small and (count + size > _TOGETHER or len(lanes) >= _LANES_TOGETHER):
            yield Whole(tuple(small), tuple(lanes))
            small, lanes, count = [], [], 0
        small.append(population)
        lanes += of_population
        count += size
    if small:
        yield Whole(tuple(small), tuple(lanes))


def _apart(population: str, lanes: tuple[int, ...], buckets: int) -> Iterator[Step]:
    for first in range(0, buckets, _BUCKETS_TOGETHER):
        yield Buckets(population, first, min(buckets, first + _BUCKETS_TOGETHER), lanes)
    for lane in lanes:
        yield Lane(lane)
