"""Whether what was written is as safe as its caller asked for.

WAIT and WAITAOF ask for the last write of their own connection, and what a call wrote, or found
written, may have come by another one. So a small write goes behind it, and that one is waited for:
replicas and files have everything in the order in which the server took it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from duepoint import errors
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import index, messages, sharding
from duepoint.delayqueue.members import rows
from duepoint.delayqueue.wire import nodes
from duepoint.schedules import points

#: Scripts of one round trip.
_CALLS_TOGETHER = 64


@dataclass(eq=False)
class Confirmations:
    """Waits for replicas and files."""

    index: index.Index

    async def wait_until_safe(
        self, owner: points.SetIdentity, names: Iterable[str], safety: nodes.Safety
    ) -> None:
        """What stands of these members is safe; raises NotDurable where it is not in time."""
        layout = self.index.known_layout()
        lows = self._lows(owner, names)
        if layout.former is not None:
            await self._wait(layout.former, lows, safety, is_leaving=True)
        await self._wait(layout, lows, safety, is_leaving=False)

    def _lows(self, owner: points.SetIdentity, names: Iterable[str]) -> set[int]:
        ids = rows.Ids(owner, self.index.buckets)
        return {ids.of(name.encode())[1] for name in names}

    async def _wait(
        self, layout: messages.Layout, lows: set[int], safety: nodes.Safety, *, is_leaving: bool
    ) -> None:
        shards = sharding.own_shards(layout)
        last = layout.shards - 1
        calls = [
            self.index.call("confirm", shard) for shard in sorted({shards[n & last] for n in lows})
        ]
        for first in range(0, len(calls), _CALLS_TOGETHER):
            part = calls[first : first + _CALLS_TOGETHER]
            for reply in await self.index.scripts.run_many_safely(part, safety):
                if is_leaving and isinstance(reply, queue_errors.LayoutChanged):
                    continue  # closed: its members have been written elsewhere since
                if isinstance(reply, errors.DuepointError):
                    raise reply
