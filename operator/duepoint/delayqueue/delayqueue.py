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

from typing import Any

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


class DelayQueue:
    """The services of one index; each is documented where it is defined."""

    def __init__(
        self,
        opened: servers.Servers,
        *,
        blob_key: bytes,
        prefix: str = keys.DEFAULT_PREFIX,
        clock: clocks.Clock | None = None,
        buckets: int = keys.BUCKETS,
        quotas: quotas_.Quotas = quotas_.USUAL,
    ) -> None:
        """``buckets``: of a new index; an existing one says its own number."""
        names = keys.IndexKeys(prefix)
        self.index = index.Index(opened, names, clock or clocks.SystemClock(), buckets=buckets)
        self.health = serverhealth.ServerHealth(index=self.index)
        self.circuits = circuits.Circuits(index=self.index)
        self.streams = streams.Streams(index=self.index, quotas=quotas)
        # Which layout the index has, and whose it is; who is alive.
        self.layouts = layouts.Layouts(index=self.index)
        self.membership = membership.Membership(index=self.index, layouts=self.layouts)
        # What has to run.
        self.signed_blobs = signedblobs.SignedBlobs(blob_key)
        self.interned = interning.Interned()
        # A server that went back in time gives the numbers of what it forgot to other texts.
        opened.on_upheaval.append(self.interned.forget_all)
        self.numbering = interning.Numbering(index=self.index, interned=self.interned)
        self.definitions = reading.DefinitionReader(
            index=self.index,
            layouts=self.layouts,
            interned=self.interned,
            signed_blobs=self.signed_blobs,
        )
        reader = self.definitions
        self.columns = columns.ColumnReader(index=self.index, reader=reader, interned=self.interned)
        self.moves = moves.Moves(
            index=self.index,
            layouts=self.layouts,
            reader=reader,
            numbering=self.numbering,
            interned=self.interned,
        )
        self.writer = upsert.DefinitionWriter(
            index=self.index,
            layouts=self.layouts,
            numbering=self.numbering,
            interned=self.interned,
            signed_blobs=self.signed_blobs,
            moves=self.moves,
        )
        self.occurrences = occurrences.Occurrences(
            index=self.index, layouts=self.layouts, numbering=self.numbering, moves=self.moves
        )
        # A worker's turn.
        self.server_clock = wakeups.ServerClock(self.index.clock)
        self.prefetch = prefetch.Prefetch()
        self.claims = claiming.Claims(
            index=self.index,
            layouts=self.layouts,
            reader=reader,
            moves=self.moves,
            prefetch=self.prefetch,
            server_clock=self.server_clock,
        )
        self.settlements = settling.Settlements(
            index=self.index,
            layouts=self.layouts,
            prefetch=self.prefetch,
            quotas=quotas,
            streams=self.streams,
        )
        self.concurrency = admission.Concurrency(
            index=self.index, layouts=self.layouts, numbering=self.numbering
        )
        self.dead_letters = deadletters.DeadLetters(index=self.index, reader=reader)
        # Another number of shards; repair.
        self.resharding = resharding.Resharding(
            index=self.index,
            layouts=self.layouts,
            membership=self.membership,
            reader=reader,
            export=export.Export(index=self.index, reader=reader, moves=self.moves),
        )
        self.sweeper = sweeper.Sweeper(
            index=self.index,
            reader=reader,
            mending=mending.Mending(index=self.index, reader=reader),
        )
        self.collector = collector.Collector(index=self.index, reader=reader)
        self.suspect_points = suspectpoints.SuspectPoints(index=self.index, reader=reader)
        # Inspection; nothing is changed.
        self.counts = counts.Counts(index=self.index, reader=reader)
        self.upcoming = upcoming.Upcoming(index=self.index, reader=reader, counts=self.counts)
        self.held_claims = upcoming.HeldClaims(
            index=self.index, counts=self.counts, upcoming=self.upcoming
        )

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
    server = connecting.Server(
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
    return DelayQueue(
        servers.open_servers(server),
        blob_key=blob_key,
        prefix=keys.prefix_of(chosen.redis_prefix),
        clock=clock,
        buckets=buckets,
        quotas=quotas,
    )


def connect(
    url: str,
    *,
    blob_key: bytes,
    server: connecting.Server | None = None,
    opened: servers.Servers | None = None,
    **options: Any,  # noqa: ANN401 - of DelayQueue
) -> DelayQueue:
    """The queue behind a URL, a server or the connections to it; does not connect."""
    opened = opened or servers.open_servers(server or connecting.Server(url=url))
    return DelayQueue(opened, blob_key=blob_key, **options)
