"""Webhooks a second, compared with a bare loop of POSTs to the same local server, in turn.

Ours is the target as the worker uses it: a firing for each slot, circuits and limits, the Secret
from the cache, the signature, the guard on every connection. The bare loop is the plain use of
aiohttp: one session, the same body, only the status is checked. The median of the turns' ratios
counts, because a machine has good and bad seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import msgspec

from benchmarks import receivers, report
from benchmarks.report import Figure
from duepoint import clock as clocks
from duepoint.model import webhook as model
from duepoint.net import dialling, egressrules
from duepoint.schedules import actions
from duepoint.targets import outcome, target
from duepoint.targets.webhook import admission, request
from duepoint.targets.webhook import target as webhooktarget
from tests.support import vaults, virtualqueue, webhooktargets

CONCURRENCIES = (64, 256)
TURNS, SECONDS = (3, 1.0) if report.IS_SMALL else (7, 2.0)
_LOCAL = egressrules.EgressPolicy(allowed=(ipaddress.ip_network("127.0.0.1/32"),))
PAYLOAD = {"order": 17, "lines": [{"sku": f"sku-{n}", "count": n} for n in range(10)]}
NAMESPACE = "team"
#: Due at the same time, every second.
SCHEDULES = 1000

Post = Callable[[], Awaitable[None]]


async def run() -> AsyncIterator[Figure]:
    async with receivers.started("answers") as receiver:
        url = f"http://127.0.0.1:{receiver.port}/hooks"
        for concurrency in CONCURRENCIES:
            async with _bare(url, concurrency) as bare, _webhooks(url, concurrency) as signed:
                for figure in await _compared(bare, signed, concurrency):
                    yield figure


async def _compared(bare: Post, signed: Post, concurrency: int) -> list[Figure]:
    """Measure both in turn, several times."""
    for post in (bare, signed):
        await _rate(post, concurrency, 0.3)  # connections are opened, modules loaded
    shares, cpu_shares, rates, bare_rates = [], [], [], []
    for turn in range(TURNS):
        bare_rate, bare_cpu = await _rate(bare, concurrency, SECONDS)
        rate, cpu = await _rate(signed, concurrency, SECONDS)
        bare_rates.append(bare_rate)
        rates.append(rate)
        shares.append(rate / bare_rate)
        cpu_shares.append(cpu / bare_cpu)
        report.say(f"{concurrency} at a time, turn {turn + 1}: {rate:,.0f}/s, {shares[-1]:.2f}")
    bench = report.Bench("webhook", f"{concurrency} at a time")
    return [
        bench.median("rate, of a bare loop's", shares, "ratio", ">= 0.9", digits=3),
        bench.median("CPU of a webhook, of a bare POST's", cpu_shares, "ratio", "<= 1.1", digits=2),
        bench.median("rate", rates, "webhooks/s"),
        bench.median("rate of a bare aiohttp loop", bare_rates, "POSTs/s"),
    ]


async def _rate(post: Post, concurrency: int, seconds: float) -> tuple[float, float]:
    """Return the posts a second with this concurrency, and the CPU seconds of one."""
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
    """Yield a function that posts the body and usual headers of a webhook, and no more."""
    composer = request.Composer(_action(url), None)
    own, body = composer.compose(_firing(url, 0), time.time_ns() // 1000)
    headers = [*composer.common, *own]
    connector = aiohttp.TCPConnector(limit=concurrency)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def post() -> None:
            async with session.post(url, data=body, headers=headers) as response:
                await response.read()
                assert response.status == 204

        yield post


@contextlib.asynccontextmanager
async def _webhooks(url: str, concurrency: int) -> AsyncIterator[Post]:
    """Yield a function that fires the product's webhook target."""
    clock = clocks.SystemClock()
    api = await vaults.api_with(vaults.a_secret("signing", NAMESPACE, key=vaults.WHSEC))
    no_services: Any = webhooktargets.FixedServices()
    breaker = admission.CircuitBreaker(virtualqueue.VirtualQueue(clock).circuits, clock)
    sender = webhooktarget.WebhookTarget(
        dialling.Dialler(_LOCAL),
        no_services,
        vaults.a_vault(api, clock),
        clock,
        admission=admission.Admission(
            clock, per_host=concurrency, places=2 * concurrency, breaker=breaker
        ),
    )
    slots = iter(range(1_000_000_000))

    async def post() -> None:
        answer = await sender.fire(_firing(url, next(slots)))
        assert isinstance(answer, outcome.Delivered), answer

    try:
        yield post
    finally:
        await sender.close()


def _action(url: str) -> actions.WebhookAction:
    key = model.SecretKeyRefFields(name="signing", key="key")
    return actions.WebhookAction(url=url, signing=model.SigningFields((key,)))


_actions: dict[str, actions.Action] = {}


def _firing(url: str, number: int) -> target.Firing:
    """Return the first attempt of a slot; the action is cached, as in a worker."""
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
