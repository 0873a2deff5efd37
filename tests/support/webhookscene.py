"""Whole workers that send webhooks, on a real queue, and a receiver that can be away.

Used by the tests of outages and by the benchmarks: workers with the guard, the breaker and the
limits of the product, in this process; a receiver that notes each request and how many were open;
and a queue that notes when a retry was due, so that one that comes sooner is found.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import ipaddress
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any

from duepoint import clock as clocks
from duepoint import services
from duepoint.delayqueue import circuits, delayqueue, messages
from duepoint.net import dialling, egressrules
from duepoint.schedules import actions, definition, slots
from duepoint.schedules import rule as rules
from duepoint.targets import target as targets
from duepoint.targets.stream import target as streams
from duepoint.targets.webhook import admission, circuitbreaker
from duepoint.targets.webhook import target as webhooks
from duepoint.worker import claimer, firing
from tests.fakes.nojobs import no_jobs
from tests.support import queueing, vaults, webhooktargets

LOCAL = egressrules.EgressPolicy(allowed=(ipaddress.ip_network("127.0.0.1/32"),))
USUAL = circuits.CircuitRule()
WELL, FAILS, HANGS, GONE = "well", "fails", "hangs", "gone"


# -- the receiver -----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Arrival:
    """One request: when it came, which delivery it was, and whether it was accepted."""

    at_us: int
    webhook_id: str
    accepted: bool


class Receiver:
    """Attributes:
    mood: how it answers from now on.
    most_open: most requests that were open at a time.
    seconds: how long an answer takes.
    headers: lines of a failing answer.
    """

    def __init__(self, mood: str = WELL, *, seconds: float = 0.0, headers: bytes = b"") -> None:
        self.mood = mood
        self.seconds = seconds
        self.headers = headers
        self.arrivals: list[Arrival] = []
        self.open = 0
        self.most_open = 0
        self.port = 0
        self.connections: set[asyncio.Transport] = set()
        self._something = asyncio.Event()

    def arrived(self, webhook_id: str) -> bytes | None:
        """The answer to a request, None where it gets none."""
        accepted = self.mood == WELL
        self.arrivals.append(Arrival(time.time_ns() // 1000, webhook_id, accepted))
        self._something.set()
        if accepted:
            return b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"
        if self.mood == HANGS:
            return None
        status = b"410 Gone" if self.mood == GONE else b"503 Unavailable"
        return b"HTTP/1.1 " + status + b"\r\n" + self.headers + b"Content-Length: 0\r\n\r\n"

    def accepted(self) -> list[Arrival]:
        return [one for one in self.arrivals if one.accepted]

    async def wait_for(self, count: int, seconds: float) -> bool:
        """Until so many different deliveries were accepted."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while len({one.webhook_id for one in self.accepted()}) < count:
                    self._something.clear()
                    await self._something.wait()
                return True
        return False


class _Connection(asyncio.Protocol):
    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._got = b""
        self._open = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        self._receiver.connections.add(transport)

    def data_received(self, data: bytes) -> None:
        self._got += data
        head, separator, body = self._got.partition(b"\r\n\r\n")
        if not separator:
            return
        fields = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(b":") for line in head.split(b"\r\n")[1:])
        }
        if len(body) < int(fields.get(b"content-length", b"0")):
            return
        self._got = b""
        self._open += 1
        self._receiver.open += 1
        self._receiver.most_open = max(self._receiver.most_open, self._receiver.open)
        answer = self._receiver.arrived(fields.get(b"webhook-id", b"").decode())
        if answer is None:
            return
        if self._receiver.seconds:
            asyncio.get_running_loop().call_later(self._receiver.seconds, self._answer, answer)
        else:
            self._answer(answer)

    def _answer(self, answer: bytes) -> None:
        self._close_one()
        self._transport.write(answer)

    def _close_one(self) -> None:
        if self._open:
            self._open -= 1
            self._receiver.open -= 1

    def connection_lost(self, _exc: Exception | None) -> None:
        self._receiver.connections.discard(self._transport)
        while self._open:
            self._close_one()


@contextlib.asynccontextmanager
async def receiving(receiver: Receiver) -> AsyncIterator[Receiver]:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(receiver), "127.0.0.1", 0)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        for connection in list(receiver.connections):
            connection.abort()


# -- the workers --------------------------------------------------------------------------------


def note_dues(queue: delayqueue.DelayQueue, dues: dict[tuple[str, int], int]) -> None:
    """Note (uid, slot) -> when its next attempt was put off to, of all settlements."""
    settle = queue.settlements.settle

    async def noted(claim: messages.Claim, settlement: messages.Settlement) -> messages.Settled:
        for one in settlement.occurrences:
            known = one.origin.get("uid", "")
            dues[known, one.point.slot_us] = one.point.due_us
        return await settle(claim, settlement)

    queue.settlements.settle = noted


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wants:
    """How the workers of a scene are made."""

    workers: int = 2
    per_host: int = 4
    concurrency: int = 64
    rule: circuits.CircuitRule = USUAL
    lease_seconds: float = 10.0


