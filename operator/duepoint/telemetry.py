"""Definitions of all metrics and log fields.

Metrics have the prefix ``duepoint_`` and base units. A schedule is never a label, and only a
limited number of namespaces are labels (``Namespaces``), so users cannot create any number of
series. A process serves only the metrics that it fills (``processes``). Log lines are structlog
events: a short phrase, then fields named as below, so that one search finds the same thing in every
process.

Log fields: ``namespace``, ``schedule``, ``uid``, ``generation``, ``slot`` (RFC 3339), ``reason``
(``schedules.conditions.Reason``), ``shard``, ``worker``, ``error`` (one line, no secrets).
"""

from __future__ import annotations

import bisect
import contextlib
import functools
import itertools
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import NoReturn, TextIO

import structlog
from prometheus_client import (
    GC_COLLECTOR,
    PLATFORM_COLLECTOR,
    PROCESS_COLLECTOR,
    REGISTRY,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
)
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry

#: The label value of all further namespaces; no namespace can have this name.
OTHER_NAMESPACES = "_other"

#: The most namespaces that are values of a label.
_MOST_NAMESPACES = 200
_labelled: set[str] = set()


def namespace_label(namespace: str) -> str:
    """Return the label value of a namespace.

    The first namespaces that are counted have values of their own; all others share
    ``OTHER_NAMESPACES``. A namespace keeps its value for the life of the process.
    """
    if namespace not in _labelled:
        if len(_labelled) >= _MOST_NAMESPACES:
            return OTHER_NAMESPACES
        _labelled.add(namespace)
    return namespace


class BulkHistogram(Collector):
    """A histogram without labels that counts many values at once; ``buckets`` are upper bounds."""

    def __init__(
        self,
        name: str,
        documentation: str,
        *,
        buckets: Sequence[float],
        registry: CollectorRegistry,
    ) -> None:
        self._name = name
        self._documentation = documentation
        self._bounds = (*map(float, buckets), float("inf"))
        self._counts = [0] * len(self._bounds)
        self._sum = 0.0
        registry.register(self)

    def observe(self, amount: float) -> None:
        """Count one value."""
        self._counts[bisect.bisect_left(self._bounds, amount)] += 1
        self._sum += amount

    def observe_many(self, counts: Mapping[float, int]) -> None:
        """Count many values; ``counts`` says how often each was seen."""
        for amount, count in counts.items():
            self._counts[bisect.bisect_left(self._bounds, amount)] += count
            self._sum += amount * count

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """Yield the metric at each scrape."""
        totals = itertools.accumulate(self._counts)
        bounds = [*map(str, self._bounds[:-1]), "+Inf"]
        yield HistogramMetricFamily(
            self._name,
            self._documentation,
            buckets=list(zip(bounds, totals, strict=True)),
            sum_value=self._sum,
        )


