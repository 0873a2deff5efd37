"""The rule of a schedule: when it runs, and what happens when it is late, missed or busy.

A rule is what many schedules share, so its canonical text is interned in Redis and compared as
text. *Timing* fields decide which slots exist: a change of one starts the schedule anew from the
moment it is seen. *Policy* fields decide what becomes of a slot: a change is used by the next
attempt and moves nothing. Pure. The texts are stored: fields may be added with a default, never
renamed or given another meaning.
"""

from __future__ import annotations

import msgspec

DEFAULT_ZONE = "Etc/UTC"


class Timing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which slots exist. Instants in microseconds since the epoch, UTC.

    Attributes:
        max_runs: no slot is left once so many have started; which ones those are is no arithmetic,
            so ``Slots`` knows nothing of it, and the definition keeps the count.
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
        return None if self.deadline_seconds is None else max(self.deadline_seconds, 1) * 1_000_000


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


_decoder = msgspec.json.Decoder(Rule)


def text(rule: Rule) -> bytes:
    """The canonical text of a rule: equal rules have equal texts."""
    return msgspec.json.encode(rule, order="deterministic")


def parse(data: bytes) -> Rule:
    """The rule behind a text made by ``text``; raises msgspec.DecodeError on anything else."""
    return _decoder.decode(data)
