"""Builds the processes: from settings to clients to services to a running process.

Each process is one asyncio program: its services are built here, run together, and drained on
SIGTERM or SIGINT. Nothing here decides anything about schedules.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import importlib
import math
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

from duepoint import clock as clocks
from duepoint import comparedclock, errors, probes, services, settings, telemetry
from duepoint.delayqueue import delayqueue, keys, quotas
from duepoint.election import elector
from duepoint.kube import api as kubeapi
from duepoint.kube import credentials, leases
from duepoint.kube import port as kube_port
from duepoint.net import dialling, egressrules, resolving
from duepoint.runs import run
from duepoint.targets import endpoints, jobtarget
from duepoint.targets.kafka import target as kafkatarget
from duepoint.targets.secretaccess import references, servers
from duepoint.targets.stream import external
from duepoint.targets.stream import target as streamtarget
from duepoint.targets.webhook import admission
from duepoint.targets.webhook import credentials as webhookcredentials
from duepoint.targets.webhook import target as webhooktarget
from duepoint.worker import claimer, firing, ownership, results

if TYPE_CHECKING:
    from duepoint.controller import leadership
    from duepoint.httpapi import application
    from duepoint.tracing import otlp as tracing

_KEY_BYTES = 32
#: Share of each stream in our Redis: about 25,000 entries without a payload.
STREAM_BYTES = 8 * 1024 * 1024
#: Points that a worker leases for each one it can deliver at a time. That keeps its targets busy;
#: more would only wait, because no other worker can fire points that this one has leased.
_POINTS_IN_HAND = 4
#: Most points in one claim; they keep Redis busy for 2 ms. A claim takes at most a quarter of what
#: a worker may have in hand: one is planned while Redis settles another and hands out a third.
_MOST_IN_A_BATCH = 500
#: With this many Schedules a namespace has tables of the intended size, 48 entries each. More
#: Schedules work as well, but each takes more memory.
_NAMESPACE_SCHEDULES = 6_144

#: The part of an operator's health that reports whether Redis answers.
_REDIS = "redis"

#: Python's default collects the youngest generation after every 700 new objects: ten times for the
#: slots of one second. Reference counts free nearly all of these objects anyway.
GC_THRESHOLDS = (20_000, 20, 50)


def run_worker(chosen: settings.WorkerSettings) -> None:
    """Run ``duepoint worker``; returns after a drained shutdown."""
    _run(chosen, _worker(chosen))


def run_operator(chosen: settings.OperatorSettings) -> None:
    """Run ``duepoint operator``; returns after a clean shutdown, with its Lease released."""
    # Imported before the loop runs: no probe would be answered during the import.
    importlib.import_module("duepoint.controller.leadership")
    _run(chosen, _operator(chosen))


def run_api(chosen: settings.ApiSettings) -> None:
    """Run ``duepoint api``; returns after a drained shutdown."""
    importlib.import_module("duepoint.httpapi.service")
    _run(chosen, _api(chosen))


def _run(chosen: settings.Settings, process: Coroutine[Any, Any, None]) -> None:
    telemetry.configure_logging(chosen.log_level, "text" if sys.stderr.isatty() else "json")
    gc.freeze()  # imported modules stay alive: exempt them from garbage collection
    gc.set_threshold(*GC_THRESHOLDS)
    uvloop.run(process)


# -- the worker ------------------------------------------------------------------------------


async def _worker(chosen: settings.WorkerSettings) -> None:
    clock = comparedclock.ComparedClock(clocks.SystemClock())
    health = services.Health()
    access = credentials.found(None, None)
    async with (
        serving(chosen, health, "worker"),
        kubeapi.ApiSession(access, component="worker") as api,
    ):
        server = (await access.login()).server
        async with working(
            chosen,
            api=api,
            clock=clock,
            health=health,
            own_hosts=resolving.own_servers(chosen.redis_url, server),
            audiences=lambda: webhookcredentials.audiences_of(
                known.token if (known := access.known()) else None
            ),
        ) as loop:
            draining_on_signals(loop.drain)
            await loop.run()
    telemetry.logger.info("stopped", worker=chosen.identity)


@contextlib.asynccontextmanager
async def working(
    chosen: settings.WorkerSettings,
    *,
    api: kube_port.TimedApi,
    clock: comparedclock.ComparedClock,
    health: services.Health,
    own_hosts: tuple[tuple[str, int], ...],
    audiences: Callable[[], tuple[str, ...]],
) -> AsyncIterator[claimer.Claimer]:
    """Build a worker and yield its claim loop, for the caller to run; then close everything.

    Args:
        clock: times points, lateness and signatures.
        own_hosts: host and port of our own servers, which no webhook may reach.
        audiences: returns the audiences of the worker's own token.
    """
    queue = open_queue(chosen, clock)
    watch = comparedclock.ClockWatch(clock, health, api.time_us)
    owned = ownership.Ownership(api, queue, clock, namespace=chosen.namespace)
    jobs_api = ownership.OwnJobs(api, owned)
    dialler = dialling.Dialler(egress_policy(chosen), lambda: (*own_hosts, *queue.health.hosts()))
    secrets = references.objects_of(api, clock)
    #: The ClusterRole that lets a worker read a namespace's Secrets, for messages.
    reader_role = f"{chosen.installation}-secret-reader"
    reader = servers.ConnectionReader(secrets, reader_role)
    cluster_services = endpoints.service_cache(api, clock)
    server_dialler = servers.ServerDialler(dialler, cluster_services)
    spans = span_exporter(chosen)
    traces = results.AttemptTraces(spans.record, ratio=traced_share(os.environ)) if spans else None

    async def before_claims() -> None:
        await watch.before_work()
        await owned.before_claims()

    async with contextlib.AsyncExitStack() as stack:
        if spans is not None:
            stack.push_async_callback(asyncio.to_thread, spans.close)
        stack.push_async_callback(queue.close)
        webhook = webhooktarget.WebhookTarget(
            dialler,
            cluster_services,
            webhookcredentials.Vault(
                secrets,
                references.tokens_of(api, clock),
                reader_role=reader_role,
                is_insecure_allowed="tls" in chosen.webhook_insecure,
                own_audiences=audiences,
            ),
            clock,
            admission=admission.Admission(
                clock,
                places=chosen.concurrency,
                breaker=admission.CircuitBreaker(queue.circuits, clock),
            ),
        )
        stream = streamtarget.StreamTarget(
            clock,
            external.ExternalStreams(reader, server_dialler),
            has_own_streams=has_own_streams(chosen),
        )
        kafka = kafkatarget.KafkaTarget(reader, server_dialler, clock)
        for each in (webhook, kafka, stream):
            stack.push_async_callback(each.close)
        job = jobtarget.JobTarget(jobs_api, clock)
        await stack.enter_async_context(services.beside(watch.run(queue.health.time_us)))
        await stack.enter_async_context(services.beside(owned.run()))
        yield claimer.Claimer(
            queue,
            firing.Firer(
                queue=queue,
                targets={"job": job, "webhook": webhook, "stream": stream, "kafka": kafka},
                streams=stream,
                clock=clock,
                places=chosen.concurrency,
                lease_seconds=chosen.lease_seconds,
                jobs=jobtarget.ActiveJobs(jobs_api),
                traces=traces,
            ),
            clock,
            health,
            worker=chosen.identity,
            limits=claimer.Limits(
                batch=min(_MOST_IN_A_BATCH, chosen.concurrency),
                under_way=_POINTS_IN_HAND * chosen.concurrency,
                lease_seconds=chosen.lease_seconds,
                grace_seconds=chosen.grace_seconds,
            ),
            before_claims=before_claims,
        )


_COLLECTOR = "OTEL_EXPORTER_OTLP_ENDPOINT"


def span_exporter(
    chosen: settings.WorkerSettings, environment: Mapping[str, str] = os.environ
) -> tracing.Exporter | None:
    """Return the exporter for spans of slots, configured by OpenTelemetry's own variables.

    None if they name no collector; then nothing is imported for traces. Raises InvalidSetting if
    the packages of the extra are missing.
    """
    if not environment.get(_COLLECTOR):
        return None
    try:
        from duepoint.tracing import otlp  # noqa: PLC0415 - it may not be installed
    except ImportError as error:
        raise errors.InvalidSetting(
            _COLLECTOR,
            f"traces need packages that are not installed ({error.name}); install duepoint[otel]"
            ", or leave the variable out",
        ) from error
    return otlp.Exporter(component="worker", instance=chosen.identity)


def traced_share(environ: Mapping[str, str]) -> float:
    """Return the share of the slots to trace, from OpenTelemetry's own variable."""
    text = environ.get(name := "OTEL_TRACES_SAMPLER_ARG", "1")
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0 <= share <= 1:
        raise errors.InvalidSetting(name, f"{errors.quoted(text)} is not a share; write 0 to 1")
    return share