class Scene:
    """A queue, workers, and what they did."""

    def __init__(self, url: str, prefix: str, wants: Wants) -> None:
        self.wants = wants
        self.dues: dict[tuple[str, int], int] = {}
        self.queue = self.a_queue(url, prefix)
        self.expected: dict[str, tuple[str, int]] = {}
        self._url, self._prefix = url, prefix

    def a_queue(self, url: str, prefix: str) -> delayqueue.DelayQueue:
        made = delayqueue.connect(url, blob_key=queueing.BLOB_KEY, prefix=prefix)
        note_dues(made, self.dues)
        return made

    async def arm(
        self,
        name: str,
        webhook: actions.WebhookAction,
        *,
        every: str,
        start_us: int,
        end_us: int,
        namespace: str = "team",
    ) -> definition.Definition:
        """A Schedule of that many slots, each of them expected from now on."""
        blob = actions.encode(actions.Action(target=webhook))
        timing = rules.Timing(schedules=(f"@every {every}",), start_us=start_us, end_us=end_us)
        known = definition.Definition(
            namespace=namespace,
            name=name,
            uid=str(uuid.uuid4()),
            generation=1,
            timing_generation=1,
            created_us=start_us,
            not_before_us=start_us - 1,
            state=definition.State.ARMED,
            rule=rules.Rule(
                timing=timing,
                policy=rules.Policy(catch_up="All", catch_up_limit=1000),
            ),
            target=self.queue.signed_blobs.digest(namespace, blob),
        )
        timeline = slots.for_rule(known.rule, identity=known.identity, created_us=start_us)
        due = timeline.next_after(start_us - 1)
        while due is not None:
            self.expected[targets.webhook_id(known.uid, due.slot_us, "")] = (
                known.uid,
                due.slot_us,
            )
            due = timeline.next_after(due.slot_us)
        arming = messages.Arming(definition=known, due_us=start_us)
        await self.queue.writer.upsert([(arming, blob)], queueing.EPOCH)
        return known

    @contextlib.asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            for number in range(self.wants.workers):
                await stack.enter_async_context(self._worker(f"worker-{number}"))
            yield

    @contextlib.asynccontextmanager
    async def _worker(self, name: str) -> AsyncIterator[None]:
        queue = self.a_queue(self._url, self._prefix)
        await queue.start()
        work, sender = a_worker(queue, name, self.wants)
        running = asyncio.create_task(work.run())
        try:
            yield
        finally:
            work.drain()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(running, 10)
            await sender.close()
            await queue.close()

    async def dead(self) -> set[str]:
        """Ids of the deliveries that were given up."""
        return {
            targets.webhook_id(letter.entry["uid"], int(letter.entry["slot_us"]), "")
            async for letter in self.queue.dead_letters.newest()
        }

    def due_of(self, webhook_id: str) -> int:
        """When the delivery may be tried next: its slot, or what its last failure put it off to."""
        uid, slot_us = self.expected[webhook_id]
        return self.dues.get((uid, slot_us), slot_us)


def a_worker(
    queue: delayqueue.DelayQueue, name: str, wants: Wants
) -> tuple[claimer.Claimer, webhooks.WebhookTarget]:
    """The product's worker, with webhooks that may go to this machine."""
    clock = clocks.SystemClock()
    limits = admission.HostLimits(clock, per_host=wants.per_host, places=wants.concurrency)
    sender = webhooks.WebhookTarget(
        dialling.Dialler(LOCAL),
        webhooktargets.FixedServices(),
        vaults.a_vault(),
        clock,
        admission=admission.Admission(
            limits,
            circuitbreaker.CircuitBreaker(circuits.Circuits(queue.index, wants.rule), clock),
        ),
    )
    every = targets.Targets(job=_no_jobs(), webhook=sender, stream=streams.StreamTarget(clock))
    claims = claimer.Limits(
        batch=500,
        under_way=2 * wants.concurrency,
        lease_seconds=wants.lease_seconds,
        grace_seconds=1.0,
    )
    work = claimer.Claimer(
        queue,
        firing.Firer(
            queue=queue,
            target=every,
            clock=clock,
            places=wants.concurrency,
            lease_seconds=wants.lease_seconds,
            jobs=no_jobs(),
        ),
        clock,
        services.Health(),
        worker=name,
        limits=claims,
    )
    return work, sender


def _no_jobs() -> Any:
    """Nothing here makes Jobs."""
    return None


@contextlib.asynccontextmanager
async def scene(url: str, prefix: str, wants: Wants | None = None) -> AsyncIterator[Scene]:
    made = Scene(url, prefix, wants or Wants())
    await made.queue.start()
    await made.queue.membership.open(4, queueing.EPOCH)
    try:
        yield made
    finally:
        await made.queue.close()


# -- what came of it ------------------------------------------------------------------------------


def twice(arrivals: Sequence[Arrival]) -> list[str]:
    """Deliveries that were accepted more than once."""
    seen: set[str] = set()
    doubled = []
    for one in arrivals:
        if one.accepted and one.webhook_id in seen:
            doubled.append(one.webhook_id)
        seen.update([one.webhook_id] if one.accepted else [])
    return doubled
