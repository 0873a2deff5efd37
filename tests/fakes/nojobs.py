"""An API server that is away, for workers whose slots need no Jobs."""

from __future__ import annotations

from typing import Any, cast

from duepoint.kube import errors, port
from duepoint.targets import jobtarget


class _Away:
    async def request(self, *_: Any, **__: Any) -> bytes:
        raise errors.Unavailable("no API server", sent=False)

    async def list_pages(self, *_: Any, **__: Any) -> Any:
        raise errors.Unavailable("no API server", sent=False)
        yield


def no_jobs() -> jobtarget.ActiveJobs:
    """Slots that depend on Jobs are put off."""
    return jobtarget.ActiveJobs(cast("port.Api", _Away()))
