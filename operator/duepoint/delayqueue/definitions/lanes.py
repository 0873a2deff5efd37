"""Names of lanes: in each shard a namespace has one for its Schedules, a set one for its members.

The name is "n" and the namespace, or "s" and the identity of the set, the same in every shard.
``meta`` has a field of that name for each lane; for a set it has the state of the members.
"""

from __future__ import annotations

from typing import NamedTuple

from duepoint.delayqueue import messages
from duepoint.schedules import points

_NAMESPACE, _SET = "n", "s"


class Lane(NamedTuple):
    """The lane that a script writes, and the authority of the writer.

    Attributes:
        epoch: for a namespace: the term of the leader that writes.
        by_rows: for a set: whether a source of rows manages its members, as this writer assumes.
        drops: whether the rows are removed.
    """

    name: str
    epoch: messages.Epoch | None = None
    by_rows: bool = False
    drops: bool = False

    @property
    def writer(self) -> dict[str, object]:
        """Return the script's arguments about the writer."""
        who: dict[str, object] = {"drops": True} if self.drops else {}
        if self.epoch is None:
            return {**who, "by_rows": self.by_rows}
        return {**who, "epoch": self.epoch}


def of_namespace(namespace: str) -> str:
    """Return the lane of a namespace's Schedules."""
    return _NAMESPACE + namespace


def of_set(owner: points.SetIdentity) -> str:
    """Return the lane of a set's members."""
    return _SET + owner.text.decode()


def of_schedule(namespace: str, owner: points.SetIdentity | None) -> str:
    """Return the lane of a Schedule or, if it belongs to a set, of a member."""
    return of_namespace(namespace) if owner is None else of_set(owner)


def parse(lane: str) -> tuple[str, points.SetIdentity | None]:
    """Return namespace and set of a lane; raises ValueError if this is not a lane's name."""
    if lane.startswith(_NAMESPACE):
        return lane[1:], None
    if not lane.startswith(_SET):
        raise ValueError(f"{lane!r} is not the name of a lane")
    owner = points.parse_set(lane[1:].encode())
    return owner.namespace, owner


def is_of_set(lane: str) -> bool:
    """Whether the lane is a set's."""
    return lane.startswith(_SET)


def is_lane(name: bytes) -> bool:
    """Whether this head, or field of ``meta``, may name a lane."""
    return name[:1] == b"n" or (name[:1] == b"s" and b"/" in name)


def count_field(lane: str) -> str:
    """Return the field of ``meta`` that counts the members of a set."""
    return f"c{lane}"


def tally_field(owner: points.SetIdentity) -> str:
    """Return the field of ``meta`` that counts how slots of a set's members ended (runs.lua)."""
    return f"t{owner.uid}"
