"""Many firings in one call, for targets that can take them so.

A ``FiringBatch`` is what hundreds of firings have in common, and a row for what they have not; a
target that takes batches answers row by row. What it does not deliver is fired again alone, so a
batch has no failures of its own. Optional: a target without it is fired one by one. Optional too
is a ``SettledTarget``: it does not send, the settlement of the point does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from duepoint.delayqueue import messages
from duepoint.runs import outcome
from duepoint.schedules import actions

if TYPE_CHECKING:
    from duepoint.targets import target


@dataclass(frozen=True, slots=True, kw_only=True)
class FiringBatch:
    """First attempts of regular slots, many schedules of one namespace with one action.

    The columns ``names``, ``uids``, ``generations`` and ``slots_us`` belong together row by row;
    a slot is its own due. So do, for Jobs, ``previous_us`` and ``time_zones``.

    Attributes:
        note_row: to be called as each row is delivered, where rows take their time.
    """

    action: actions.Action
    namespace: str
    trigger: str
    names: Sequence[str]
    uids: Sequence[str]
    generations: Sequence[int]
    slots_us: Sequence[int]
    not_after_monotonic: float
    previous_us: Sequence[int | None] = ()
    time_zones: Sequence[str] = ()
    note_row: Callable[[], None] = lambda: None


class MadeJob(NamedTuple):
    """The Job of a row: when its creation was begun, and when it was answered."""

    name: str
    begun_monotonic: float
    accepted_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAnswer:
    """What came of a batch: a message for each row, None for one that was not delivered.

    Of Jobs, ``jobs`` has those of all rows that were.
    """

    accepted_us: int
    messages: Sequence[str | None]
    jobs: Sequence[MadeJob | None] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What a firing adds to a stream of the queue's own Redis, for the settlement to take along.

    ``message`` tells of it in the Schedule's status.
    """

    namespace: str
    name: str
    max_length: int
    names: Sequence[str]
    values: Sequence[bytes | str]
    message: str

    @property
    def stream(self) -> tuple[str, str, int]:
        """Entries of one stream go together."""
        return self.namespace, self.name, self.max_length


@runtime_checkable
class SettledTarget(Protocol):
    """A target of which some deliveries are made by the settlement, exactly once."""

    def settles(self, action: actions.Action) -> bool:
        """Whether ``entry_of`` is to be asked, and ``fire`` is not."""
        ...

    def entry_of(self, firing: target.Firing) -> Entry:
        """What is appended when this firing's point is settled."""
        ...

    def entries_of(self, batch: FiringBatch, members: Sequence[bytes]) -> messages.Entries:
        """What is appended when these members, one for each row, are settled."""
        ...

    def message_of(self, action: actions.Action) -> str:
        """What is told of a delivered entry."""
        ...

    def count(self, action: actions.Action, answer: outcome.Outcome, times: int = 1) -> None:
        """Take note of what came of it, so many times."""
        ...


@runtime_checkable
class BatchTarget(Protocol):
    """A target that some actions can be handed to many at a time."""

    def takes_batches(self, action: actions.Action) -> bool:
        """Whether ``fire_batch`` may be asked for this action."""
        ...

    async def fire_batch(self, batch: FiringBatch) -> BatchAnswer:
        """What was not delivered is to be fired one by one, and is answered for there."""
        ...
