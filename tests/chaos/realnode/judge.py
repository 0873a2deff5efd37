"""The judge: compares the receiver's log and the Jobs that existed with the required slots."""

from __future__ import annotations

import bisect
import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from benchmarks import report
from benchmarks.report import Figure
from tests.chaos.realnode.incidents import REPEATING

QUIET = "none of these"
#: Counts that must be 0.
FAULTS = ("lost", "doubled", "early", "objects that never fired")
#: A lost claim expires, and its slots are sent again, within this time.
REPEATED_WITHIN_US = 60_000_000
#: Slots and one-offs within these times of Valkey's deletion may be lost with it.
BEFORE_US, AFTER_US = 5_000_000, 60_000_000


@dataclasses.dataclass
class Period:
    """An incident; slots during it, and for a while after it, are its own."""

    name: str
    start_us: int
    end_us: int = 0
    until_us: int = 0


class Arrivals:
    """The arrivals of one kind: when each slot of each object first came, and the repeats."""

    def __init__(self) -> None:
        self.first: dict[str, dict[int, int]] = defaultdict(dict)
        self.again: list[tuple[int, str, int]] = []

    def add(self, name: str, slot_ms: int, arrived_us: int) -> None:
        slots = self.first[name]
        if slot_ms in slots:
            self.again.append((arrived_us, name, slot_ms))
        else:
            slots[slot_ms] = arrived_us

    def __len__(self) -> int:
        return sum(map(len, self.first.values()))

    def early(self) -> list[tuple[str, int, int]]:
        return [
            (name, slot, arrived)
            for name, slots in self.first.items()
            for slot, arrived in slots.items()
            if arrived < slot * 1000
        ]

    def missing(self, every_ms: int, end_ms: int) -> Iterator[tuple[str, int, int]]:
        """Yield the gaps of each object: its name, the last slot before, how many are missing."""
        for name, slots in self.first.items():
            present = [slot for slot in sorted(slots) if slot < end_ms]
            for before, after in zip(present, [*present[1:], end_ms + every_ms - 1], strict=False):
                if after - before >= 2 * every_ms:
                    yield name, before, (after - before) // every_ms - 1


def read(lines: Iterable[str]) -> dict[str, Arrivals]:
    """Return the arrivals by path."""
    found: dict[str, Arrivals] = defaultdict(Arrivals)
    for line in lines:
        arrived, path, name, *rest = line.split()
        if path == "/job":  # a Job sends the name of its Pod
            name, slot, _ = name.rsplit("-", 2)
            found[path].add(name, int(slot) * 1000, int(arrived))
        else:
            found[path].add(name, round(float(rest[0].rpartition("-")[2]) * 1000), int(arrived))
    return found


def jobs(uids: Mapping[tuple[str, int], Iterable[str]], containers: Arrivals) -> Arrivals:
    """Return the Jobs that were listed, and those known only from their container's request."""
    found = Arrivals()
    for (name, slot), these in uids.items():
        for _ in these:
            found.add(name, slot * 1000, slot * 1_000_000)
    for name, slots in containers.first.items():
        for slot, arrived in slots.items():
            found.first[name].setdefault(slot, arrived)
    return found