def egress_policy(chosen: settings.WorkerSettings) -> egressrules.EgressPolicy:
    """Return which addresses this installation allows webhooks to reach."""
    return egressrules.EgressPolicy(
        mode=chosen.egress_mode,
        allowed=chosen.egress_allowed_cidrs,
        denied=chosen.egress_denied_cidrs,
        cluster=(*chosen.egress_cluster_cidrs, *resolving.pod_networks()),
        allow_http="http" in chosen.webhook_insecure,
    )


# -- the operator ----------------------------------------------------------------------------


async def _operator(chosen: settings.OperatorSettings) -> None:
    # Imported late: kopf takes 30 MB, and a worker must not pay for it.
    from duepoint.controller.watching import kopfthread  # noqa: PLC0415

    clock = comparedclock.ComparedClock(clocks.SystemClock())
    health = services.Health()
    access = credentials.found(None, None)
    health.expect(_REDIS)
    async with (
        serving(chosen, health, "operator"),
        kubeapi.ApiSession(access, component="operator") as api,
    ):
        await kopfthread.rehearse()
        watch = functools.partial(kopfthread.watch, credentials=access)
        watchdog = elector.Watchdog()
        async with operating(
            chosen, api=api, clock=clock, health=health, watch=watch, watchdog=watchdog
        ) as leading:
            draining_on_signals(leading.cancel)
            try:
                await leading
            except asyncio.CancelledError:
                telemetry.logger.info("stopped", operator=chosen.identity)


