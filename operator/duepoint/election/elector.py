"""Leader election with a Lease: at most one leader at a time, which runs a term of work.

The rules of the protocol follow. All times are measured on this
process's own monotonic clock, never by comparing a time that another machine wrote.

- *Trust window.* A leader trusts itself until the deadline (10 s) after the **start** of its
  last successful renewal, because the write may have reached the server that early. Afterwards
  ``Term.is_held`` is False, even if our loop had no time to notice.
- *Patience.* A candidate takes a foreign Lease only after it has seen it unchanged for a whole
  lease (15 s), counted from the end of the read that first showed it to the start of the read
  that shows it again. The leader had begun to write that version before the candidate saw it, so
  the leader's trust ended at least 5 s earlier.
- *Stopping.* The work has those 5 s to stop: the elector ends the term, cancels the work, waits at
  most 4 s, and exits the process if the work still runs. Nothing of a lost term
  outlives it. A watchdog does the same when the loop itself is stuck.
- *Compare and swap.* Each write carries the version it was made from. A conflict proves nothing:
  our own earlier write may have been accepted and its answer lost. So we read again, and only a
  foreign holder means that the Lease is lost.
- *Every error is a failed renewal*: a refusal, an exception of any class, a call that hangs. The
  elector retries every 2 s until the trust window closes. A call that ignored its
  cancellation would be ended with its process, by the watchdog.
- *Release.* When a term ends while we hold the Lease, we empty its holder and annotate that this
  was intended; a standby takes it at its next read. A Lease that is gone, or has no holder and
  no such annotation, was edited while another replica may still trust in it: a candidate that has
  seen it held before waits a whole lease; only one that never has takes it at once.
- *Epoch.* Each term has a higher number than every earlier one, even if the Lease was deleted:
  above its annotation, above the highest that Redis has seen, and above those that this process
  has seen. Without an epoch on a Lease, Redis may have lost it as well, so the epoch is at least
  the milliseconds since 1970: terms come slower than those.

A Lease does not fence: a paused process may believe for an instant that it leads. So the epoch is
the fencing token of every maintenance script, which refuses an older one.

A leader that is killed leaves its name on the Lease. A container that restarts in the same Pod need
not wait for that Lease to expire: the name is in a file that its process keeps locked (``kept``),
and the kernel releases the lock only when the process has ended.

The work asks ``Term.is_held`` before it writes. A ``Term`` answers by the clock, not by what the
loop has noticed, and in any thread. A leader whose loop is blocked cannot end its term, while
threads of the same process go on working in its name. So a ``Watchdog`` has a deadline: the loop
extends it at each renewal and cancels it when the term is over.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import random
import secrets
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NewType, TypeVar

import structlog

from duepoint import clock as clocks
from duepoint import errors, faults, services
from duepoint.faults import FaultPoint
from duepoint.kube import leases

_log = structlog.get_logger(__name__)

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


# -- the elector ---------------------------------------------------------------------------------

#: The epoch of the newest term.
EPOCH_ANNOTATION = "duepoint.dev/epoch"
#: The epoch of the term that released the Lease.
RELEASED_ANNOTATION = "duepoint.dev/released"

#: Longest number read from an annotation, in digits: Redis scripts count exactly up to 2**53.
_MOST_DIGITS = 15
#: The longest wait between terms whose work fails at once.
_MOST_PAUSE_SECONDS = 30.0

ResultT = TypeVar("ResultT")


Work = Callable[[Term], Coroutine[Any, Any, None]]


class Elector:
    """Campaigns for the Lease, and runs the work of a term while it leads.

    Args:
        lease: reads and writes the Lease.
        clock: this process's clocks.
        identity: the name on the Lease. No other living process may have it: a Lease that carries
            it is taken at once.
        known_epoch: the highest epoch that Redis has seen; a failure counts as 0.
        leave: ends the process if the work of a lost term does not stop.
        watchdog: ends the process if the loop is stuck; None for none.
        on_change: called with (leading, epoch) at both ends of a term.
        rng: for jitter.
    """

    def __init__(
        self,
        lease: leases.KubeLease,
        clock: clocks.Clock,
        identity: str,
        *,
        known_epoch: Callable[[], Awaitable[int]],
        leave: Callable[[str], None] = exit_process,
        watchdog: Watchdog | None = None,
        on_change: Callable[[bool, Epoch], None] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.identity = identity
        self._port = lease
        self._clock = clock
        self._known_epoch = known_epoch
        self._leave = leave
        self._watchdog = watchdog
        self._on_change = on_change or (lambda _leading, _epoch: None)
        self._random = rng or random.Random()  # noqa: S311 - jitter
        #: The Lease as a leader has written it last.
        self._lease = leases.Lease(holder="", duration_seconds=0, transitions=0)
        #: The version of the Lease that a candidate has seen last, and since when it has.
        self._version: str | None = None
        self._since = 0.0
        self._was_held = False
        #: The highest epoch that it has seen, those of its own terms included.
        self._newest_epoch = 0

    async def run(self, work: Work) -> None:
        """Lead whenever possible, until cancelled; then stop the work and release the Lease.

        ``work`` is called once for each term and should run until the term ends. When it returns
        or raises, the elector releases the Lease and, after a wait, campaigns again. It must stop
        within ``STOP_SECONDS`` of being cancelled.
        """
        pauses = self._pauses()
        while True:
            term = await self._campaign()
            began = self._clock.monotonic()
            is_lost = await self._lead(term, work)
            _log.info("term over", epoch=term.epoch, is_lost=is_lost)
            if self._clock.monotonic() - began > _MOST_PAUSE_SECONDS:
                pauses = self._pauses()
            # Always wait, or failing terms would follow each other in a tight loop. After a
            # failure, the wait gives another replica a chance, where the work may succeed.
            pause = self._poll_pause() if is_lost else next(pauses)
            await self._clock.sleep(pause)

    # -- candidate -------------------------------------------------------------------------

    async def _campaign(self) -> Term:
        self._version = None
        while (term := await self._attempt()) is None:
            await self._clock.sleep(self._poll_pause())
        return term

    def _poll_pause(self) -> float:
        return LOOK_SECONDS * self._random.uniform(0.75, 1.0)

    async def _attempt(self) -> Term | None:
        """Read the Lease once, and try to take it if it is free."""
        started = self._clock.monotonic()
        look = await self._call(self._port.get, CALL_SECONDS)
        if look is None:
            return None
        (current,) = look
        self._newest_epoch = max(self._newest_epoch, _epoch_of(current))
        if not self._is_free(current, started):
            return None
        in_redis = await self._call(self._known_epoch, CALL_SECONDS)
        in_lease = _epoch_of(current) or self._clock.now_us() // 1000
        newest = max(in_lease, in_redis[0] if in_redis else 0, self._newest_epoch)
        epoch = Epoch(newest + 1)
        inherited = dict(current.annotations) if current else {}
        wanted = self._claim(current, epoch, inherited)
        term = Term(epoch, inherited, self._clock.monotonic)
        taken = await self._write(term, wanted, CALL_SECONDS)
        return term if taken else None

    def _is_free(self, current: leases.Lease | None, started: float) -> bool:
        """Whether no replica can trust in this Lease any more; also updates the observation.

        ``started`` is when the read of ``current`` began; the Lease had this state at or after it.
        """
        version = current.version if current else ""
        if version != self._version:
            self._version, self._since = version, self._clock.monotonic()
        if current is not None and (current.holder == self.identity or _is_released(current)):
            return True
        if current is not None and current.holder:
            self._was_held = True
        return not self._was_held or started - self._since >= LEASE_SECONDS

    def _claim(
        self, current: leases.Lease | None, epoch: Epoch, inherited: Mapping[str, str]
    ) -> leases.Lease:
        kept = {key: text for key, text in inherited.items() if key != RELEASED_ANNOTATION}
        now_us = self._clock.now_us()
        return leases.Lease(
            holder=self.identity,
            duration_seconds=max(1, round(LEASE_SECONDS)),
            transitions=min(current.transitions + 1, leases.INT32_MAX) if current else 0,
            acquired_us=now_us,
            renewed_us=now_us,
            annotations={**kept, EPOCH_ANNOTATION: str(epoch)},
            version=current.version if current else "",
            metadata=current.metadata if current else {},
        )

    # -- leader ----------------------------------------------------------------------------

    async def _lead(self, term: Term, start_work: Work) -> bool:
        """Lead for one term; return whether the Lease was lost."""
        self._was_held = True
        self._newest_epoch = max(self._newest_epoch, term.epoch)
        _log.info("leading", epoch=term.epoch, identity=self.identity)
        self._on_change(True, term.epoch)  # noqa: FBT003 - (leading, epoch)
        work = asyncio.create_task(start_work(term), name=f"term {term.epoch}")
        is_lost = False
        try:
            is_lost = await self._keep(term, work)
            return is_lost
        finally:
            term.end()  # first of all, so that ``is_held`` is False from now on
            self._on_change(False, term.epoch)  # noqa: FBT003
            await self._stop(work)
            if not is_lost:
                await self._release(term)

    async def _keep(self, term: Term, work: asyncio.Task[None]) -> bool:
        """Renew until the Lease is lost (True) or the work ends, which is noticed at once."""
        while True:
            pause = RETRY_SECONDS * self._random.uniform(1.0, 1.2)
            if await self._ends_within(work, min(pause, term.seconds_left())):
                return False
            if not term.is_held() or not await self._renew(term):
                return True

    async def _renew(self, term: Term) -> bool:
        """Try to renew; False = another replica has the Lease."""
        lease = self._lease
        notes = {**lease.annotations, **term.notes}
        # The API server gives an unchanged object no new version, so a candidate would take the
        # Lease for abandoned. So the time rises even if the wall clock stands still or goes back.
        renewed_us = max(self._clock.now_us(), lease.renewed_us + 1)
        wanted = replace(lease, renewed_us=renewed_us, annotations=notes)
        written = await self._write(term, wanted, term.seconds_left())
        if written is not False:
            return True
        current = await self._call(self._port.get, term.seconds_left())
        if current is None:
            return True
        found = current[0] or replace(lease, version="", metadata={})
        if found.holder != self.identity:
            return False
        # It was deleted or edited, or a write of ours that seemed to fail has arrived: the next
        # renewal continues from there. We may create it while our trust lasts.
        self._lease = replace(found, annotations={**found.annotations, **notes})
        return True

    async def _write(self, term: Term, wanted: leases.Lease, seconds: float) -> bool | None:
        """Write the Lease; return whether the write was accepted, or None if that is unknown."""
        began = self._clock.monotonic()
        put = self._port.update if wanted.version else self._port.create
        await faults.reach(FaultPoint.BEFORE_LEASE_WRITE)
        answer = await self._call(lambda: put(wanted), seconds)
        await faults.reach(FaultPoint.AFTER_LEASE_WRITE)
        if answer is None:
            return None
        if answer[0] is None:
            return False
        self._lease = answer[0]
        term.trust_until(began + DEADLINE_SECONDS)
        if self._watchdog is not None:
            ends_at = began + DEADLINE_SECONDS + STOP_SECONDS
            self._watchdog.guard(ends_at - self._clock.monotonic())
        return True

    async def _stop(self, work: asyncio.Task[None]) -> None:
        work.cancel()
        if not await self._ends_within(work, STOP_SECONDS):
            self._leave("the work of a term that is over does not stop")
            raise errors.Bug("a process that should have ended goes on")
        if self._watchdog is not None:
            self._watchdog.rest()
        if not work.cancelled() and (error := work.exception()) is not None:
            _log.error("the work of the term failed", exc_info=error)

    async def _release(self, term: Term) -> None:
        """Release the Lease, so that no standby has to wait until it expires; best effort."""
        mark = {RELEASED_ANNOTATION: str(term.epoch)}
        lease = replace(self._lease, holder="", annotations={**self._lease.annotations, **mark})
        await self._call(lambda: self._port.update(lease), RELEASE_SECONDS)

    # -- waiting ---------------------------------------------------------------------------

    async def _call(
        self, ask: Callable[[], Awaitable[ResultT]], seconds: float
    ) -> tuple[ResultT] | None:
        """Return the value of a call in a tuple; None if it raised or did not end in time."""
        limit = min(CALL_SECONDS, seconds)
        try:
            async with asyncio.timeout(limit):
                return (await ask(),)
        except TimeoutError:
            _log.warning("no answer about the Lease", seconds=limit)
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is None or task.cancelling():
                raise
            _log.warning("a call about the Lease was cancelled")  # as by a connection that closes
        except Exception as error:  # noqa: BLE001 - every error is a failed renewal
            _log.warning("the Lease cannot be reached", error=errors.quoted(str(error)))
        return None

    async def _ends_within(self, task: asyncio.Future[Any], seconds: float) -> bool:
        timer = asyncio.ensure_future(self._clock.sleep(max(0.0, seconds)))
        try:
            await asyncio.wait({task, timer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
        return task.done()

    def _pauses(self) -> Iterator[float]:
        return services.backoff(first_seconds=RETRY_SECONDS, most_seconds=_MOST_PAUSE_SECONDS)


def _epoch_of(lease: leases.Lease | None) -> int:
    noted = lease.annotations.get(EPOCH_ANNOTATION, "") if lease else ""
    is_number = noted.isascii() and noted.isdigit() and len(noted) <= _MOST_DIGITS
    return int(noted) if is_number else 0


def _is_released(lease: leases.Lease) -> bool:
    """Whether the leader of the newest term has released the Lease on purpose."""
    released = lease.annotations.get(RELEASED_ANNOTATION)
    return (
        not lease.holder and bool(released) and released == lease.annotations.get(EPOCH_ANNOTATION)
    )


# -- the name on the Lease -------------------------------------------------------------------------

#: Longest name that is read from its file.
_MOST_BYTES = 512


def unique(name: str) -> str:
    """Return an identity that no other process has, made from the name of a replica."""
    return f"{name}_{secrets.token_hex(5)}"


def kept(name: str, file: Path) -> str:
    """Return the identity in this file if its former process has ended, else a new one.

    Keeps the file locked until this process ends. Without a usable file there is no quick takeover.
    """
    fresh = unique(name)
    import fcntl  # noqa: PLC0415 - it exists on Unix only

    try:
        opened = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)  # never closed
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        found = os.pread(opened, _MOST_BYTES, 0).decode(errors="replace")
        if found.startswith(f"{name}_") and found.isprintable():
            return found
        os.ftruncate(opened, 0)
        os.pwrite(opened, fresh.encode(), 0)
    except OSError as error:
        _log.warning("the name on the Lease is not kept", file=str(file), error=error.strerror)
    return fresh
