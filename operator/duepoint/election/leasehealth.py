"""Says in readiness whether the API server lets us see our Lease.

The elector treats every failure as a failed renewal and goes on; nobody would know why a lone
operator never leads. This port passes everything through and tells the health of the process.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from duepoint import services, telemetry
from duepoint.kube import errors, leases

PART = "lease"

AnswerT = TypeVar("AnswerT")


class WatchedLease:
    """A ``leases.LeasePort`` around another."""

    def __init__(self, lease: leases.LeasePort, health: services.Health) -> None:
        self._lease = lease
        self._health = health
        health.expect(PART)

    async def get(self) -> leases.Lease | None:
        return await self._told(self._lease.get())

    async def create(self, lease: leases.Lease) -> leases.Lease | None:
        return await self._told(self._lease.create(lease))

    async def update(self, lease: leases.Lease) -> leases.Lease | None:
        return await self._told(self._lease.update(lease))

    async def _told(self, call: Awaitable[AnswerT]) -> AnswerT:
        try:
            answer = await call
        except errors.ApiError as trouble:
            if self._health.unwell(PART, str(trouble)):
                telemetry.logger.warning("the Lease cannot be reached", error=str(trouble))
            raise
        self._health.well(PART)
        return answer
