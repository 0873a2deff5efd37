"""The plan of faults, which a seed decides; pure.

Faults come in *rounds*. The calm between them is longer than a recovery, so the checker sees that
slots become punctual again. Kinds are dealt from three shuffled decks, so none comes up twice
before all of its deck have come up once. Kinds after which a process must start or a server recover
have a deck of their own: a machine has time for fewer of them. Receivers fail only in the first
third of a round, because the wait of a circuit doubles with each failed probe.
"""

from __future__ import annotations

import dataclasses
import enum
import random
from collections.abc import Collection, Iterator, Sequence


class FaultKind(enum.StrEnum):
    """The kinds of faults of processes, connections and servers."""

    # -- processes ---------------------------------------------------------------------------
    KILL_WORKER = "kill-worker"
    PAUSE_WORKER = "pause-worker"
    DRAIN_WORKER = "drain-worker"
    KILL_LEADER = "kill-leader"
    PAUSE_LEADER = "pause-leader"
    LEASE_DELETED = "lease-deleted"
    DIES_AT_POINT = "dies-at-point"
    WRONG_CLOCK = "wrong-clock"
    # -- a process's connections ---------------------------------------------------------------
    REDIS_CUT = "redis-cut"
    REDIS_LOST_REPLIES = "redis-lost-replies"
    REDIS_LATE_REPLIES = "redis-late-replies"
    REDIS_HALF_OPEN = "redis-half-open"
    API_LOST_REPLIES = "api-lost-replies"
    API_LATE_REPLIES = "api-late-replies"
    API_HALF_OPEN = "api-half-open"
    API_REFUSED = "api-refused"
    # -- servers -------------------------------------------------------------------------------
    REDIS_RESTART = "redis-restart"
    REDIS_TAIL_LOST = "redis-tail-lost"
    REDIS_STOPPED = "redis-stopped"
    REDIS_FLUSHED = "redis-flushed"
    REDIS_FULL = "redis-full"
    SCRIPTS_FLUSHED = "scripts-flushed"
    CLIENTS_KILLED = "clients-killed"
    FAILOVER = "failover"
    FAILOVER_LOSING = "failover-losing"
    API_STOPPED = "api-stopped"
    ETCD_STOPPED = "etcd-stopped"
    # -- receivers -----------------------------------------------------------------------------
    RECEIVER_REFUSES = "receiver-refuses"
    RECEIVER_HANGS = "receiver-hangs"
    RECEIVER_CUTS = "receiver-cuts"


