"""The rule of a schedule: when it runs, and what happens when it is late, missed or busy.

Many schedules share a rule, so its canonical text is stored once in Redis and compared as text.
*Timing* fields decide which slots exist: when the operator sees a change of one, the schedule
starts anew from that moment. *Policy* fields decide how a slot is treated: the next attempt uses
the change, and no slot moves. Pure. The texts are stored: fields may be added with a default,
never renamed or given another meaning.
"""

from __future__ import annotations

import datetime as dt
import functools
import hashlib

import msgspec

from duepoint.expressions import descriptors
from duepoint.expressions.expression import LAST_US
from duepoint.expressions.syntax import WHITE
from duepoint.model.schedule import PolicyValues

DEFAULT_ZONE = "Etc/UTC"


class Timing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, cache_hash=True):
    """Which slots exist. Instants in microseconds since the epoch, UTC.

    Attributes:
        max_runs: no slot is left after this many have started. Which slots start cannot be
            computed, so ``Slots`` ignores this, and the definition keeps the count.
        zone_data: the zone's data when the operator stored the rule; all workers use that.
    """

    schedules: tuple[str, ...]
    time_zone: str = DEFAULT_ZONE
    gap: str = "RunOnce"
    overlap: str = "First"
    jitter_ms: int = 0
    start_us: int | None = None
    end_us: int | None = None
    suspend: bool = False
    suspend_until_us: int | None = None
    max_runs: int | None = None
    zone_data: str = ""

    @property
    def is_by_hand(self) -> bool:
        """Whether it runs only when it is triggered."""
        return all(text.strip(WHITE) == descriptors.NEVER for text in self.schedules)


#: The distance from the first possible slot to the last. CronJob accepts up to 2**63 - 1; the sum
#: of this limit and any slot is still an exact integer in Lua.
_LONGEST_DEADLINE_SECONDS = LAST_US // 1_000_000


class Policy(PolicyValues, frozen=True, kw_only=True, omit_defaults=True):
    """How to treat slots that are late, missed or busy, and how many finished Jobs to keep."""

    @property
    def deadline_us(self) -> int | None:
        """How late a slot may start; None = no limit. A deadline of 0 means "only on time"."""
        if self.starting_deadline_seconds is None:
            return None
        return min(max(self.starting_deadline_seconds, 1), _LONGEST_DEADLINE_SECONDS) * 1_000_000


class Rule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Timing and policy, and whether the target allows only slots in whole seconds.

    Attributes:
        whole_seconds: the target is a jobTemplate; Job names contain slots in whole seconds.
    """

    timing: Timing
    policy: Policy = Policy()
    whole_seconds: bool = False

    @property
    def is_private(self) -> bool:
        """Whether the rule contains instants, so that few other schedules can share it."""
        timing = self.timing
        instants = (timing.start_us, timing.end_us, timing.suspend_until_us)
        return any(instants) or any("@at" in text for text in timing.schedules)


#: Replaces the expressions in the rule of a member that fires once: members that differ only in
#: their instant then share one rule.
ONCE = ("@at",)


def at_text(instant_us: int) -> str:
    """Return the expression of one instant, in its canonical form."""
    seconds, rest = divmod(instant_us, 1_000_000)
    fraction = f".{rest:06}".rstrip("0") if rest else ""
    return f"{_at_second(seconds)}{fraction}Z"


@functools.lru_cache(maxsize=1024)  # many members of a set share their second
def _at_second(seconds: int) -> str:
    return f"@at {dt.datetime.fromtimestamp(seconds, dt.UTC):%Y-%m-%dT%H:%M:%S}"


def at_instant(rule: Rule, instant_us: int) -> Rule:
    """Return the rule of one member: ``rule`` with its instant in place of ``ONCE``."""
    timing = msgspec.structs.replace(rule.timing, schedules=(at_text(instant_us),))
    return msgspec.structs.replace(rule, timing=timing)


_decoder = msgspec.json.Decoder(Rule)


def text(rule: Rule) -> bytes:
    """Return the canonical text of a rule: equal rules have equal texts."""
    return msgspec.json.encode(rule, order="deterministic")


@functools.lru_cache(maxsize=10_000)
def timing_hash(rule: Rule) -> str:
    """Return eight hexadecimal digits that identify the timing of a rule in a status.

    New zone data do not count as a new timing: a completed schedule stays completed.
    """
    timing = msgspec.structs.replace(rule.timing, zone_data="")
    content = msgspec.json.encode((timing, rule.whole_seconds), order="deterministic")
    return hashlib.blake2b(content, digest_size=4).hexdigest()


def parse(data: bytes) -> Rule:
    """Return the rule of a text made by ``text``; raises msgspec.DecodeError for any other."""
    return _decoder.decode(data)
