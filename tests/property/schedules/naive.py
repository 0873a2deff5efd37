"""The rules of catching up, told once more as plain loops over a list of slots.

Written from docs/reference/semantics.md and not from the code: everything is listed and looked at,
nothing is counted by arithmetic. Instants in microseconds.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from dataclasses import dataclass

SECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class Slot:
    slot_us: int
    due_us: int


def due_slots(slots_us: list[int], *, identity: str, jitter_ms: int) -> list[Slot]:
    """The slots with their dues; the last of the list only says where the one before ends."""
    found = []
    for slot_us, next_us in itertools.pairwise(slots_us):
        width_ms = min(jitter_ms, (next_us - slot_us) // 1_000)
        digest = hashlib.sha256(f"{identity}\n{slot_us // 1_000}".encode()).digest()
        jitter = int.from_bytes(digest[:8], "big") % width_ms if width_ms else 0
        found.append(Slot(slot_us, slot_us + jitter * 1_000))
    return found


def judged(
    overdue: list[Slot], now_us: int, *, catch_up: str, limit: int, deadline_seconds: int | None
) -> tuple[list[int], Counter[str]]:
    """Which slots run, oldest first, and how many are missed for which reason."""
    missed: Counter[str] = Counter()
    young = []
    for slot in overdue:
        allowed = None if deadline_seconds is None else max(deadline_seconds, 1) * SECOND
        if allowed is not None and now_us - slot.due_us > allowed:
            missed["DeadlineExceeded"] += 1
        else:
            young.append(slot)
    on_time = [slot for slot in young if now_us - slot.due_us <= 10 * SECOND]
    if catch_up == "None":
        run = on_time[-100:]
    elif len(overdue) == 1:
        run = young
    elif catch_up == "Latest":
        run = young[-1:]
    else:
        run = young[-limit:]
    left_out = len(young) - len(run)
    if left_out:
        missed["CatchUpPolicy"] += left_out
    return [slot.slot_us for slot in run], missed
