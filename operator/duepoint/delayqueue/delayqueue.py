"""The delay queue over Redis or Valkey, put together from its services.

One service per question, each with its own file: who may use the index and how it is cut (layouts,
membership), what is to run (definitions, occurrences), what is due (claims), what has become of it
(settlements, concurrency), whether it is all still true (sweeper, suspect_points). They share an
``index.Index`` (servers, scripts, names of keys) and get each other in their constructors; a user
takes the services that it needs.

All methods raise ``errors.QueueUnavailable`` when no server can answer now (its subclass
``Uninitialised``: the index is empty and waits for the operator), and ``errors.WorldChanged`` when
what the caller knew is out of date (``LayoutChanged``; ``Fenced``: a newer leader has been here).
Losing a claim is an answer, not an error. Instants are microseconds since the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from duepoint import clock as clocks
from duepoint.delayqueue import (
    circuits,
    deadletters,
    index,
    keys,
    layouts,
    ledger,
    membership,
    port,
    serverhealth,
    wakeups,
)
from duepoint.delayqueue import quotas as quotas_
from duepoint.delayqueue.claims import claiming, prefetch, settling
from duepoint.delayqueue.concurrency import admission
from duepoint.delayqueue.definitions import (
    briefing,
    interning,
    numbering,
    occurrences,
    reading,
    seal,
    service,
    upsert,
)
from duepoint.delayqueue.inspection import counts, heldclaims, upcoming
from duepoint.delayqueue.repair import collector, mending, suspectpoints, sweeper
from duepoint.delayqueue.resharding import export, moves, resharding
from duepoint.delayqueue.streams import userstreams
from duepoint.delayqueue.wire import connecting, serverclock, servers


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayQueue:
    """The services of one index.

    Attributes:
        index: what they share.
        layouts: which layout the index has, and whose it is.
        membership: making the index; which workers live.
        health: whether the servers are there and fit.
        definitions, occurrences: what is to run.
        claims, settlements, concurrency: a worker's turn.
        streams: users' streams.
        circuits: receivers in trouble.
        dead_letters: what was given up on.
        resharding: another number of shards.
        sweeper, collector, suspect_points: repair.
        counts, upcoming, held_claims: inspection; nothing is changed.
    """

    index: index.Index
    layouts: layouts.Layouts
    membership: membership.Membership
    health: serverhealth.ServerHealth
    definitions: service.Definitions
    occurrences: occurrences.Occurrences
    reader: reading.Reader
    numbering: numbering.Numbering
    interned: interning.Interned
    seal: seal.Seal
    claims: claiming.Claims
    settlements: settling.Settlements
    concurrency: admission.Concurrency
    streams: userstreams.Streams
    circuits: circuits.Circuits
    dead_letters: deadletters.DeadLetters
    resharding: resharding.Resharding
    moves: moves.Moves
    sweeper: sweeper.Sweeper
    collector: collector.Collector
    suspect_points: suspectpoints.SuspectPoints
    counts: counts.Counts
    upcoming: upcoming.Upcoming
    held_claims: heldclaims.HeldClaims
    server_clock: serverclock.ServerClock
    prefetch: prefetch.Foresight

    async def start(self) -> None:
        """Connect and load the scripts; raises QueueUnavailable when no server answers."""
        await self.index.start()

    async def close(self) -> None:
        await self.index.close()

    def wakeups(self) -> port.Wakeups:
        """A new alarm clock over all shards; the layout must have been read."""
        return wakeups.RedisWakeups(
            servers=self.index.servers,
            names=self.index.shard,
            layout=self.index.known_layout(),
            clock=self.index.clock,
            server_clock=self.server_clock,
            expect_lane=self.claims.expect_lane,
            expect=self.prefetch.expect,
        )

    def ledger(self) -> port.Ledger:
        """A new reader of outcomes and dead letters; the layout must have been read."""
        return ledger.RedisLedger(
            servers=self.index.servers, names=self.index.shard, layout=self.index.known_layout
        )


def connect(
    url: str,
    *,
    blob_key: bytes,
    prefix: str = keys.DEFAULT_PREFIX,
    clock: clocks.Clock | None = None,
    connections: int = 8,
    password_file: Path | None = None,
    server: connecting.Server | None = None,
    opened: servers.Servers | None = None,
    buckets: int = keys.BUCKETS,
    quotas: quotas_.Quotas = quotas_.USUAL,
) -> DelayQueue:
    """The queue behind a URL; connections are made when they are needed.

    Args:
        server: how to connect, where the URL does not say it all; takes the place of ``url``.
        opened: the servers themselves; takes the place of both.
        buckets: of a new index; one that exists says its own number.
    """
    server = server or connecting.Server(url=url, password_file=password_file)
    opened = opened or servers.open_servers(server, connections=connections)
    clock = clock or clocks.SystemClock()
    return _composed(
        index.Index(opened, keys.Keys(prefix), clock, buckets=buckets), seal.Seal(blob_key), quotas
    )


def _composed(shared: index.Index, sealed: seal.Seal, quotas: quotas_.Quotas) -> DelayQueue:
    """Every service, from the bottom up."""
    interned = interning.Interned()
    # A server that went back in time gives the numbers of what it forgot to other texts.
    shared.servers.on_upheaval.append(interned.forget_all)
    known = layouts.Layouts(index=shared)
    members = membership.Membership(index=shared, layouts=known)
    reader = reading.Reader(index=shared, layouts=known, interned=interned, seal=sealed)
    numbers = numbering.Numbering(index=shared, interned=interned)
    moving = moves.Moves(
        index=shared, layouts=known, reader=reader, numbering=numbers, interned=interned
    )
    enqueued = occurrences.Occurrences(index=shared, layouts=known, numbering=numbers, moves=moving)
    stored = upsert.Upsert(
        index=shared,
        layouts=known,
        numbering=numbers,
        interned=interned,
        seal=sealed,
        moves=moving,
    )
    definitions = service.Definitions(
        reader=reader,
        briefing=briefing.Briefing(index=shared, reader=reader, interned=interned),
        upsert=stored,
        occurrences=enqueued,
    )
    exports = export.Export(index=shared, reader=reader, moves=moving)
    server_clock = serverclock.ServerClock(shared.clock)
    expected = prefetch.Foresight()
    counted = counts.Counts(index=shared, reader=reader)
    points = upcoming.Upcoming(index=shared, reader=reader, counts=counted)
    return DelayQueue(
        index=shared,
        layouts=known,
        membership=members,
        health=serverhealth.ServerHealth(index=shared),
        definitions=definitions,
        occurrences=enqueued,
        reader=reader,
        numbering=numbers,
        interned=interned,
        seal=sealed,
        claims=claiming.Claims(
            index=shared,
            layouts=known,
            reader=reader,
            moves=moving,
            prefetch=expected,
            server_clock=server_clock,
        ),
        settlements=settling.Settlements(
            index=shared, layouts=known, prefetch=expected, quotas=quotas
        ),
        concurrency=admission.Concurrency(index=shared, layouts=known, numbering=numbers),
        streams=userstreams.Streams(index=shared, quotas=quotas),
        circuits=circuits.Circuits(index=shared),
        dead_letters=deadletters.DeadLetters(index=shared, reader=reader),
        resharding=resharding.Resharding(
            index=shared, layouts=known, membership=members, reader=reader, export=exports
        ),
        moves=moving,
        sweeper=sweeper.Sweeper(
            index=shared, reader=reader, mending=mending.Mending(index=shared, reader=reader)
        ),
        collector=collector.Collector(index=shared, reader=reader, counts=counted),
        suspect_points=suspectpoints.SuspectPoints(index=shared, reader=reader),
        counts=counted,
        upcoming=points,
        held_claims=heldclaims.HeldClaims(index=shared, counts=counted, upcoming=points),
        server_clock=server_clock,
        prefetch=expected,
    )
