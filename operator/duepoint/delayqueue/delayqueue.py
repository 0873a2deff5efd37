"""The delay queue over Redis or Valkey, put together from its services.

One service per question, each in its own module: who may use the index and how it is sharded
(layouts, membership), what has to run (definitions, occurrences), what is due (claims), how it
ended (settlements, concurrency), whether it is still consistent (sweeper, suspect_points). They
share an ``index.Index`` (servers, scripts, names of keys) and get each other in their constructors;
a user takes the services that it needs.

All methods raise ``errors.QueueUnavailable`` when no server can answer now (its subclass
``Uninitialised``: the index is empty and waits for the operator), and ``errors.WorldChanged`` when
what the caller knew is out of date (``LayoutChanged``; ``Fenced``: a newer leader has been here).
A lost claim is a return value, not an error. Instants are microseconds since the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from duepoint import clock as clocks
from duepoint import settings
from duepoint.delayqueue import (
    admission,
    circuits,
    deadletters,
    index,
    keys,
    layouts,
    ledger,
    membership,
    serverhealth,
    streams,
    wakeups,
)
from duepoint.delayqueue import quotas as quotas_
from duepoint.delayqueue.claims import claiming, prefetch, settling
from duepoint.delayqueue.definitions import (
    columns,
    interning,
    moves,
    occurrences,
    reading,
    signedblobs,
    upsert,
)
from duepoint.delayqueue.inspection import counts, upcoming
from duepoint.delayqueue.repair import collector, mending, suspectpoints, sweeper
from duepoint.delayqueue.resharding import export, resharding
from duepoint.delayqueue.wire import connecting, servers


class Definitions:
    """Operations on stored definitions; each is documented where it is defined."""

    def __init__(
        self,
        *,
        reader: reading.DefinitionReader,
        columns: columns.ColumnReader,
        upsert: upsert.Upsert,
        occurrences: occurrences.Occurrences,
    ) -> None:
        self.digest = upsert.digest
        self.upsert = upsert.upsert
        self.remove = occurrences.remove
        self.definition = reader.definition
        self.read_definitions = reader.read_definitions
        self.read_columns = columns.read_columns
        self.known = reader.known
        self.all_definitions = reader.all_definitions
        self.namespaces = reader.namespaces
        self.blob = reader.blob


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayQueue:
    """The services of one index.

    Attributes:
        index: what they share.
        layouts: which layout the index has, and whose it is.
        membership: creating the index; which workers are alive.
        health: whether the servers are there and fit.
        definitions, occurrences: what has to run.
        claims, settlements, concurrency: a worker's turn.
        streams: users' streams.
        circuits: receivers in trouble.
        dead_letters: points that were given up on.
        resharding: another number of shards.
        sweeper, collector, suspect_points: repair.
        counts, upcoming, held_claims: inspection; nothing is changed.
    """

    index: index.Index
    layouts: layouts.Layouts
    membership: membership.Membership
    health: serverhealth.ServerHealth
    definitions: Definitions
    occurrences: occurrences.Occurrences
    reader: reading.DefinitionReader
    numbering: interning.Numbering
    interned: interning.Interned
    signed_blobs: signedblobs.SignedBlobs
    claims: claiming.Claims
    settlements: settling.Settlements
    concurrency: admission.Concurrency
    streams: streams.Streams
    circuits: circuits.Circuits
    dead_letters: deadletters.DeadLetters
    resharding: resharding.Resharding
    moves: moves.Moves
    sweeper: sweeper.Sweeper
    collector: collector.Collector
    suspect_points: suspectpoints.SuspectPoints
    counts: counts.Counts
    held_claims: upcoming.HeldClaims
    upcoming: upcoming.Upcoming
    server_clock: wakeups.ServerClock
    prefetch: prefetch.Prefetch

    async def start(self) -> None:
        """Connect and load the scripts; raises QueueUnavailable when no server answers."""
        await self.index.scripts.load()

    async def close(self) -> None:
        await self.index.servers.close()

    def wakeups(self) -> wakeups.Wakeups:
        """A new alarm clock over all shards; the layout must have been read."""
        return wakeups.Wakeups(
            index=self.index,
            server_clock=self.server_clock,
            expect_lane=self.claims.expect_lane,
            expect=self.prefetch.expect,
        )

    def ledger(self) -> ledger.Ledger:
        """A new reader of outcomes; the layout must have been read."""
        return ledger.Ledger(self.index)


def open_queue(
    chosen: settings.QueueSettings,
    clock: clocks.Clock,
    blob_key: bytes,
    *,
    buckets: int = keys.BUCKETS,
    quotas: quotas_.Quotas = quotas_.USUAL,
) -> DelayQueue:
    """The delay queue of an installation, by the ``redis_*`` settings alone. Does not connect."""
    return connect(
        chosen.redis_url,
        blob_key=blob_key,
        prefix=keys.prefix_of(chosen.redis_prefix),
        server=server_of(chosen),
        clock=clock,
        buckets=buckets,
        quotas=quotas,
    )


def server_of(chosen: settings.QueueSettings) -> connecting.Server:
    """How to connect, by the ``redis_*`` settings."""
    return connecting.Server(
        url=chosen.redis_url,
        username=chosen.redis_username,
        password_file=chosen.redis_password_file,
        tls=connecting.TlsFiles(
            ca_file=chosen.redis_ca_file,
            cert_file=chosen.redis_cert_file,
            key_file=chosen.redis_key_file,
            server_name=chosen.redis_server_name,
        ),
        sentinel_username=chosen.redis_sentinel_username,
        sentinel_password_file=chosen.redis_sentinel_password_file,
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
    """The queue behind a URL, every service from the bottom up; connects when it is first used.

    Args:
        server: how to connect, where the URL does not say it all; takes the place of ``url``.
        opened: the servers themselves; takes the place of both.
        buckets: of a new index; an existing one names its own number.
    """
    server = server or connecting.Server(url=url, password_file=password_file)
    opened = opened or servers.open_servers(server, connections=connections)
    shared = index.Index(
        opened, keys.IndexKeys(prefix), clock or clocks.SystemClock(), buckets=buckets
    )
    blobs = signedblobs.SignedBlobs(blob_key)
    interned = interning.Interned()
    # A server that went back in time gives the numbers of what it forgot to other texts.
    opened.on_upheaval.append(interned.forget_all)
    known = layouts.Layouts(index=shared)
    members = membership.Membership(index=shared, layouts=known)
    reader = reading.DefinitionReader(
        index=shared, layouts=known, interned=interned, signed_blobs=blobs
    )
    numbers = interning.Numbering(index=shared, interned=interned)
    moving = moves.Moves(
        index=shared, layouts=known, reader=reader, numbering=numbers, interned=interned
    )
    enqueued = occurrences.Occurrences(index=shared, layouts=known, numbering=numbers, moves=moving)
    definitions = Definitions(
        reader=reader,
        columns=columns.ColumnReader(index=shared, reader=reader, interned=interned),
        upsert=upsert.Upsert(
            index=shared,
            layouts=known,
            numbering=numbers,
            interned=interned,
            signed_blobs=blobs,
            moves=moving,
        ),
        occurrences=enqueued,
    )
    users_streams = streams.Streams(index=shared, quotas=quotas)
    server_clock = wakeups.ServerClock(shared.clock)
    expected = prefetch.Prefetch()
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
        signed_blobs=blobs,
        claims=claiming.Claims(
            index=shared,
            layouts=known,
            reader=reader,
            moves=moving,
            prefetch=expected,
            server_clock=server_clock,
        ),
        settlements=settling.Settlements(
            index=shared,
            layouts=known,
            prefetch=expected,
            quotas=quotas,
            streams=users_streams,
        ),
        concurrency=admission.Concurrency(index=shared, layouts=known, numbering=numbers),
        streams=users_streams,
        circuits=circuits.Circuits(index=shared),
        dead_letters=deadletters.DeadLetters(index=shared, reader=reader),
        resharding=resharding.Resharding(
            index=shared,
            layouts=known,
            membership=members,
            reader=reader,
            export=export.Export(index=shared, reader=reader, moves=moving),
        ),
        moves=moving,
        sweeper=sweeper.Sweeper(
            index=shared, reader=reader, mending=mending.Mending(index=shared, reader=reader)
        ),
        collector=collector.Collector(index=shared, reader=reader),
        suspect_points=suspectpoints.SuspectPoints(index=shared, reader=reader),
        counts=counted,
        upcoming=points,
        held_claims=upcoming.HeldClaims(index=shared, counts=counted, upcoming=points),
        server_clock=server_clock,
        prefetch=expected,
    )
