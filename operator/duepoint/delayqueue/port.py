"""The delay queue as everybody else sees it.

``delayqueue.DelayQueue`` implements it over Redis, ``tests.fakes.memoryqueue`` over
dicts with virtual time; services take a ``Queue`` and never know which. All methods raise
``errors.QueueUnavailable`` when the other side cannot answer now (its subclass
``scripting.Uninitialised``: the index is empty and waits for the operator), and
``errors.WorldChanged`` when what the caller knew is out of date (``scripting.LayoutChanged``,
``scripting.Fenced``: a newer leader has been here). Losing a claim is an answer, not an error.

A worker's turn: ``wait_until_due`` names shards, ``claim`` looks at them, ``read_definitions``
says what the points mean, ``settle`` (or ``plan``, ``split``, ``extend``, ``release``) ends it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from duepoint import settings
from duepoint.delayqueue import messages
from duepoint.delayqueue.definitions import codec
from duepoint.delayqueue.firing import activeruns
from duepoint.delayqueue.resharding import ownership
from duepoint.runs import circuit
from duepoint.schedules import definition as definitions
from duepoint.schedules import points

#: Lease of a claim unless told otherwise, and how many points one claim takes at most.
LEASE_SECONDS = 10.0
#: No worker asks for a longer one: whatever ends much later was written by a wrong clock.
LONGEST_LEASE_SECONDS = settings.LONGEST_LEASE_SECONDS
BATCH = 500
#: A shard that is away while others answer is looked at again after so long.
AWAY_SECONDS = 1.0


class Wakeups(Protocol):
    """A worker's alarm clock: sleeps locally, woken early by an insert before the known head.

    Order of use: ``start`` subscribes; the first ``wait_until_due`` returns every shard; each
    answer of ``claim`` is handed to ``note``. After a lost subscription every shard is due again.
    """

    #: Shards for which another live worker is preferred: woken 200-500 ms later.
    standby: frozenset[messages.ShardId]
    #: Told of shards that are due within a timer's step, where it is awake to await that.
    before_due: Callable[[tuple[messages.ShardId, ...]], None]

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    def note(self, claimed: messages.Claimed) -> None:
        """Remember when this shard is to be looked at again."""
        ...

    def note_beat(self, beat: messages.Beat) -> None:
        """Look at everything again if the server's clock stepped or the index was made anew."""
        ...

    def look_again(self, shards: Iterable[messages.ShardId], *, after_seconds: float = 0.0) -> None:
        """Name these shards again after so long: their claim failed."""
        ...

    async def wait_until_due(self, timeout_seconds: float) -> tuple[messages.ShardId, ...]:
        """The shards to look at now; empty after ``timeout_seconds`` without any.

        A shard that was returned is not returned again before it was noted or woken.
        """
        ...


class Ledger(Protocol):
    """The ``runs`` streams as the one reporter reads them, and the dead letters."""

    async def start(self) -> None:
        """Subscribe; the first ``wait_for_outcomes`` returns at once."""
        ...

    async def close(self) -> None: ...

    async def wait_for_outcomes(self, timeout_seconds: float) -> tuple[messages.ShardId, ...]:
        """The shards to which something was added; all of them after a (re)subscription."""
        ...

    async def read_outcomes(
        self,
        group: str,
        consumer: str,
        *,
        shards: Collection[messages.ShardId] | None = None,
        count: int = 100,
    ) -> list[messages.OutcomeEntry]:
        """New entries of these shards (default all), at most ``count`` of each."""
        ...

    async def recover_outcomes(
        self, group: str, consumer: str, *, idle_seconds: float = 0.0
    ) -> list[messages.OutcomeEntry]:
        """Entries read before and never acknowledged, by anyone; now this consumer's."""
        ...

    async def ack(self, group: str, entries: Sequence[messages.OutcomeEntry]) -> None:
        """These are in the status now; they leave the stream."""
        ...

    async def dropped(self) -> Mapping[messages.ShardId, int]:
        """Entries that were dropped, unread or not acknowledged, since this was noted last.

        A shard holds a bounded number of bytes, and nothing older than a week.
        """
        ...

    async def forget_dropped(self, dropped: Mapping[messages.ShardId, int]) -> None:
        """Noted: so many."""
        ...

    async def dead_letters(
        self, shard: messages.ShardId, *, count: int = 100
    ) -> list[messages.DeadEntry]:
        """The newest dead letters of a shard, newest first."""
        ...


