"""The delay queue over Redis or Valkey: ``port.Queue`` as the processes get it.

One part per question: who may use the index and how it is cut (membership), what is to run
(upsert, occurrences, reading), what is due (claiming), what may start beside what runs and what
became of it (admitting, settling), whether it is all still true (sweeping). They share one pool
and one set of scripts (core).
"""

from __future__ import annotations

from duepoint.delayqueue import enlisting, port
from duepoint.delayqueue.definitions import collecting, occurrences, reading, upsert
from duepoint.delayqueue.firing import admitting, circuits, claiming, holding, wakeups
from duepoint.delayqueue.inspection import ledger, letters, shardstats
from duepoint.delayqueue.repair import doubts, sweeping
from duepoint.delayqueue.resharding import partitioning
from duepoint.delayqueue.wire import fitness, keepalive


class DelayQueue(
    partitioning.Partitioning,
    fitness.Fitness,
    keepalive.Keepalive,
    upsert.Upsert,
    occurrences.Occurrences,
    claiming.Claiming,
    admitting.Admitting,
    sweeping.Sweeping,
    doubts.Doubts,
    shardstats.ShardStats,
    letters.Letters,
    collecting.Collecting,
    holding.Holding,
    circuits.Circuits,
    enlisting.Enlisting,
    reading.Reading,
):
    """Every operation on the index; see ``port.Queue`` for what each one promises."""

    def wakeups(self) -> port.Wakeups:
        return wakeups.RedisWakeups(
            servers=self._servers,
            names=self._shard,
            layout=self._known_layout(),
            clock=self._clock,
            server_clock=self._server_clock,
            expect_lane=self.expect_lane,
            expect=self._foresight.expect,
        )

    def ledger(self) -> port.Ledger:
        return ledger.RedisLedger(
            servers=self._servers, names=self._shard, layout=self._known_layout
        )


def _holds_to_the_port(queue: DelayQueue) -> port.Queue:
    """Fails type checking where the class and the port differ."""
    return queue
