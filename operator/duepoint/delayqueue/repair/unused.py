"""Blobs and interned texts that no definition names any more, removed.

An edit of what a Schedule does stores a new blob and leaves the old one: others may share it, and
counting users would cost every write. So a walk over the shard notes what the definitions name, and
one fenced script marks the rest; what has been marked for a day is removed. Who stores a definition
meanwhile takes the marks off, and asks for another number where one is gone. Nothing is removed
from a shard that holds a definition which cannot be read here, nor while the queue is resharded:
what those use is not known.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from duepoint.delayqueue import index, messages
from duepoint.delayqueue.definitions import interning
from duepoint.schedules.sets import setrecord

#: How long a blob has to be unused: as long as a delivery may be retried.
PATIENCE_SECONDS = 86_400.0
#: Blobs come with their contents, of some kilobytes each.
_BLOBS_TOGETHER = 50
_NAMES_TOGETHER = 200
_TEXTS_TOGETHER = 300
_DIGEST_LENGTH = 24
_RULE = interning.TextKind.RULE.encode()
_TARGET = interning.TextKind.TARGET.encode()
_SET = interning.TextKind.SET.encode()


@dataclass(slots=True)
class Used:
    """What the definitions of a shard name by number.

    Attributes:
        numbers: rules, targets and lanes.
        targets: those of targets alone.
        is_known: every definition could be read.
    """

    numbers: set[int] = field(default_factory=set)
    targets: set[int] = field(default_factory=set)
    is_known: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """What one step has marked or removed.

    Attributes:
        marked: blobs that were found to be unused for the first time.
        blobs: that are gone now.
        texts: interned rules and digests that are gone now.
    """

    marked: int = 0
    blobs: int = 0
    texts: int = 0


NOTHING = Removed()


@dataclass(eq=False)
class Unused:
    """Removes what no definition names any more."""

    index: index.Index

    async def remove(
        self,
        shard: messages.ShardId,
        epoch: messages.Epoch,
        used: Used,
        lanes: Iterable[int],
        patience_seconds: float,
    ) -> AsyncIterator[Removed]:
        """In small steps: the caller rests between them."""
        digests = await self._digests_of_sets(shard, lanes)
        unseen = set(used.targets)
        async for fields in self._scan(self.index.shard(shard).interned, _TEXTS_TOGETHER):
            numbered = {int(name[2:]): text for name, text in fields.items() if name[:2] == b"n:"}
            for number in unseen & numbered.keys():
                if numbered[number].startswith((_TARGET, _SET)):
                    unseen.discard(number)
                    digests.add(numbered[number].removeprefix(_TARGET))
            marked = {int(name[2:]) for name in fields if name[:2] == b"m:"}
            # The number of a namespace or a set is its lane's, too.
            texts = {n for n, text in numbered.items() if text.startswith((_RULE, _TARGET))}
            fields_of = {"name": "n:", "mark": "m:", "twin": "t:"}
            _, gone = await self._mark(
                shard, epoch, self.index.shard(shard).interned, fields_of, patience_seconds,
                unused=[str(number) for number in sorted(texts - used.numbers)],
                used=[str(number) for number in sorted(marked & used.numbers)],
            )  # fmt: skip
            yield Removed(texts=gone)
        if unseen:
            return  # what these definitions do is not known
        async for fields in self._scan(self.index.shard(shard).blobs, _BLOBS_TOGETHER):
            names = {name for name in fields if len(name) == _DIGEST_LENGTH}
            newly, gone = await self._mark(
                shard, epoch, self.index.shard(shard).blobs, {"name": "", "mark": ":"},
                patience_seconds,
                unused=sorted(names - digests),
                used=sorted({name[1:] for name in fields if name[:1] == b":"} & digests),
            )  # fmt: skip
            yield Removed(marked=newly, blobs=gone)

    async def _scan(self, key: str, count: int) -> AsyncIterator[dict[bytes, bytes]]:
        """The fields of a hash, some at a time; a small one comes whole."""
        cursor = 0
        while True:
            scan = ("HSCAN", key, cursor, "COUNT", count)
            ((cursor, found),) = await self.index.read("look for what is used", scan)
            listed = list(found.items())
            for first in range(0, max(1, len(listed)), _NAMES_TOGETHER):
                yield dict(listed[first : first + _NAMES_TOGETHER])
            if int(cursor) == 0:
                return

    async def _digests_of_sets(self, shard: messages.ShardId, lanes: Iterable[int]) -> set[bytes]:
        """What the shard's sets do for their members."""
        replies = await self.index.read_many(
            "look for what is used",
            [("HMGET", self.index.shard(shard).meta, f"s{lane}") for lane in lanes],
        )
        return {setrecord.parse_entry(entry).target.encode() for (entry,) in replies if entry}

    async def _mark(
        self,
        shard: messages.ShardId,
        epoch: messages.Epoch,
        key: str,
        fields_of: Mapping[str, str],
        patience_seconds: float,
        *,
        unused: Sequence[bytes | str],
        used: Sequence[bytes | str],
    ) -> tuple[int, int]:
        """How many unused values of a hash were marked, and removed.

        Args:
            fields_of: how their fields begin.
        """
        if not unused and not used:
            return 0, 0
        patience = int(patience_seconds * 1e6)
        call = self.index.call("collect", shard, key, epoch=epoch, patience=patience, **fields_of)
        call.put(unused=call.run(unused), used=call.run(used))
        marked, removed = await self.index.scripts.run(call)
        return int(marked), int(removed)