class Queue(Protocol):
    """Every operation on the index. Instants are microseconds since the epoch."""

    # -- life ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect and load the scripts; raises QueueUnavailable when nobody answers."""
        ...

    async def close(self) -> None: ...

    @property
    def upheavals(self) -> int:
        """How often the server turned out not to be the one it was: writes may be lost."""
        ...

    async def problems(self, *, fills: bool = False) -> tuple[str, ...]:
        """What is wrong with the server, one clear line each; empty when it is fit.

        ``fills`` asks for the rights of whoever fills the index instead of a worker's.
        """
        ...

    async def time_us(self) -> int:
        """What time it is by the server's clock, UTC in microseconds."""
        ...

    async def keepalive(self) -> tuple[messages.ShardId, ...]:
        """Ask every server on every idle connection; shards that are gone, one for each server."""
        ...

    def wakeups(self) -> Wakeups:
        """A new alarm clock over all shards; the layout must have been read."""
        ...

    def ledger(self) -> Ledger: ...

    # -- layout and membership ------------------------------------------------------------------

    async def open_layout(
        self,
        shards: int,
        epoch: messages.Epoch,
        *,
        noted: messages.Layout | None = None,
        by: str = "",
    ) -> messages.Layout:
        """The existing layout, every shard of it initialised; made as ``noted`` when absent.

        Without a note: the first layout, with ``shards``. The operator's. Idempotent; ``shards``
        is a power of two. ``by`` is the installation that opens it, where it says who it is.
        Raises ``scripting.Foreign`` where the index is of another cluster, or where another
        installation has opened it and has not been silent for five minutes.
        """
        ...

    async def stay(self, by: str) -> bool:
        """The installation that opened the index lives; False where another one opened it last."""
        ...

    def belong_to(self, owner: ownership.Owner) -> None:
        """The index must be of this cluster from now on; before this call anybody's will do.

        Where it is not, ``layout``, ``beat`` and whatever changes a shard raise
        ``scripting.Foreign`` and change nothing.
        """
        ...

    def known_layout(self) -> messages.Layout:
        """As it was read last; raises ``scripting.Uninitialised`` where it never was."""
        ...

    def wanted_shards(self) -> int:
        """The number of shards that somebody asked for, as it was read last; 0 = none."""
        ...

    async def layout(self) -> messages.Layout:
        """Read the layout again; raises ``scripting.Uninitialised`` when there is none yet."""
        ...

    async def beat(self, worker: str) -> messages.Beat:
        """Say that this worker lives for the next 25 s; who else does, and what the index is."""
        ...

    async def goodbye(self, worker: str) -> None: ...

    # -- partitioning ----------------------------------------------------------------------------

    async def ask_partition(self, shards: int) -> messages.Asked:
        """Wish for another number of shards; raises InvalidSetting for one that cannot be.

        Anybody's. The leader sees it at its next look and begins.
        """
        ...

    async def partitioning(self) -> messages.Partitioning:
        """How far it is."""
        ...

    async def announce_partition(self, shards: int, epoch: messages.Epoch) -> messages.Layout:
        """A new layout that is filled from the one there is; made already, it is only read."""
        ...

    async def unaware_workers(self) -> tuple[str, ...]:
        """Living workers that have not said that they know the newest layout."""
        ...

    async def note_progress(
        self,
        epoch: messages.Epoch,
        *,
        phase: messages.Phase,
        moved: int,
        left: int,
        waiting: str = "",
    ) -> None:
        """Tell those who ask."""
        ...

    async def shard_state(self, shard: messages.ShardId) -> str:
        """``open``, ``filling``, ``draining`` or ``closed``."""
        ...

    async def count_definitions(self, shard: messages.ShardId) -> int: ...

    async def move(
        self,
        shard: messages.ShardId,
        cursor: str | None,
        epoch: messages.Epoch,
        *,
        hold_seconds: float = 0.0,
    ) -> messages.Moved:
        """One bounded step of emptying a former shard; start with None, go on with the cursor.

        What nobody holds goes to its new shard; a schedule is claimable in one of the two at any
        time but for the moment of its own batch. At the begin of a pass the shard may be held:
        for so long nobody claims in it, and the pass begins after half of it.
        """
        ...

    async def close_shard(self, shard: messages.ShardId, epoch: messages.Epoch) -> str:
        """The former shard is closed and its keys are gone: empty text; else why not yet.

        ``definitions``, ``points``, ``moving``, ``outcomes`` or ``dead``.
        """
        ...

    async def unlink_closed(self, shard: messages.ShardId) -> None:
        """What a crash after the closing has left is gone."""
        ...

    async def end_partition(self, epoch: messages.Epoch, *, moved: int = 0) -> messages.Layout:
        """Every former shard is closed: the new layout stands alone."""
        ...

    # -- arming (operator) ----------------------------------------------------------------------

    def digest(self, namespace: str, blob: bytes) -> str:
        """The text that ``Definition.target`` must hold for this blob: a keyed hash, no I/O."""
        ...

    async def enlist_stream(self, namespace: str, name: str, *, anyhow: bool = False) -> bool:
        """The stream is one of its namespace's and exists; False where that has its number.

        ``anyhow``: however many there are.
        """
        ...

    async def upsert(
        self, wanted: Sequence[tuple[messages.Arming, bytes]], epoch: messages.Epoch
    ) -> list[messages.Armed]:
        """Store each definition, its blob and its chain point; the answers in order.

        Each is stored whole or not at all, but not all of them together: where this raises, some
        may be stored, and asking again is right. Of one schedule that is named twice the first
        row is stored first. Raises InvalidSpec, and stores nothing, where a due cannot be stored.
        """
        ...

    async def enqueue(
        self,
        definition: definitions.Definition,
        point: points.DuePoint,
        record: messages.OccurrenceRecord,
        epoch: messages.Epoch,
    ) -> messages.Armed:
        """An occurrence of this stored definition is due now; UNCHANGED if it waits already.

        The due of ``point`` is not looked at: it is the server's time. Raises WorldChanged where
        no definition of this uid is stored (any more).
        """
        ...

    async def enqueue_many(
        self,
        definition: definitions.Definition,
        wanted: Sequence[tuple[points.DuePoint, messages.OccurrenceRecord]],
        epoch: messages.Epoch,
    ) -> list[messages.Armed]:
        """``enqueue`` of each; their dues rise in the order given, and all of them have passed.

        Where this raises, some may be enqueued.
        """
        ...

    async def withdraw(
        self,
        definition: definitions.Definition,
        point: points.DuePoint,
        epoch: messages.Epoch,
    ) -> messages.Armed:
        """This occurrence is gone; UNCHANGED if it was before, HELD if a worker had claimed it.

        What a worker is trying just now may still come about, but nobody tries it again.
        """
        ...

    async def remove(
        self,
        schedule_id: points.ScheduleId,
        uid: str,
        namespace: str,
        epoch: messages.Epoch,
    ) -> messages.Armed:
        """The definition and all points of this uid are gone; UNCHANGED if they were before."""
        ...

    async def definition(
        self, shard: messages.ShardId, schedule_id: points.ScheduleId
    ) -> definitions.Definition | None: ...

    def known(self, shard: messages.ShardId) -> AsyncIterator[Sequence[messages.Known]]:
        """Whose every stored definition of a shard is, in chunks of some thousand; none twice."""
        ...

    def all_definitions(self, shard: messages.ShardId) -> AsyncIterator[messages.Stored]:
        """Every stored definition of a shard, read in chunks; none twice."""
        ...

    def all_occurrences(
        self, shard: messages.ShardId, of: points.ScheduleId | None = None
    ) -> AsyncIterator[messages.StoredOccurrence]:
        """Every occurrence of a shard, or of one schedule in it, read in chunks.

        One that comes or goes meanwhile may be among them or not.
        """
        ...

    # -- claiming and settling (worker) ---------------------------------------------------------

    async def claim(
        self,
        shards: Sequence[messages.ShardId],
        *,
        worker: str,
        batch: int = BATCH,
        lease_seconds: float = LEASE_SECONDS,
        standby: Collection[messages.ShardId] = (),
        wary: bool = False,
    ) -> list[messages.Claimed]:
        """Look at these shards in one round trip; one answer per shard, in their order.

        Shards in ``standby`` have another preferred worker: their dues are taken only when
        200-500 ms late, their expired claims 0-100 ms late. ``wary``: what has lost two owners
        already is left alone, and the answer says so. A shard that cannot be looked at says why
        in its answer, and is raised only where none of them can be.
        """
        ...

    def elsewhere(self, shards: Collection[messages.ShardId]) -> tuple[messages.ShardId, ...]:
        """The shards of servers that hold none of these; none where there is one server."""
        ...

    async def read_definitions(
        self, shard: messages.ShardId, ids: Collection[points.ScheduleId]
    ) -> messages.Found:
        """The newest definitions; ids without one (deleted) are absent. Read after the claim."""
        ...

    async def read_columns(self, shard: messages.ShardId, chains: Sequence[bytes]) -> codec.Columns:
        """The newest definitions behind these chain members, in short and in any order.

        None for one that is gone, not armed, of another timing version or out of the ordinary: it
        is to be read by ``read_definitions``.
        """
        ...

    async def blob(self, namespace: str, digest: str, shard: messages.ShardId) -> bytes:
        """The verified content; raises ``seal.BlobMissing`` or ``seal.BlobForged``."""
        ...

    async def settle(
        self, claim: messages.Claim, settlement: messages.Settlement
    ) -> messages.Settled: ...

    async def plan(
        self, claim: messages.Claim, planning: messages.Planning
    ) -> tuple[messages.Occurrence, ...] | None:
        """The slots are occurrences of this claim now, the chain moved on; None = lost.

        The chain point is not the claim's any more: settle the slots, not the chain.
        """
        ...

    async def split(
        self, claim: messages.Claim, splits: Sequence[messages.Planning]
    ) -> tuple[bool, ...]:
        """``plan`` for many chain points in one script; False where the chain was not held."""
        ...

    async def admit(self, claim: messages.Claim, entry: activeruns.Entry) -> activeruns.Admission:
        """Whether a claimed occurrence may start beside the active runs of its schedule.

        If so it is one of them from here on; asking again is harmless.
        """
        ...

    async def leave(
        self,
        claim: messages.Claim,
        known: definitions.Definition,
        runs: Sequence[activeruns.Run] = (),
        *,
        jobs: Collection[str] = (),
        look: activeruns.Run | None = None,
    ) -> activeruns.Finished:
        """These runs, or the runs of these Jobs, have ended; slots that wait are due instead.

        A run that is still an occurrence is being tried, and stays; one whose Job is told of stays
        only if it was replaced meanwhile. ``look`` asks how that run stands.
        """
        ...

    async def finish(
        self,
        known: definitions.Definition,
        jobs: Collection[str],
        epoch: messages.Epoch,
        *,
        every: bool = False,
    ) -> activeruns.Finished:
        """The same for who holds no claim: these Jobs have ended.

        ``every``: there is more room than by these ends, so all slots that wait are called up.
        """
        ...

    async def extend(self, claim: messages.Claim, lease_seconds: float) -> messages.Claim | None:
        """The claim with a later ``held_until``; None = lost. Never shortens a lease."""
        ...

    async def release(self, claim: messages.Claim, members: Collection[bytes] | None = None) -> int:
        """These members (None = all still held) are there for others at once; how many.

        Occurrences are due again at their dues. Chains keep when they were claimed first, and have
        lost no owner (``Claim.first_us``, ``reclaimed``).
        Where the claim was lost, its owner says with None that it lives and could not reach the
        queue: none of its points is suspected any more of having ended it (``Claim.alone``).
        """
        ...

    async def isolate(self, claim: messages.Claim, *, alone: bool) -> bool:
        """Note whether this worker has nothing in hand but the claim; False = the claim is lost.

        A point is suspected of having ended its owner only if that was noted when the claim ran
        out and the point was all that was left of it (``Claim.alone``).
        """
        ...

    @property
    def settles_entries(self) -> bool:
        """Whether ``deliver`` is to be had: not on a cluster, where streams lie on other nodes."""
        ...

    async def deliver(
        self, claim: messages.Claim, settlement: messages.Settlement, *entries: messages.Entries
    ) -> messages.Handed:
        """Entries and settlement in one step, exactly once; repeated under its number it is safe.

        The settlement names the members of the entries, and its outcomes are theirs: they are
        written only with the entries. Of several streams one may refuse: its members stay with
        the claim. Raises ``scripting.WrongType`` and ``scripting.Refused`` where the server has
        said no and nothing was done; after any other TryLater it may have been.
        """
        ...

    async def append(self, entries: messages.Entries) -> list[str]:
        """The entries by themselves, all or none, in few enough bytes for one script; their ids.

        For a cluster, where they cannot go in with a settlement. Raises ``scripting.WrongType``,
        and QueueUnavailable where they may be in or not.
        """
        ...

    # -- receivers (worker) ---------------------------------------------------------------------

    async def tell_circuits(
        self,
        news: Sequence[circuit.News] = (),
        gone: Sequence[circuit.Gone] = (),
        *,
        known: int = -1,
        rule: circuit.Rule,
    ) -> circuit.Board:
        """Tell of receivers, ask to probe one, learn what has changed since version ``known``.

        Telling the same twice counts the calls twice; that is why nobody repeats it.
        """
        ...

    async def circuits(self) -> circuit.Board:
        """All that is known of receivers in trouble; its ``now_us`` is 0."""
        ...

    # -- maintenance ------------------------------------------------------------------------------

    async def sweep(
        self,
        shard: messages.ShardId,
        cursor: str | None,
        epoch: messages.Epoch,
        *,
        due_of: Callable[[definitions.Definition], int | None] | None = None,
    ) -> messages.Swept:
        """One bounded step of the repair; start with None, go on with ``Swept.cursor``.

        ``due_of`` names the chain's due for an armed definition that lost it (None: leave it).
        """
        ...

    async def doubted(self) -> tuple[messages.Doubted, ...]:
        """The shards of a server that went back, or that still hold what waited for that.

        A claim finds out and marks its shard; what was due by then is held from there on.
        """
        ...

    def held_points(self, shard: messages.ShardId) -> AsyncIterator[Sequence[messages.HeldPoint]]:
        """Every point of a shard that waits to be compared, in parts."""
        ...

    async def apply_compared(
        self, shard: messages.ShardId, compared: messages.Compared, epoch: messages.Epoch
    ) -> int:
        """What the comparison says of one part is true; how many points changed by it."""
        ...

    async def end_doubt(self, doubted: messages.Doubted, epoch: messages.Epoch) -> str:
        """Nothing is in doubt any more: empty text; else what is left: due, held or claimed."""
        ...

    def collect(
        self, shard: messages.ShardId, epoch: messages.Epoch, *, patience_seconds: float = ...
    ) -> AsyncIterator[messages.Collected]:
        """Remove blobs of a shard that nobody has used for so long, in small steps."""
        ...

    async def stats(self) -> list[messages.ShardStats]: ...

    async def totals(self) -> messages.Totals:
        """The same for the whole index, cheap enough to be asked for every few seconds."""
        ...
