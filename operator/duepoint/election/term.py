"""A term of leadership: its epoch, whether it still lasts, and a watchdog for a stuck process.

The work asks ``Term.is_held`` before it writes. A ``Term`` answers by the clock, not by what the
loop has noticed, and in any thread. The elector extends it at each renewal, and ends it.

A leader whose loop is blocked cannot end its term, while threads of the same process go on working
in its name. So a ``Watchdog`` has a deadline: the loop extends it at each renewal and cancels it
when the term is over.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Callable, Mapping
from typing import NewType

import structlog

Epoch = NewType("Epoch", int)
"""Number of a term; above that of every earlier one."""


# Lease, deadline and retry are those of kube-controller-manager. Deadline and stop together are
# less than the lease, or terms would overlap.
#: How long a candidate watches an unchanged foreign Lease before it takes it.
LEASE_SECONDS = 15.0
#: How long a leader trusts in its last renewal.
DEADLINE_SECONDS = 10.0
#: The wait between renewals; jitter adds up to a fifth.
RETRY_SECONDS = 2.0
#: The longest wait between a candidate's reads, so that a handover takes less than 2 s.
LOOK_SECONDS = 1.5
#: The timeout of one call to the API server.
CALL_SECONDS = 5.0
#: How long the work of a term may take to stop.
STOP_SECONDS = 4.0
#: How long releasing the Lease may take.
RELEASE_SECONDS = 1.5


class Term:
    """One term of leadership; the work asks ``is_held`` before it writes.

    Attributes:
        epoch: the fencing token of every maintenance script.
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
        """Whether this process may act as the leader at this instant. Thread-safe."""
        return not self._over and self.seconds_left() > 0

    def seconds_left(self) -> float:
        """Return how long it may still act if no further renewal succeeds; negative afterwards."""
        return self._trusted_until - self._monotonic()

    def annotate(self, notes: Mapping[str, str]) -> None:
        """Write these annotations to the Lease, from the next renewal on."""
        self.notes |= notes

    def trust_until(self, monotonic: float) -> None:
        """Extend the term after a renewal. For the elector."""
        self._trusted_until = monotonic

    def end(self) -> None:
        """End the term for good. For the elector."""
        self._over = True


# -- when the loop is stuck ------------------------------------------------------------------------

_log = structlog.get_logger(__name__)

#: EX_SOFTWARE of sysexits.h: the supervisor starts us again.
EXIT_CODE = 70


def exit_process(why: str) -> None:
    """Log the reason and exit at once, without unwinding what may be stuck."""
    _log.critical("leaving the process", reason=why)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(EXIT_CODE)


class Watchdog:
    """Dumps all threads and ends the process when a deadline passes; one for each process.

    The exit code is 1, as for a bug.
    """

    @staticmethod
    def guard(seconds: float) -> None:
        """Set the deadline, in seconds from now."""
        faulthandler.dump_traceback_later(max(seconds, 0.001), exit=True)

    @staticmethod
    def rest() -> None:
        """Cancel the deadline."""
        faulthandler.cancel_dump_traceback_later()
