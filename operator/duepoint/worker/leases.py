"""Keeps claims of running batches alive.

A claim lasts ``lease_seconds``; an attempt may take longer. ``Leases`` extends every claim with
unfinished points when a third of its lease is left to spare, and never one whose points are all
settled. Attempts that have been under way for long are reported on the same round, so that a status
shows them. A claim that Redis says is lost stays lost: its attempts may end, their settlements
write nothing but outcomes, and nothing new is sent under it.
"""

from __future__ import annotations

import asyncio

from duepoint import errors, telemetry
from duepoint.clock import Clock
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.worker.settler import Settler

#: The interval of checks whether an attempt has been under way for long.
_CHECK_SECONDS = 1.0


class Leases:
    """Extends the claims of one worker."""

    def __init__(self, queue: DelayQueue, clock: Clock, *, lease_seconds: float) -> None:
        self._queue = queue
        self._clock = clock
        self._lease_seconds = lease_seconds
        self._kept: set[Settler] = set()

    def keep(self, settler: Settler) -> None:
        """Look after this claim from now on."""
        self._kept.add(settler)

    def let_go(self, settler: Settler) -> None:
        """This claim is settled or given back."""
        self._kept.discard(settler)

    async def run(self) -> None:
        """Extend, and report what takes long, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._extend_in_time())
            group.create_task(self._report_open())

    async def _report_open(self) -> None:
        while True:
            await self._clock.sleep(_CHECK_SECONDS)
            for settler in self._kept:
                settler.report_open()

    async def _extend_in_time(self) -> None:
        while True:
            await self._clock.sleep(self._lease_seconds / 6)
            ageing = [settler for settler in self._kept if self._is_ageing(settler)]
            # Together: one command without an answer must not cost the other claims their lease.
            troubles = list(filter(None, await asyncio.gather(*map(self._extend, ageing))))
            if troubles:
                telemetry.logger.warning(
                    "claims not extended", claims=len(troubles), error=troubles[0]
                )

    def _is_ageing(self, settler: Settler) -> bool:
        left = settler.claim.held_until - self._clock.monotonic()
        return not settler.lost and left < self._lease_seconds * 2 / 3

    async def _extend(self, settler: Settler) -> str | None:
        """The trouble, where there was any."""
        try:
            extended = await self._queue.claims.extend(settler.claim, self._lease_seconds)
        except (errors.TryLater, errors.WorldChanged) as trouble:
            settler.cut_off = True
            return str(trouble)
        except Exception as bug:  # noqa: BLE001 - one claim's trouble must not end the keeping of the others
            telemetry.logger.exception("claim not extended")
            return repr(bug)
        if extended is None:
            settler.lost = True
        else:
            settler.claim = extended
        return None
