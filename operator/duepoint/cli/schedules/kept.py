"""Older slots of a Schedule, which the queue has kept: for people who may read the queue.

Without an address nothing is asked, and the answer says that there is more to ask.
"""

from __future__ import annotations

import os

from duepoint import clock, errors
from duepoint.cli import output
from duepoint.cli.schedules.facts import ScheduleFacts
from duepoint.controller.status import recent

#: Blobs are not opened here, so nothing needs the installation's key.
_NO_KEY = bytes(32)


async def with_kept(facts: ScheduleFacts, redis_url: str | None) -> ScheduleFacts:
    """With what the queue has kept; unchanged where its address is unknown or it cannot be read.

    Raises:
        errors.InvalidSetting: the address, or another setting of Redis, is wrong.
    """
    from duepoint import settings  # noqa: PLC0415 - only those who ask Redis pay for it

    if redis_url is None and settings.variable("redis_url") not in os.environ:
        return facts
    from duepoint import telemetry  # noqa: PLC0415 - the same
    from duepoint.delayqueue import delayqueue  # noqa: PLC0415 - the same

    chosen = settings.from_environment(settings.QueueSettings, {"redis_url": redis_url})
    queue = delayqueue.open_queue(chosen, clock.SystemClock(), _NO_KEY)
    try:
        with telemetry.silence():
            await queue.layouts.read()
            view = await queue.upcoming.schedule_view(facts.namespace, uid=facts.uid)
            slots = () if view is None else await queue.history.of(view.known.id)
    except (errors.TryLater, errors.WorldChanged) as trouble:
        output.complain(f"the queue cannot be asked for older slots: {trouble}")
        return facts
    finally:
        await queue.close()
    return facts.known(kept=tuple(map(recent.as_shown, slots)))
