"""What the servers promise of what they hold: persistence, replicas, and what can be lost.

Schedules are made again from their objects; members of sets are not, so their users want to know.
INFO says whether there is an append-only file, whether snapshots have been saved, and how many
replicas are connected. How often the file is synchronised only the configuration says, which is
not read (it holds passwords, too): the sentence names both cases. Of several servers the weakest
one counts. Nothing is changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from duepoint.delayqueue import index
from duepoint.delayqueue.wire import scripting

_ASKED = (("INFO", "persistence"), ("INFO", "replication"))
#: From the weakest to the strongest.
_PERSISTENCES = ("none", "rdb", "aof", "aof+rdb")

_BY_FILE = (
    "about the last second of changes when a server dies (appendfsync everysec, the default), and"
    " nothing with appendfsync always"
)
_LOST = {
    "none": (
        "every member when a server restarts: it keeps no append-only file and has saved no"
        " snapshot since it started"
    ),
    "rdb": "every change since the last snapshot when a server restarts",
    "aof": _BY_FILE,
    "aof+rdb": _BY_FILE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerDurability:
    """The promise of the weakest server.

    Attributes:
        persistence: ``aof``, ``rdb``, ``aof+rdb`` or ``none``.
        replicas: connected ones.
    """

    persistence: str
    replicas: int = 0

    @property
    def loss_window(self) -> str:
        """What can be lost when a server is lost, in a sentence."""
        lost = _LOST[self.persistence]
        if not self.replicas:
            return f"{lost}; there is no replica"
        count = "1 replica" if self.replicas == 1 else f"{self.replicas} replicas"
        return f"{lost}; a failover to one of {count} loses what had not reached it"


@dataclass(eq=False)
class DurabilityProbe:
    """Asks the servers."""

    index: index.Index

    async def read(self) -> ServerDurability:
        """As the servers answer now; raises QueueUnavailable where none does."""
        nodes = await self.index.servers.everywhere(_ASKED)
        infos = scripting.of_those_there(nodes, "read how the server keeps what it holds")
        found = [_of(persistence, replication) for persistence, replication in infos]
        return ServerDurability(
            persistence=min((one.persistence for one in found), key=_PERSISTENCES.index),
            replicas=min(one.replicas for one in found),
        )


def _of(persistence: dict[str, Any], replication: dict[str, Any]) -> ServerDurability:
    has_file = int(persistence.get("aof_enabled") or 0) > 0
    has_snapshots = int(persistence.get("rdb_saves") or 0) > 0
    kinds = ["aof"] * has_file + ["rdb"] * has_snapshots
    return ServerDurability(
        persistence="+".join(kinds) or "none",
        replicas=int(replication.get("connected_slaves") or 0),
    )
