"""A term of leadership: its number, whether it lasts, and what ends a process that is stuck in it.

A ``Term`` is what the work asks before it writes. It answers by the clock, not by what the loop
has noticed, and in any thread. The elector moves its end on and takes its flag down.

A leader whose loop is blocked cannot take its flag down, while threads of the same process go on
working in its name. So a ``Watchdog`` keeps the deadline: the loop moves it on at each renewal and
lifts it when the term is over.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NewType

import structlog

Epoch = NewType("Epoch", int)
"""Number of a term; above that of every earlier one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTiming:
    """Durations in seconds; lease, deadline and retry are those of kube-controller-manager.

    Attributes:
        lease: how long a candidate watches a foreign Lease before it takes it.
        renew_deadline: how long a leader trusts in its last renewal.
        retry: between renewals; up to a fifth more, by chance.
        look: between a candidate's looks, at most, so that a handover takes less than 2 s.
        call: one call to the API server.
        stop: how long the work of a term may take to stop.
        release: how long giving the Lease back may take.
    """

    lease: float = 15.0
    renew_deadline: float = 10.0
    retry: float = 2.0
    look: float = 1.5
    call: float = 5.0
    stop: float = 4.0
    release: float = 1.5

    def __post_init__(self) -> None:
        if self.renew_deadline + self.stop >= self.lease:
            raise ValueError("renew_deadline + stop must be less than lease, or terms overlap")


class Term:
    """One spell of leadership; handed to the work, which asks ``is_held`` before it writes.

    Attributes:
        epoch: goes with every maintenance script.
        inherited: annotations of the Lease as it was taken over, such as the layout of the queue.
    """

    def __init__(
        self, epoch: Epoch, inherited: Mapping[str, str], monotonic: Callable[[], float]
    ) -> None:
        self.epoch = epoch
        self.inherited = inherited
        self.notes: dict[str, str] = {}
        self._monotonic = monotonic
        self._trusted_until = -1.0
        self._over = False

    def is_held(self) -> bool:
        """Whether this process may act as the leader at this instant. For any thread."""
        return not self._over and self.seconds_left() > 0

    def seconds_left(self) -> float:
        """How long it may still act if no further renewal succeeds; negative afterwards."""
        return self._trusted_until - self._monotonic()

    def annotate(self, notes: Mapping[str, str]) -> None:
        """Keep these annotations on the Lease, from the next renewal on."""
        self.notes |= notes

    def trust_until(self, monotonic: float) -> None:
        """For the elector: a renewal succeeded."""
        self._trusted_until = monotonic

    def end(self) -> None:
        """For the elector: flag down, for good."""
        self._over = True


# -- where the loop is stuck -----------------------------------------------------------------------

_log = structlog.get_logger(__name__)

#: EX_SOFTWARE of sysexits.h: the supervisor starts us again.
EXIT_CODE = 70


def exit_process(why: str) -> None:
    """Say why on standard error and end at once, without unwinding what may be stuck."""
    _log.critical("leaving the process", reason=why)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(EXIT_CODE)


class Watchdog:
    """Ends the process where a deadline passes, and shows where its threads stand; one a process.

    The exit code is 1, as of a bug.
    """

    @staticmethod
    def guard(seconds: float) -> None:
        """From now on this is the deadline."""
        faulthandler.dump_traceback_later(max(seconds, 0.001), exit=True)

    @staticmethod
    def rest() -> None:
        """No deadline any more."""
        faulthandler.cancel_dump_traceback_later()
