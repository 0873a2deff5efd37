"""Numbers for texts that many definitions of a shard share.

A shard gives each text (namespace, rule, target) a number, for as long as it lives; what was given
is remembered here. A shard made anew in between says so by its incarnation, and is asked again.
"""

from __future__ import annotations

from duepoint.delayqueue import messages, sharding
from duepoint.delayqueue.layout import layouts
from duepoint.delayqueue.wire import scripting


class Numbering(layouts.Layouts):
    """Interning, for those who write definitions."""

    async def _intern(
        self, shard: messages.ShardId, texts: list[bytes], epoch: messages.Epoch
    ) -> dict[bytes, int]:
        cached = {text: self._interned.number(shard, text) for text in texts}
        missing = [text for text, number in cached.items() if number is None]
        known = {text: number for text, number in cached.items() if number is not None}
        if not missing:
            return known
        arguments = scripting.Arguments(layout=sharding.layout_of(shard), epoch=epoch)
        arguments.put("texts", arguments.run(missing))
        names = self._shard(shard)
        call = arguments.call("intern", [names.meta, names.interned])
        reply = await self._gathered.run(call)
        incarnation = reply[0].decode()
        if self._interned.incarnation(shard) not in (None, incarnation):
            self._interned.see(shard, incarnation)  # what was cached is of a former life
            return await self._intern(shard, texts, epoch)
        self._interned.see(shard, incarnation)
        for text, number in zip(missing, reply[1:], strict=True):
            self._interned.learn(shard, number, text)
            known[text] = number
        return known
