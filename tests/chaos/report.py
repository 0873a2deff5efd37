"""The report at the end of a run: faults by kind, effects by target, and violations by rule."""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from tests.chaos.checker import Violation
from tests.chaos.history import History
from tests.chaos.windows import Disturbances

_SHOWN = 8


def lines(
    history: History, violations: Sequence[Violation], complaints: Sequence[str]
) -> Iterator[str]:
    """Yield the report line by line; the last one is the verdict."""
    yield from _faults(history)
    yield from _effects(history)
    yield from _machine(history)
    by_rule: defaultdict[str, list[Violation]] = defaultdict(list)
    for one in violations:
        by_rule[one.rule.value].append(one)
    for rule, found in sorted(by_rule.items(), key=lambda pair: int(pair[0][1:])):
        yield f"{rule}: {len(found)} violations"
        for one in found[:_SHOWN]:
            yield f"  {one.name} {_text(one.at_us)}: {one.what}"
    for complaint in complaints:
        yield f"the run proves nothing: {complaint}"
    bitten = sum(1 for one in history.faults if one.witness)
    slots = len({(one.uid, one.slot_us) for one in history.effects})
    verdict = "nothing is wrong" if not violations and not complaints else "FAILED"
    yield f"{slots} slots, {bitten} witnessed faults, {len(violations)} violations: {verdict}"


def _faults(history: History) -> Iterator[str]:
    tried = Counter(one.kind for one in history.faults)
    bitten = Counter(one.kind for one in history.faults if one.witness)
    yield "faults                 tried  witnessed"
    for kind, count in sorted(tried.items()):
        yield f"  {kind:<22}{count:>4}{bitten[kind]:>9}"
    for one in history.skipped:
        yield f"  {one.kind:<22}skipped: {one.why}"


def _effects(history: History) -> Iterator[str]:
    disturbances = Disturbances(history)
    seen: defaultdict[tuple[str, str, int], list[int]] = defaultdict(list)
    for one in history.effects:
        if one.accepted:
            seen[one.target, one.uid, one.slot_us].append(one.at_us)
    yield "targets    slots  repeated  lateness in calm: p50, p99, max"
    for target in sorted({key[0] for key in seen}):
        of_target = {key: at for key, at in seen.items() if key[0] == target}
        repeated = sum(1 for at in of_target.values() if len(at) > 1)
        calm = sorted(
            (min(at) - slot) / 1e6
            for (_, _, slot), at in of_target.items()
            if disturbances.at(slot) is None
        )
        figures = ", ".join(f"{_at(calm, share):.3f} s" for share in (0.5, 0.99, 1.0))
        yield f"  {target:<8}{len(of_target):>6}{repeated:>10}  {figures if calm else '-'}"


def _machine(history: History) -> Iterator[str]:
    stalled = sum(one.end_us - one.begin_us for one in history.stalls) / 1e6
    yield f"the machine stood still {len(history.stalls)} times, {stalled:.0f} s in all"


def _at(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def _text(instant_us: int) -> str:
    if not instant_us:
        return ""
    return dt.datetime.fromtimestamp(instant_us / 1e6, dt.UTC).strftime("%H:%M:%S.%f")[:-3]
