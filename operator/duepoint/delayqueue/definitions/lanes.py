"""The lanes of a shard, by name: a namespace has one for its Schedules, a set one for its members.

A lane is called "n" and the namespace, or "s" and the identity of the set, in every shard. ``meta``
has a field of that name for each lane, which says of a set what may happen to its members.
"""

from __future__ import annotations

from typing import NamedTuple

from duepoint.delayqueue import messages
from duepoint.schedules import points

_NAMESPACE, _SET = "n", "s"


class Lane(NamedTuple):
    """A lane whose rows are written, and by whom.

    Attributes:
        epoch: of a namespace: the term of the leader that writes.
        by_rows: of a set: it is written for the rows of the set.
        drops: the rows are removed.
    """

    name: str
    epoch: messages.Epoch | None = None
    by_rows: bool = False
    drops: bool = False

    @property
    def writer(self) -> dict[str, object]:
        """What a script learns of who writes."""
        who: dict[str, object] = {"drops": True} if self.drops else {}
        if self.epoch is None:
            return {**who, "by_rows": self.by_rows}
        return {**who, "epoch": self.epoch}


def of_namespace(namespace: str) -> str:
    """The lane of a namespace's Schedules."""
    return _NAMESPACE + namespace


def of_set(owner: points.SetIdentity) -> str:
    """The lane of a set's members."""
    return _SET + owner.text.decode()


def of_schedule(namespace: str, owner: points.SetIdentity | None) -> str:
    """The lane of a Schedule or, where it belongs to a set, of a member."""
    return of_namespace(namespace) if owner is None else of_set(owner)


def parse(lane: str) -> tuple[str, points.SetIdentity | None]:
    """Namespace and set of a lane; raises ValueError where the name is not one of a lane."""
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
    """The field of ``meta`` that counts the members of a set."""
    return f"c{lane}"


def tally_field(owner: points.SetIdentity) -> str:
    """The field of ``meta`` that says how slots of a set's members have ended (runs.lua)."""
    return f"t{owner.uid}"
