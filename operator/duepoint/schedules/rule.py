"""The rule of a schedule: when it runs, and what happens when it is late, missed or busy.

A rule is what many schedules share, so its canonical text is stored once in Redis and compared as
text. *Timing* fields decide which slots exist: a change of one starts the schedule anew from the
moment it is seen. *Policy* fields decide what becomes of a slot: a change is used by the next
attempt and moves nothing. Pure. The texts are stored: fields may be added with a default, never
renamed or given another meaning.
"""

from __future__ import annotations

import datetime as dt
import functools
import hashlib

import msgspec

from duepoint.expressions import descriptors
from duepoint.expressions.expression import LAST_US
from duepoint.expressions.syntax import WHITE

DEFAULT_ZONE = "Etc/UTC"


class Timing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, cache_hash=True):
    """Which slots exist. Instants in microseconds since the epoch, UTC.

    Attributes:
        max_runs: no slot is left once so many have started; which ones those are is no arithmetic,
            so ``Slots`` knows nothing of it, and the definition keeps the count.
        zone_data: what the operator that stored the rule knew of the zone; all workers go by that.
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


#: From the first slot that there may be to the last. CronJob takes up to 2**63 - 1; a sum of this
#: and any slot is still a whole number in Lua.
_LONGEST_DEADLINE_SECONDS = LAST_US // 1_000_000


class Policy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What becomes of a slot that is late, missed or busy, and of finished Jobs."""

    deadline_seconds: int | None = None
    catch_up: str = "Latest"
    catch_up_limit: int = 100
    concurrency: str = "Allow"
    max_concurrency: int = 1
    queue_limit: int = 1
    successful_limit: int = 3
    failed_limit: int = 1

    @property
    def deadline_us(self) -> int | None:
        """How late a slot may start; None = however late. A deadline of 0 means "only on time"."""
        if self.deadline_seconds is None:
            return None
        return min(max(self.deadline_seconds, 1), _LONGEST_DEADLINE_SECONDS) * 1_000_000


class Rule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Timing and policy together, with what the timing needs to know of the target.

    Attributes:
        whole_seconds: the target is a jobTemplate, whose names carry slots in whole seconds.
    """

    timing: Timing
    policy: Policy = Policy()
    whole_seconds: bool = False

    @property
    def is_private(self) -> bool:
        """Whether the text holds instants, so that hardly another schedule shares it."""
        timing = self.timing
        instants = (timing.start_us, timing.end_us, timing.suspend_until_us)
        return any(instants) or any("@at" in text for text in timing.schedules)


#: What stands in place of the expressions in the rule of a member that fires once: members that
#: differ in nothing but their instant share that rule.
ONCE = ("@at",)


def at_text(instant_us: int) -> str:
    """The expression of one instant, in its canonical form."""
    seconds, rest = divmod(instant_us, 1_000_000)
    fraction = f".{rest:06}".rstrip("0") if rest else ""
    return f"{_at_second(seconds)}{fraction}Z"


@functools.lru_cache(maxsize=1024)  # many members of a set share their second
def _at_second(seconds: int) -> str:
    return f"@at {dt.datetime.fromtimestamp(seconds, dt.UTC):%Y-%m-%dT%H:%M:%S}"


def at_instant(rule: Rule, instant_us: int) -> Rule:
    """The rule of one member, where ``rule`` has ``ONCE`` in place of its instant."""
    timing = msgspec.structs.replace(rule.timing, schedules=(at_text(instant_us),))
    return msgspec.structs.replace(rule, timing=timing)


_decoder = msgspec.json.Decoder(Rule)


def text(rule: Rule) -> bytes:
    """The canonical text of a rule: equal rules have equal texts."""
    return msgspec.json.encode(rule, order="deterministic")


@functools.lru_cache(maxsize=10_000)
def timing_hash(rule: Rule) -> str:
    """Eight hexadecimal digits that stand for the timing of a rule, as a status shows them.

    Other zone data are no other timing: what has ended stays ended.
    """
    timing = msgspec.structs.replace(rule.timing, zone_data="")
    content = msgspec.json.encode((timing, rule.whole_seconds), order="deterministic")
    return hashlib.blake2b(content, digest_size=4).hexdigest()


def parse(data: bytes) -> Rule:
    """The rule behind a text made by ``text``; raises msgspec.DecodeError on anything else."""
    return _decoder.decode(data)