class Judge:
    """Counts the faults of each kind of slot; ``counts`` has the results."""

    def __init__(self, periods: list[Period], end_us: int) -> None:
        self._periods = periods
        self._starts = [one.start_us for one in periods]
        self._end_ms = end_us // 1000
        self._emptied = [one.start_us for one in periods if "Valkey" in one.name]
        self.counts: dict[str, dict[str, int]] = defaultdict(dict)

    def period(self, at_us: int) -> str:
        number = bisect.bisect(self._starts, at_us) - 1
        if number < 0 or at_us > self._periods[number].until_us:
            return QUIET
        return self._periods[number].name

    def twice_and_early(self, kind: str, arrivals: Arrivals, *, may_repeat: bool) -> None:
        unexplained = [
            one for one in arrivals.again if not (may_repeat and self._may_repeat(one[0]))
        ]
        early = arrivals.early()
        self.counts[kind] |= {
            "slots": len(arrivals),
            "repeated": len(arrivals.again) - len(unexplained),
            "doubled": len(unexplained),
            "early": len(early),
        }
        self._blame(kind, "doubled", unexplained)
        self._blame(kind, "early", early)

    def recurring(
        self,
        kind: str,
        arrivals: Arrivals,
        every_ms: int,
        missed: Mapping[str, int],
        *,
        is_in_redis: bool = False,
    ) -> None:
        """Count missing slots, except those counted as missed and members' that Redis lost."""
        gaps: list[tuple[str, int, int]] = []
        with_redis: list[tuple[str, int, int]] = []
        for gap in arrivals.missing(every_ms, self._end_ms):
            _, before, number = gap
            of_redis = (before * 1000, (before + number * every_ms) * 1000)
            is_gone = is_in_redis and all(map(self._is_of_empty_redis, of_redis))
            (with_redis if is_gone else gaps).append(gap)
        by_name: dict[str, int] = defaultdict(int)
        for name, _, number in gaps:
            by_name[name] += number
        lost = {name: number - missed.get(name, 0) for name, number in by_name.items()}
        lost = {name: number for name, number in lost.items() if number > 0}
        self.counts[kind] |= {
            "lost": sum(lost.values()),
            "missed by policy": sum(min(by_name[name], missed.get(name, 0)) for name in by_name),
            "lost with Redis": sum(number for _, _, number in with_redis),
        }
        self._blame(kind, "lost", [one for one in gaps if one[0] in lost])

    def one_offs(self, kind: str, arrivals: Arrivals, answers: list[list[str]]) -> None:
        """Check that every one-off answered with success fired, and that the API refused none."""
        stored = [(int(at), name) for at, name, answer in answers if answer == "stored"]
        refused = [(int(at), name, answer) for at, name, answer in answers if answer != "stored"]
        gone = [
            (name, at, self.period(at))
            for at, name in stored
            if name not in arrivals.first and at < self._end_ms * 1000 - 5_000_000
        ]
        with_redis = [one for one in gone if self._is_of_empty_redis(one[1])]
        lost = [one for one in gone if one not in with_redis]
        self.counts[kind] |= {
            "lost": len(lost), "lost with Redis": len(with_redis), "refused": len(refused)
        }  # fmt: skip
        self._blame(kind, "lost", lost)
        self._blame(kind, "refused", [(self.period(at), *rest) for at, *rest in refused])

    def figures(self, kinds: Mapping[str, Arrivals]) -> Iterator[Figure]:
        """Yield all counts, and each kind's lateness in quiet times and around each incident."""
        for kind, counts in self.counts.items():
            bench = report.Bench("chaos", kind)
            for what, count in counts.items():
                yield bench.one(what, count, "slots", "= 0" if what in FAULTS else "")
        for kind, arrivals in kinds.items():
            late_ms: dict[str, list[float]] = defaultdict(list)
            for slots in arrivals.first.values():
                for slot, arrived in slots.items():
                    late_ms[self.period(slot * 1000)].append(arrived / 1000 - slot)
            for name, found in late_ms.items():
                bench = report.Bench("chaos", f"{kind}, {name}")
                for share in (0.5, 0.99):
                    yield bench.share("late", share, found)

    def _may_repeat(self, at_us: int) -> bool:
        return any(
            one.name in REPEATING and one.start_us < at_us < one.end_us + REPEATED_WITHIN_US
            for one in self._periods
        )

    def _is_of_empty_redis(self, at_us: int) -> bool:
        return any(start - BEFORE_US < at_us < start + AFTER_US for start in self._emptied)

    def _blame(self, kind: str, what: str, found: Sequence[object]) -> None:
        if found:
            report.say(f"{kind}: {len(found)} {what}, such as {found[:5]}")
