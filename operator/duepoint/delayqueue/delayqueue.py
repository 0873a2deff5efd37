"""The delay queue over Redis or Valkey, assembled from its services.

One service per question, each in its own module: who may use the index and how it is sharded
(layouts, membership), what has to run (definitions, occurrences), what is due (claims), how it
ended (settlements, concurrency), whether it is still consistent (sweeper, fallbacks). They
share an ``index.Index`` (servers, scripts, names of keys) and get each other in their constructors;
a caller takes the services that it needs.

All methods raise ``errors.QueueUnavailable`` when no server can answer now (its subclass
``Uninitialised``: the index is empty and waits for the operator), and ``errors.WorldChanged`` when
the caller's view is out of date (``LayoutChanged``; ``Fenced``: a newer leader has written since).
A lost claim is a return value, not an error. Instants are microseconds since the epoch.
"""

from __future__ import annotations

from typing import Any

from duepoint import clock as clocks
from duepoint import redisurl, settings
from duepoint.delayqueue import (
    admission,
    apirequests,
    circuits,
    deadletters,
    index,
    inspection,
    keys,
    layouts,
    ledger,
    moving,
    resharding,
    serverhealth,
    streams,
    wakeups,
)
from duepoint.delayqueue import quotas as quotas_
from duepoint.delayqueue.claims import claiming, settling
from duepoint.delayqueue.definitions import (
    columns,
    kinds,
    occurrences,
    putting,
    reading,
    signedblobs,
    upsert,
)
from duepoint.delayqueue.members import lookups, members, pages, sets
from duepoint.delayqueue.repair import fallbacks, sweeper
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
        """``buckets``: their number in a new index; an existing index brings its own."""
        names = keys.IndexKeys(prefix)
        shared = index.Index(opened, names, clock or clocks.SystemClock(), buckets=buckets)
        self.index = shared
        self.health = serverhealth.ServerHealth(shared)
        self.circuits = circuits.Circuits(shared)
        self.streams = streams.Streams(shared, quotas)
        # The layout of the index and its owner; the living workers.
        self.layouts = known = layouts.Layouts(shared)
        self.membership = layouts.Membership(shared, known)
        # Definitions and occurrences: what has to run.
        self.signed_blobs = signedblobs.SignedBlobs(blob_key)
        known_kinds = kinds.Kinds(shared)
        self.definitions = reader = reading.DefinitionReader(
            shared, known, known_kinds, self.signed_blobs
        )
        self.columns = columns.ColumnReader(known_kinds)
        rows = putting.RowWriter(shared, known)
        self.writer = upsert.DefinitionWriter(shared, rows, self.signed_blobs)
        self.occurrences = occurrences.Occurrences(shared, known)
        # What a worker uses to claim and settle.
        self.server_clocks = wakeups.ServerClocks(shared)
        self.claims = claiming.Claims(shared, known, self.server_clocks)
        self.dead_letters = deadletters.DeadLetters(shared, reader, self.occurrences, quotas)
        self.settlements = settling.Settlements(shared, known, self.dead_letters, self.streams)
        self.concurrency = admission.Concurrency(shared, known)
        # Members of ScheduleSets.
        self.sets = sets.Sets(shared, known, self.signed_blobs)
        by_id = lookups.MemberLookups(shared, known, known_kinds)
        self.members = members.Members(
            shared,
            known_kinds,
            rows,
            by_id,
            pages.MemberPages(shared, known, by_id),
            reader,
            self.occurrences,
            self.signed_blobs,
        )
        self.set_removals = sets.SetRemovals(shared, known, self.sets)
        self.api_requests = apirequests.ApiRequests(shared)
        # Resharding and repair.
        self.mover = moving.Mover(shared, reader, rows, self.dead_letters)
        self.resharding = resharding.Resharding(shared, self.membership, known, self.mover)
        self.sweeper = sweeper.Sweeper(shared, reader)
        self.fallbacks = fallbacks.Fallbacks(shared, reader, self.occurrences)
        # Inspection, which changes nothing.
        self.inspection = inspection.Inspection(shared, reader)

    async def start(self) -> None:
        """Connect and load the scripts; raises QueueUnavailable when no server answers."""
        await self.index.scripts.load()

    async def close(self) -> None:
        await self.index.servers.close()

    def wakeups(self, before_due: wakeups.BeforeDue | None = None) -> wakeups.Wakeups:
        """Return new wake-ups over all shards; the layout must have been read."""
        return wakeups.Wakeups(
            index=self.index, server_clocks=self.server_clocks, before_due=before_due
        )

    def ledger(self) -> ledger.Ledger:
        """Return a new reader of outcomes; the layout must have been read."""
        return ledger.Ledger(self.index)


def open_queue(
    chosen: settings.QueueSettings,
    clock: clocks.Clock,
    blob_key: bytes,
    *,
    buckets: int = keys.BUCKETS,
    quotas: quotas_.Quotas = quotas_.USUAL,
) -> DelayQueue:
    """Return the delay queue of an installation by its ``redis_*`` settings; does not connect."""
    server = connecting.Server(
        url=chosen.redis_url,
        username=chosen.redis_username,
        password_file=chosen.redis_password_file,
        tls=connecting.TlsFiles(
            ca_file=chosen.redis_ca_file,
            cert_file=chosen.redis_cert_file,
            server_name=redisurl.parse(chosen.redis_url).server_name or None,
        ),
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
    """Return the queue behind a URL, a server or open connections to it; does not connect."""
    opened = opened or servers.open_servers(server or connecting.Server(url=url))
    return DelayQueue(opened, blob_key=blob_key, **options)
