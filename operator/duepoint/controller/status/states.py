"""The states of all Schedules, with queries for other services.

Only the reporter changes states; all others query them here. "Published" means in the API server:
the history limits delete Jobs by that alone. Other queries use all that we know, published or not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from duepoint.controller.status.state import ScheduleState
from duepoint.schedules.definition import Definition

#: Reads the definition in the queue for (uid, namespace); raises QueueUnavailable.
Definitions = Callable[[str, str], Awaitable[Definition | None]]


class ScheduleStates(dict[str, ScheduleState]):
    """States by the uid of their Schedule; one for each term.

    Args:
        definitions: as above.
    """

    def __init__(self, definitions: Definitions) -> None:
        super().__init__()
        self._definitions = definitions

    async def definition(self, uid: str) -> Definition | None:
        """Return the definition in the queue, read at most once; raises QueueUnavailable."""
        state = self.get(uid)
        if state is None:
            return None
        if state.definition is None and not state.holds_nothing and state.conditions is None:
            read = await self._definitions(state.uid, state.namespace)
            if state.conditions is None:  # no report arrived meanwhile
                state.definition = read
        return state.definition

    def watermark_us(self, uid: str) -> int:
        """Return the watermark, published or not."""
        state = self.get(uid)
        return 0 if state is None else state.runs().settled_us
