"""``--timeout`` of a command: how long all that it asks may take."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from duepoint import errors
from duepoint.cli import output


@contextlib.asynccontextmanager
async def limited(seconds: float | None) -> AsyncIterator[None]:
    """No longer than so many seconds; None = as long as it takes.

    Raises:
        errors.InvalidSetting: they are over.
    """
    try:
        async with asyncio.timeout(seconds) as limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        message = f"it was not done within {output.span(seconds or 0)}; write a longer one"
        raise errors.InvalidSetting("--timeout", message) from None