@contextlib.asynccontextmanager
async def operating(
    chosen: settings.OperatorSettings,
    *,
    api: kube_port.TimedApi,
    clock: comparedclock.ComparedClock,
    health: services.Health,
    watch: leadership.Watch,
    watchdog: elector.Watchdog | None = None,
    on_run: Callable[[run.RunEvent], None] = lambda _event: None,
) -> AsyncIterator[asyncio.Task[None]]:
    """Build an operator and yield its task, which leads whenever it can until it is cancelled.

    Args:
        watch: the watch that each term runs.
        watchdog: ends the process if the event loop is stuck at the end of a term.
        on_run: called with every event of a run.
    """
    from duepoint.controller import leadership  # noqa: PLC0415 - a worker must not pay for it

    health.expect(_REDIS)
    queue = open_queue(chosen, clock)
    work = leadership.Leadership(
        settings=chosen,
        api=api,
        queue=queue,
        watch=watch,
        clock=clock,
        health=health,
        has_own_streams=has_own_streams(chosen),
        on_run=on_run,
    ).work
    elected = elector.Elector(
        leases.KubeLease(api, chosen.namespace, leadership.lease_name(chosen), health),
        clock,
        elector.kept(chosen.identity, _identity_file(chosen)),
        known_epoch=queue.layouts.newest_epoch,
        watchdog=watchdog,
        on_change=_note_leadership,
    )
    compared = comparedclock.ClockWatch(clock, health, api.time_us)

    async def lead() -> None:
        await compared.right.wait()
        await elected.run(work)

    leading = asyncio.create_task(lead())
    try:
        async with services.beside(compared.run(functools.partial(_redis_time, queue, health))):
            yield leading
    finally:
        leading.cancel()
        await asyncio.gather(leading, return_exceptions=True)
        if watchdog is not None:
            watchdog.rest()
        await queue.close()


async def _redis_time(queue: delayqueue.DelayQueue, health: services.Health) -> int:
    """Return Redis's time, and report in health and metrics whether Redis answers.

    A standby without Redis is not ready either: it could not lead.
    """
    try:
        redis_us = await queue.health.time_us()
    except errors.TryLater as trouble:
        telemetry.redis_up.set(0)
        health.unwell(_REDIS, str(trouble))
        raise
    telemetry.redis_up.set(1)
    health.well(_REDIS)
    return redis_us