class _FilledBy(CollectorRegistry):
    """Passes collectors to the registries of some processes, and to the common registry."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self._registries = (REGISTRY, *(processes[name] for name in names))

    def register(self, collector: Collector) -> None:
        """Let these processes serve the collector."""
        for registry in self._registries:
            registry.register(collector)


#: The registry that each process serves at /metrics, by its command.
processes = {name: CollectorRegistry() for name in ("operator", "worker", "api")}
for _collector in (PROCESS_COLLECTOR, PLATFORM_COLLECTOR, GC_COLLECTOR):
    for _of_process in processes.values():
        _of_process.register(_collector)

_OPERATOR, _WORKER, _API = map(_FilledBy, processes)
_OPERATOR_AND_WORKER = _FilledBy("operator", "worker")
_ALL = _FilledBy(*processes)

# By default each counter has a second series with its start time, which nothing here uses.
disable_created_metrics()  # type: ignore[no-untyped-call,unused-ignore]

#: Begins at one millisecond, because lateness is what this product is about.
_LATENESS_BUCKETS = (
    0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600,
    21_600, 86_400,
)  # fmt: skip
#: Up to the longest time limit of a request, and beyond it for slots that wait for one.
_DURATION_BUCKETS = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600,
)  # fmt: skip

runs_total = Counter(
    "duepoint_runs",
    "Finished attempts of targets.",
    ["namespace", "target", "outcome"],
    registry=_WORKER,
)
run_results_total = Counter(
    "duepoint_run_results",
    "Runs that ended, by result.",
    ["namespace", "target", "result"],
    registry=_OPERATOR_AND_WORKER,
)
slots_total = Counter(
    "duepoint_slots",
    "Slots that ended, by outcome.",
    ["namespace", "outcome", "reason"],
    registry=_WORKER,
)
start_lateness_seconds = BulkHistogram(
    "duepoint_start_lateness_seconds",
    "From slot and jitter to the target's acceptance, first attempts only.",
    buckets=_LATENESS_BUCKETS,
    registry=_WORKER,
)
inflight = Gauge(
    "duepoint_inflight", "Points claimed by this worker and not settled.", registry=_WORKER
)
reclaimed_total = Counter(
    "duepoint_reclaimed", "Points taken over from an expired claim.", registry=_WORKER
)
unreadable_total = Counter(
    "duepoint_unreadable",
    "Members and records found in an unknown format.",
    ["kind"],
    registry=_ALL,
)
given_up_total = Counter("duepoint_given_up", "Points given up on.", registry=_WORKER)
webhook_attempts_total = Counter(
    "duepoint_webhook_attempts",
    "Webhook requests by class of answer.",
    ["code_class"],
    registry=_WORKER,
)
webhook_seconds = BulkHistogram(
    "duepoint_webhook_seconds",
    "Time of one webhook request.",
    buckets=_DURATION_BUCKETS,
    registry=_WORKER,
)
other_installs = Gauge(
    "duepoint_other_installs",
    "1 while another installation looks after the same Schedules.",
    registry=_OPERATOR,
)
queue_points = Gauge("duepoint_queue_points", "Points that wait in the queue.", registry=_OPERATOR)
queue_due_points = Gauge(
    "duepoint_queue_due_points", "Waiting points that are due.", registry=_OPERATOR
)
oldest_due_seconds = Gauge(
    "duepoint_oldest_due_seconds", "How long the oldest has been due.", registry=_OPERATOR
)
circuits_open = Gauge(
    "duepoint_circuits_open",
    "Receivers that get no webhooks because they fail.",
    registry=_OPERATOR,
)
dead_entries = Gauge("duepoint_dead_entries", "Dead letters in the queue.", registry=_OPERATOR)
dead_letters_dropped_total = Counter(
    "duepoint_dead_letters_dropped",
    "Dead letters dropped because their namespace exceeded its limit.",
    ["namespace"],
    registry=_WORKER,
)
outcomes_dropped_total = Counter(
    "duepoint_outcomes_dropped",
    "Entries of outcomes that were dropped before a status showed them.",
    registry=_OPERATOR,
)
queue_problems = Gauge(
    "duepoint_queue_problems",
    "Whether the server of the queue fails a check.",
    ["check"],
    registry=_ALL,
)
redis_up = Gauge(
    "duepoint_redis_up", "Whether the last command to Redis was answered.", registry=_ALL
)
clock_skew_seconds = Gauge(
    "duepoint_clock_skew_seconds",
    "This machine's clock less Redis's.",
    registry=_OPERATOR_AND_WORKER,
)
leader = Gauge("duepoint_leader", "Whether this operator is the active one.", registry=_OPERATOR)
leader_transitions_total = Counter(
    "duepoint_leader_transitions", "Terms begun by this operator.", registry=_OPERATOR
)
api_requests_total = Counter(
    "duepoint_api_requests",
    "Requests to the API server.",
    ["verb", "resource", "code"],
    registry=_ALL,
)
status_staleness_seconds = Histogram(
    "duepoint_status_staleness_seconds",
    "From a change to its status write.",
    buckets=_DURATION_BUCKETS,
    registry=_OPERATOR,
)
schedules_failing = Gauge(
    "duepoint_schedules_failing",
    "Schedules whose status has the condition Failing.",
    ["namespace"],
    registry=_OPERATOR,
)
sets_with_lost_members = Gauge(
    "duepoint_sets_with_lost_members",
    "ScheduleSets that lost members with Redis, until they are restored.",
    registry=_OPERATOR,
)
http_requests_total = Counter(
    "duepoint_http_requests", "Requests to the HTTP API.", ["operation", "status"], registry=_API
)
http_seconds = Histogram(
    "duepoint_http_seconds",
    "Time of one request to the HTTP API, from its head to its answer.",
    ["operation"],
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60, 600),
    registry=_API,
)
build_info = Gauge(
    "duepoint_build_info", "Always 1; its labels name the build.", ["version"], registry=_ALL
)

registry = REGISTRY

#: Cached children of the counters that every run uses: a lookup costs more than counting.
runs_of = functools.cache(runs_total.labels)
run_results_of = functools.cache(run_results_total.labels)
slots_of = functools.cache(slots_total.labels)

#: Awaited before each scrape, to set gauges that are read only then.
before_scrape: set[Callable[[], Awaitable[None]]] = set()


def _is_coloured(stream: TextIO) -> bool:
    """Whether the stream is a terminal with colours, and NO_COLOR is not set (no-color.org)."""
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") in ("dumb", "unknown")
    return stream.isatty() and not is_plain


def configure_logging(level: str, form: str) -> None:
    """Send our lines, and those of libraries, to standard error in one form."""
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(colors=_is_coloured(sys.stderr))
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
    # kopf and aiohttp log through the standard module; log their warnings and errors only
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
    """Log nothing within the context: commands report in their rows what they could not read."""
    former = structlog.get_config()
    structlog.configure(processors=[_drop])
    try:
        yield
    finally:
        structlog.configure(**former)


def _drop(*_: object) -> NoReturn:
    raise structlog.DropEvent


logger: structlog.typing.FilteringBoundLogger = structlog.get_logger()
