"""Webhooks a second beside a bare loop of POSTs to the same local server, in turns.

Ours is the target as the worker uses it: a firing for each slot, the gate with its circuits and
limits, the Secret from the cache, the signature, the guard on every connection. The bare loop is
the plain use of aiohttp: one session, the same body, nothing looked at but the status.
The share is the median of the turns' shares, because a machine has good and bad seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import msgspec

from benchmarks import report
from benchmarks.report import Figure
from benchmarks.webhooks import server
from duepoint import clock as clocks
from duepoint.net import dialling
from duepoint.runs import outcome
from duepoint.schedules import actions
from duepoint.targets import target
from duepoint.targets.webhook import admission, circuitbreaker, request
from duepoint.targets.webhook import target as webhooktarget
from tests.support import vaults, virtualqueue, webhookscene, webhooktargets

NAME = "webhook"
CONCURRENCIES = (64, 256)
PAYLOAD = {"order": 17, "lines": [{"sku": f"sku-{n}", "count": n} for n in range(10)]}
NAMESPACE = "team"
#: Due at the same time, every second.
SCHEDULES = 1000

Post = Callable[[], Awaitable[None]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Size:
    """How much is measured."""

    turns: int
    seconds: float


def size(*, small: bool) -> Size:
    return Size(turns=3, seconds=1.0) if small else Size(turns=7, seconds=2.0)


async def run(*, small: bool) -> list[Figure]:
    figures = []
    async with server.serving() as port:
        for concurrency in CONCURRENCIES:
            figures += await _compared(port, concurrency, size(small=small))
    return figures


async def _compared(port: int, concurrency: int, wanted: Size) -> list[Figure]:
    url = f"http://127.0.0.1:{port}/hooks"
    shares, cpu_shares, ours, bares = [], [], [], []
    async with _bare(url, concurrency) as bare, _webhooks(url, concurrency) as signed:
        for post in (bare, signed):
            await _rate(post, concurrency, 0.3)  # connections are opened, modules loaded
        for turn in range(wanted.turns):
            rate, cpu = await _rate(bare, concurrency, wanted.seconds)
            our_rate, our_cpu = await _rate(signed, concurrency, wanted.seconds)
            bares.append(rate)
            ours.append(our_rate)
            shares.append(our_rate / rate)
            cpu_shares.append(our_cpu / cpu)
            report.say(
                f"{concurrency} at a time, turn {turn + 1}: {ours[-1]:,.0f}/s, "
                f"bare {bares[-1]:,.0f}/s, {shares[-1]:.2f}"
            )
    beside = f"a bare aiohttp loop: {statistics.median(bares):,.0f}/s"
    return [
        Figure(
            benchmark=NAME,
            figure=f"rate beside a bare loop, {concurrency} at a time",
            value=round(statistics.median(shares), 3),
            unit="of its rate",
            bar=">= 0.9",
            spread=(round(min(shares), 3), round(max(shares), 3)),
            runs=len(shares),
            compared_with=beside,
        ),
        Figure(
            benchmark=NAME,
            figure=f"CPU of a webhook beside a bare POST's, {concurrency} at a time",
            value=round(statistics.median(cpu_shares), 2),
            unit="times",
            bar="<= 1.1",
            spread=(round(min(cpu_shares), 2), round(max(cpu_shares), 2)),
            runs=len(cpu_shares),
        ),
        Figure(
            benchmark=NAME,
            figure=f"rate, {concurrency} at a time",
            value=round(statistics.median(ours)),
            unit="webhooks/s",
            spread=(round(min(ours)), round(max(ours))),
            runs=len(ours),
            compared_with=beside,
        ),
    ]


async def _rate(post: Post, concurrency: int, seconds: float) -> tuple[float, float]:
    """Posts a second, so many at a time, and the CPU seconds of one."""
    ends = time.perf_counter() + seconds
    done = 0

    async def repeat() -> None:
        nonlocal done
        while time.perf_counter() < ends:
            await post()
            done += 1

    begun, used = time.perf_counter(), time.process_time()
    await asyncio.gather(*(repeat() for _ in range(concurrency)))
    return done / (time.perf_counter() - begun), (time.process_time() - used) / done


@contextlib.asynccontextmanager
async def _bare(url: str, concurrency: int) -> AsyncIterator[Post]:
    """The body of a webhook and its usual headers, and no more."""
    composed = request.Composer(_action(url), None).compose(
        a_firing(url, 0), time.time_ns() // 1000
    )
    connector = aiohttp.TCPConnector(limit=concurrency)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def post() -> None:
            async with session.post(url, data=composed.body, headers=composed.headers) as response:
                await response.read()
                assert response.status == 204

        yield post


@contextlib.asynccontextmanager
async def _webhooks(url: str, concurrency: int) -> AsyncIterator[Post]:
    """The target of the product."""
    clock = clocks.SystemClock()
    api = await vaults.api_with(vaults.a_secret("signing", NAMESPACE, key=vaults.WHSEC))
    limits = admission.HostLimits(clock, per_host=concurrency, places=2 * concurrency)
    breaker = circuitbreaker.CircuitBreaker(virtualqueue.VirtualQueue(clock).circuits, clock)
    sender = webhooktarget.WebhookTarget(
        dialling.Dialler(webhookscene.LOCAL),
        webhooktargets.FixedServices(),
        vaults.a_vault(api, clock),
        clock,
        admission=admission.Admission(limits, breaker),
    )
    slots = iter(range(1_000_000_000))

    async def post() -> None:
        answer = await sender.fire(a_firing(url, next(slots)))
        assert isinstance(answer, outcome.Delivered), answer

    try:
        yield post
    finally:
        await sender.close()


def _action(url: str) -> actions.WebhookAction:
    return actions.WebhookAction(url=url, signing=(actions.SecretKey(name="signing", key="key"),))


_actions: dict[str, actions.Action] = {}


def a_firing(url: str, number: int) -> target.Firing:
    """The first attempt of a slot; the action is known, as in a worker."""
    action = _actions.get(url)
    if action is None:
        payload = msgspec.Raw(json.dumps(PAYLOAD).encode())
        action = _actions[url] = actions.Action(target=_action(url), payload=payload)
    slot_us = 1_772_366_400_000_000 + number // SCHEDULES * 1_000_000
    now = clocks.SystemClock().monotonic()
    return target.Firing(
        action=action,
        namespace=NAMESPACE,
        name="nightly",
        uid=f"7c2f0f6e-0d5b-4a0e-9f0c-{number % SCHEDULES:012d}",
        generation=1,
        slot_us=slot_us,
        due_us=time.time_ns() // 1000,
        previous_us=slot_us - 1_000_000,
        trigger="Schedule",
        attempt=1,
        run_uid="",
        time_zone="Etc/UTC",
        not_after_monotonic=now + 10.0,
        ends_by_monotonic=now + 30.0,
    )