def _note_leadership(leading: bool, epoch: int) -> None:  # noqa: FBT001 - the elector's callback
    telemetry.leader.set(leading)
    if leading:
        telemetry.leader_transitions_total.inc()
    telemetry.logger.info("leading" if leading else "standing by", epoch=epoch)


# -- the HTTP API ----------------------------------------------------------------------------


async def _api(chosen: settings.ApiSettings) -> None:
    from duepoint.httpapi import service  # noqa: PLC0415 - the other processes do not need it

    clock = comparedclock.ComparedClock(clocks.SystemClock())
    health = services.Health()
    login = credentials.found(None, None)
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(serving(chosen, health, "api"))
        api = await stack.enter_async_context(kubeapi.ApiSession(login, component="api"))
        users = None
        if chosen.api_dashboard:
            users = kubeapi.UserSessions(login, component="dashboard")
            stack.push_async_callback(users.close)
        handler = await stack.enter_async_context(
            answering(chosen, api=api, clock=clock, health=health, users=users)
        )
        stop = asyncio.Event()
        draining_on_signals(stop.set)
        await service.serve(chosen, handler, health, stop)
    telemetry.logger.info("stopped", api=chosen.identity)


@contextlib.asynccontextmanager
async def answering(
    chosen: settings.ApiSettings,
    *,
    api: kube_port.TimedApi,
    clock: comparedclock.ComparedClock,
    health: services.Health,
    users: kubeapi.UserSessions | None = None,
) -> AsyncIterator[application.Application]:
    """Build the HTTP API and yield its application; ``users``: API sessions for the dashboard."""
    from duepoint.httpapi import access, application, calls, service  # noqa: PLC0415

    queue = open_queue(chosen, clock)
    rights = access.Access(api, chosen.api_audiences)
    compared = comparedclock.ClockWatch(clock, health, api.time_us)
    try:
        async with (
            services.beside(compared.run(queue.health.time_us)),
            services.beside(service.check(queue, health)),
        ):
            yield application.Application(calls.Shared(queue, clock, rights, users))
    finally:
        await queue.close()


# -- for all processes ----------------------------------------------------------------------


def serving(
    chosen: settings.Settings, health: services.Health, process: str
) -> contextlib.AbstractAsyncContextManager[None]:
    """Serve the probes and metrics of this process within the context."""
    host, port = chosen.listen_address, chosen.http_port
    return probes.serving(health, host=host, port=port, registry=telemetry.processes[process])


def open_queue(chosen: settings.Settings, clock: clocks.Clock) -> delayqueue.DelayQueue:
    """Return the delay queue of this installation; does not connect yet."""
    key = chosen.blob_key_file.read_bytes()
    if len(key) < _KEY_BYTES:
        raise errors.InvalidSetting(
            settings.variable("blob_key_file"),
            f"the file has {len(key)} bytes; write {_KEY_BYTES} random ones",
        )
    return delayqueue.open_queue(
        chosen,
        clock,
        key,
        buckets=keys.buckets_for(_NAMESPACE_SCHEDULES, chosen.shards),
        quotas=quotas.Quotas(
            letter_bytes=chosen.dead_letter_bytes_per_namespace,
            streams=max(1, chosen.own_stream_bytes_per_namespace // STREAM_BYTES),
            stream_bytes=max(1, chosen.own_stream_bytes_per_namespace),
        ),
    )


def _identity_file(chosen: settings.OperatorSettings) -> Path:
    """Return the file that keeps our Lease name, so that a restarted container leads at once."""
    name = f"duepoint-{chosen.namespace}-{chosen.installation}-{chosen.identity}.lease"
    return Path(tempfile.gettempdir()) / name


def has_own_streams(chosen: settings.Settings) -> bool:
    """Whether this installation allows streams in our Redis."""
    return chosen.own_stream_bytes_per_namespace >= STREAM_BYTES


def draining_on_signals(drain: Callable[[], object]) -> None:
    """Call ``drain`` on the first SIGTERM or SIGINT; a second one ends the process at once."""
    loop = asyncio.get_running_loop()

    def first(number: signal.Signals) -> None:
        telemetry.logger.info("draining", signal=number.name)
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(each)
        drain()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, first, number)
