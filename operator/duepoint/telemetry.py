"""Metrics and log fields, named once.

Metrics carry the prefix ``duepoint_`` and base units. A schedule is never a label: the number of
series does not grow with what users create. Log lines are structlog events: a short phrase, then
fields named as below, so that one search finds the same thing in every process.

Log fields: ``namespace``, ``schedule``, ``uid``, ``generation``, ``slot`` (RFC 3339), ``reason``
(``schedules.conditions.Reason``), ``shard``, ``worker``, ``error`` (one line, no secrets).
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import logging
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import NoReturn

import structlog
from prometheus_client import REGISTRY, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector


class BulkHistogram(Collector):
    """Without labels; ``buckets`` are upper bounds, in order."""

    def __init__(self, name: str, documentation: str, *, buckets: Sequence[float]) -> None:
        self._name = name
        self._documentation = documentation
        self._bounds = (*map(float, buckets), float("inf"))
        self._counts = [0] * len(self._bounds)
        self._sum = 0.0
        REGISTRY.register(self)

    def observe(self, amount: float) -> None:
        """Count one value."""
        self.observe_many({amount: 1})

    def observe_many(self, counts: Mapping[float, int]) -> None:
        """Count values: how often each was seen."""
        for amount, count in counts.items():
            self._counts[bisect.bisect_left(self._bounds, amount)] += count
            self._sum += amount * count

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """What the registry asks for at each scrape."""
        totals = itertools.accumulate(self._counts)
        bounds = [*map(str, self._bounds[:-1]), "+Inf"]
        yield HistogramMetricFamily(
            self._name,
            self._documentation,
            buckets=list(zip(bounds, totals, strict=True)),
            sum_value=self._sum,
        )


# A second series per counter, with the time it began, is of no use here.
disable_created_metrics()  # type: ignore[no-untyped-call,unused-ignore]

#: From one millisecond, because lateness is what this product is about.
_LATENESS_BUCKETS = (
    0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600,
)  # fmt: skip

runs_total = Counter("duepoint_runs", "Finished attempts of targets.", ["target", "outcome"])
slots_total = Counter("duepoint_slots", "Slots that ended, and how.", ["outcome", "reason"])
start_lateness_seconds = BulkHistogram(
    "duepoint_start_lateness_seconds",
    "From slot and jitter to the target's acceptance, first attempts only.",
    buckets=_LATENESS_BUCKETS,
)
claim_seconds = Histogram(
    "duepoint_claim_seconds", "Time of one look at the queue.", buckets=_LATENESS_BUCKETS
)
inflight = Gauge("duepoint_inflight", "Points claimed by this worker and not settled.")
reclaimed_total = Counter("duepoint_reclaimed", "Points taken over from an expired claim.")
replaced_runs_total = Counter(
    "duepoint_replaced_runs", "Runs whose place a newer slot took, as statuses count them."
)
superseded_total = Counter("duepoint_superseded", "Points dropped because an edit replaced them.")
unreadable_total = Counter(
    "duepoint_unreadable", "Members and records of no known format that were met.", ["kind"]
)
given_up_total = Counter("duepoint_given_up", "Points given up on.")
webhook_attempts_total = Counter(
    "duepoint_webhook_attempts", "Webhook requests by class of answer.", ["code_class"]
)
webhook_seconds = Histogram("duepoint_webhook_seconds", "Time of one webhook request.")
other_installs = Gauge(
    "duepoint_other_installs", "1 while another installation looks after the same Schedules."
)
queue_points = Gauge("duepoint_queue_points", "Points that wait in the queue.")
queue_due_points = Gauge("duepoint_queue_due_points", "Waiting points that are due.")
oldest_due_seconds = Gauge("duepoint_oldest_due_seconds", "How long the oldest has been due.")
circuits_open = Gauge(
    "duepoint_circuits_open", "Receivers to which no webhook is sent because they fail."
)
dead_entries = Gauge("duepoint_dead_entries", "Dead letters in the queue.")
dead_letters_dropped_total = Counter(
    "duepoint_dead_letters_dropped",
    "Dead letters that went because their namespace had more than it may keep.",
)
runs_backlog = Gauge("duepoint_runs_backlog", "Entries that the status writer has not taken yet.")
queue_seen_seconds = Gauge("duepoint_queue_seen_seconds", "When the queue was last looked at.")
outcomes_dropped_total = Counter(
    "duepoint_outcomes_dropped",
    "Entries of outcomes that were dropped before they were in a status.",
)
unwatched_removed_total = Counter(
    "duepoint_unwatched_removed", "Definitions removed because their namespace is not watched."
)
blobs_removed_total = Counter(
    "duepoint_blobs_removed", "Stored actions that were not used any more."
)
sweeps_total = Counter("duepoint_sweeps", "Complete sweeps of the queue.", ["pace"])
sweep_seconds = Gauge("duepoint_sweep_seconds", "How long the last complete sweep took.")
sweep_repairs_total = Counter("duepoint_sweep_repairs", "What sweeps put right.", ["kind"])
held_points_total = Counter(
    "duepoint_held_points",
    "Points that waited on a server that went back: ended, due, or lost and made again.",
    ["outcome"],
)
jobs_made_again_total = Counter(
    "duepoint_jobs_made_again", "Jobs that were there again after they had been deleted."
)
jobs_not_observed_total = Counter(
    "duepoint_jobs_not_observed", "Changes of Jobs that a bug kept from being handled."
)
doubted_shards = Gauge(
    "duepoint_doubted_shards", "Shards of a server that went back, not compared to the end."
)
queue_problems = Gauge(
    "duepoint_queue_problems", "Whether the server of the queue fails a check.", ["check"]
)
redis_up = Gauge("duepoint_redis_up", "Whether the last command to Redis was answered.")
clock_skew_seconds = Gauge("duepoint_clock_skew_seconds", "This machine's clock less Redis's.")
partition_left = Gauge(
    "duepoint_partition_definitions_left",
    "Definitions that have not moved to the new shards yet, while the index is cut anew.",
)
partition_moved_total = Counter(
    "duepoint_partition_moved_total", "Definitions that this operator moved to new shards."
)
leader = Gauge("duepoint_leader", "Whether this operator is the active one.")
leader_transitions_total = Counter("duepoint_leader_transitions", "Terms begun by this operator.")
reconcile_seconds = Histogram(
    "duepoint_reconcile_seconds", "Time to apply one Schedule, or many new ones together."
)
reconciled_total = Counter("duepoint_reconciled", "Schedules looked at, by result.", ["result"])
api_requests_total = Counter(
    "duepoint_api_requests", "Requests to the API server.", ["verb", "resource", "code"]
)
status_writes_total = Counter("duepoint_status_writes", "Status writes, by result.", ["result"])
status_staleness_seconds = Histogram(
    "duepoint_status_staleness_seconds", "From a change to its status write."
)
http_requests_total = Counter(
    "duepoint_http_requests", "Requests to the HTTP API.", ["operation", "status"]
)
http_seconds = Histogram(
    "duepoint_http_seconds",
    "Time of one request to the HTTP API, from its head to its answer.",
    ["operation"],
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60, 600),
)
http_rows_total = Counter(
    "duepoint_http_rows", "Rows of bulk streams, by what became of them.", ["outcome"]
)
http_connections = Gauge("duepoint_http_connections", "Open connections to the HTTP API.")
build_info = Gauge("duepoint_build_info", "Always 1; its labels name the build.", ["version"])

registry = REGISTRY

#: Awaited before each scrape: gauges that are read only then.
before_scrape: set[Callable[[], Awaitable[None]]] = set()


def configure_logging(level: str, form: str) -> None:
    """Send our lines, and those of libraries, to standard error in one form."""
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
        if form == "text"
        else structlog.processors.JSONRenderer()
    )
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    # kopf and aiohttp log through the standard module; warnings and worse are kept
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(max(logging.WARNING, logging.getLevelNamesMapping()[level.upper()]))


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Nothing is logged: for commands, which say in their rows what they could not read."""
    former = structlog.get_config()
    structlog.configure(processors=[_drop])
    try:
        yield
    finally:
        structlog.configure(**former)


def _drop(*_: object) -> NoReturn:
    raise structlog.DropEvent


logger: structlog.typing.FilteringBoundLogger = structlog.get_logger()