#: How long each lasts, in seconds; kinds without an entry are instantaneous.
LASTING: dict[FaultKind, tuple[float, float]] = {
    FaultKind.KILL_WORKER: (0.5, 3),
    FaultKind.PAUSE_WORKER: (1, 9),
    FaultKind.KILL_LEADER: (0.5, 3),
    FaultKind.PAUSE_LEADER: (2, 20),
    FaultKind.WRONG_CLOCK: (5, 8),
    FaultKind.REDIS_LOST_REPLIES: (0.1, 0.5),
    FaultKind.REDIS_LATE_REPLIES: (0.3, 4),
    FaultKind.REDIS_HALF_OPEN: (2, 12),
    FaultKind.API_LOST_REPLIES: (0.2, 1),
    FaultKind.API_LATE_REPLIES: (0.3, 4),
    FaultKind.API_HALF_OPEN: (2, 12),
    FaultKind.API_REFUSED: (1, 8),
    FaultKind.REDIS_RESTART: (0.2, 2),
    FaultKind.REDIS_TAIL_LOST: (0.2, 2),
    FaultKind.REDIS_STOPPED: (0.5, 4),
    FaultKind.REDIS_FULL: (1, 5),
    FaultKind.FAILOVER_LOSING: (0.2, 2),
    FaultKind.API_STOPPED: (2, 12),
    FaultKind.ETCD_STOPPED: (1, 6),
    FaultKind.RECEIVER_REFUSES: (1, 4),
    FaultKind.RECEIVER_HANGS: (1, 4),
    FaultKind.RECEIVER_CUTS: (1, 4),
}
#: Kinds after which a process must start, or a shared server recover; the others cost no time.
COSTLY = frozenset(
    {
        FaultKind.KILL_WORKER, FaultKind.DRAIN_WORKER, FaultKind.KILL_LEADER,
        FaultKind.LEASE_DELETED, FaultKind.DIES_AT_POINT, FaultKind.WRONG_CLOCK,
        FaultKind.REDIS_RESTART,
        FaultKind.REDIS_TAIL_LOST, FaultKind.REDIS_STOPPED, FaultKind.REDIS_FLUSHED,
        FaultKind.REDIS_FULL, FaultKind.SCRIPTS_FLUSHED,
        FaultKind.CLIENTS_KILLED, FaultKind.FAILOVER, FaultKind.FAILOVER_LOSING,
        FaultKind.API_STOPPED, FaultKind.ETCD_STOPPED,
    }
)  # fmt: skip
#: The receiver's kinds: one after the other, and only in a part of a round.
OF_RECEIVER = frozenset(
    {FaultKind.RECEIVER_REFUSES, FaultKind.RECEIVER_HANGS, FaultKind.RECEIVER_CUTS}
)
_SHARE_OF_RECEIVER = 1 / 3
_RECEIVER_EVERY_SECONDS = 3.0
#: How many processes of each role there are.
WORKERS, OPERATORS = 3, 2


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFault:
    """Attributes:
    at_seconds: when it happens, from the beginning of the plan.
    lasts_seconds: 0 if it is instantaneous.
    begins_by_seconds: it is left out if earlier faults keep it from beginning by then.
    number: chooses the process; kinds without a choice ignore it.
    amount: from 0 to 1, for kinds that come in sizes, such as how much is lost.
    """

    at_seconds: float
    kind: FaultKind
    lasts_seconds: float
    begins_by_seconds: float
    number: int
    amount: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    """Attributes:
    rounds: how many.
    faults_seconds, calm_seconds: how long each of them, and the calm after it.
    every_seconds: from one fault to the next, on average.
    costly_every_seconds: the same for costly ones.
    """

    rounds: int
    faults_seconds: float
    calm_seconds: float
    every_seconds: float
    costly_every_seconds: float

    @property
    def seconds(self) -> float:
        """Return the length of the whole plan, the last calm included."""
        return self.rounds * (self.faults_seconds + self.calm_seconds)


def of_seed(seed: int, rhythm: Rhythm, kinds: Collection[FaultKind]) -> list[PlannedFault]:
    """Return the plan in order of time; the same for the same arguments.

    Raises:
        ValueError: there is no kind to choose from.
    """
    chosen = frozenset(kinds)
    if not chosen:
        raise ValueError("a plan needs at least one kind of fault")
    costly, of_receiver = COSTLY & chosen, OF_RECEIVER & chosen
    others = chosen - costly - of_receiver
    found = [
        *_dealt(random.Random(seed), sorted(costly), rhythm, rhythm.costly_every_seconds),
        *_dealt(random.Random(~seed), sorted(others), rhythm, rhythm.every_seconds),
        *_dealt(
            random.Random(f"{seed} receiver"),
            sorted(of_receiver),
            rhythm,
            _RECEIVER_EVERY_SECONDS,
            share=_SHARE_OF_RECEIVER,
        ),
    ]
    return sorted(found, key=lambda planned: planned.at_seconds)


def _dealt(
    chance: random.Random,
    kinds: Sequence[FaultKind],
    rhythm: Rhythm,
    every_seconds: float,
    share: float = 1.0,
) -> list[PlannedFault]:
    """Deal the faults of one deck in the first ``share`` of each round; none from an empty one."""
    deck = _deck(chance, kinds)
    found: list[PlannedFault] = []
    for number in range(rhythm.rounds if kinds else 0):
        begin = number * (rhythm.faults_seconds + rhythm.calm_seconds)
        at, end = begin, begin + rhythm.faults_seconds * share
        while at < end:
            kind = next(deck)
            shortest, longest = LASTING.get(kind, (0.0, 0.0))
            found.append(
                PlannedFault(
                    at_seconds=at,
                    kind=kind,
                    lasts_seconds=chance.uniform(shortest, longest),
                    begins_by_seconds=end,
                    number=chance.randrange(WORKERS + OPERATORS),
                    amount=chance.random(),
                )
            )
            at += chance.uniform(0.5, 1.5) * every_seconds
    return found


def _deck(chance: random.Random, kinds: Sequence[FaultKind]) -> Iterator[FaultKind]:
    while True:
        yield from chance.sample(kinds, len(kinds))
