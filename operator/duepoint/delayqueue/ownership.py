"""Whose index it is: one cluster's, told by the uids of namespaces.

Two clusters that are given the same Redis must not touch each other's index: the operator of one
would remove what the other has armed, and its workers would make Jobs of the other's Schedules in
the wrong place. So the operator that makes an index marks it: the layout record and each shard say
whose it is. Every process reads the mark with the layout, compares it with what its own API server
says, and from then on names the mark to each script, which refuses where it finds another one (the
server was emptied and the other cluster was first). That costs no round trip. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

_NOTHING = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A cluster, as far as a process may see it.

    Attributes:
        cluster: uid of the namespace kube-system; "" where it may not be read.
        home: uid of the namespace of the installation; "" where it may not be read.
    """

    cluster: str = ""
    home: str = ""

    @property
    def mark(self) -> str:
        """As it stands in the index."""
        return f"{self.cluster or _NOTHING} {self.home or _NOTHING}"

    def is_of(self, mark: str) -> bool:
        """Whether a mark may be ours: the best that both sides know is the same."""
        cluster, _, home = mark.partition(" ")
        if self.cluster and cluster not in ("", _NOTHING):
            return self.cluster == cluster
        return bool(self.home) and self.home == home
