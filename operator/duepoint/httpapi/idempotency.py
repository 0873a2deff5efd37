"""What headers promise: a request is carried out once, and a change is as safe as was asked for.

A request with an ``Idempotency-Key`` is carried out once, and repeated answers are the same.

The first attempt is recorded with the hash of what it asks and with what it chose (the id of a new
member, the run of a trigger), and again with its answer. A repeat gets that answer. Where the first
attempt was lost in between, a repeat is carried out with the same choices: a member that was
stored is stored again under its id, and its event has the same id as well. Refusals are not kept:
what is wrong with a request may be mended. A large answer is kept without its payload, which is
what makes it large: a namespace has one quota for all that is kept.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from duepoint import clock as clocks
from duepoint import faults
from duepoint.delayqueue import apirequests, serverhealth
from duepoint.delayqueue.wire import nodes
from duepoint.faults import FaultPoint
from duepoint.httpapi.problems import OperationProblem
from duepoint.net.requests import HttpResponse

#: After so long an attempt without an answer counts as lost.
_LOST_AFTER_US = 10_000_000
#: Of an answer that is kept as it is.
_SMALL_BYTES = 1_024


class _Record(msgspec.Struct, array_like=True):
    """What is kept of a request; ``status`` 0 = it has no answer yet."""

    asked: bytes
    since_us: int
    begun: dict[str, Any]
    status: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])

#: Carries a request out; the argument is what an earlier attempt chose, or is to be filled.
Attempt = Callable[[dict[str, Any]], Awaitable[HttpResponse]]


class Idempotency:
    """Remembers requests."""

    def __init__(self, requests: apirequests.ApiRequests, clock: clocks.Clock) -> None:
        self._requests = requests
        self._clock = clock

    async def once(
        self,
        owner: str,
        key: str,
        asked: tuple[object, ...],
        choose: dict[str, Any],
        do: Attempt,
        *,
        namespace: str,
    ) -> HttpResponse:
        """The answer of the first request with this key.

        Args:
            owner: whose keys these are: the set, and the caller.
            asked: everything that makes the request another one.
            choose: what this attempt chooses, should it be the first.
            namespace: whose quota holds what is kept.
        """
        now_us = self._clock.now_us()
        digest = hashlib.sha256(msgspec.msgpack.encode(asked)).digest()
        record = _Record(digest, now_us, choose)
        request = apirequests.RepeatedRequest(namespace, owner, key, now_us)
        found = await self._requests.begin(request, msgspec.msgpack.encode(record))
        if found is None:
            raise OperationProblem(
                "TooManyRequests",
                "the namespace had too many requests with a key today; leave the key out, or PUT "
                "under an id of your own",
                retry_after_seconds=3_600,
            )
        if found:
            earlier = msgspec.msgpack.decode(found, type=_Record)
            if earlier.asked != digest:
                message = "the key was used for another request within the last day"
                raise OperationProblem("Conflict", message, field="Idempotency-Key")
            if earlier.status:
                headers = (*earlier.headers, ("Idempotency-Replayed", "true"))
                return HttpResponse(earlier.status, headers, earlier.body)
            record = msgspec.structs.replace(earlier, since_us=now_us)
            renewed = msgspec.msgpack.encode(record)
            if now_us - earlier.since_us < _LOST_AFTER_US or not await self._requests.resume(
                request, found, renewed
            ):
                message = "the first request with this key is being carried out"
                raise OperationProblem("IdempotencyInProgress", message, retry_after_seconds=1)
        await faults.reach(FaultPoint.AFTER_KEY_RECORDED)
        try:
            answer = await do(record.begun)
        except OperationProblem as problem:
            if problem.status < 500:
                await self._requests.finish(request, b"")
            raise
        kept = msgspec.structs.replace(
            record, status=answer.status, headers=answer.headers, body=_without_payload(answer.body)
        )
        await self._requests.finish(request, msgspec.msgpack.encode(kept))
        await faults.reach(FaultPoint.AFTER_ANSWER_RECORDED)
        return answer


def _without_payload(body: bytes) -> bytes:
    if len(body) <= _SMALL_BYTES:
        return body
    fields = _fields_decoder.decode(body)
    fields.pop("payload", None)
    return msgspec.json.encode(fields)


_FRESH_SECONDS = 5.0


class Promise:
    """Refuses a durability that the servers cannot give.

    Asked before the change is made, because a change that is stored cannot be refused. What the
    servers have is read at most every few seconds.
    """

    def __init__(self, probe: serverhealth.DurabilityProbe) -> None:
        self._probe = probe
        self._known: serverhealth.ServerDurability | None = None
        self._until = float("-inf")
        self._reading = asyncio.Lock()

    async def check(self, safety: nodes.Safety) -> None:
        """Raise Problem DurabilityUnavailable."""
        known = await self._read()
        if safety.on_disk and "aof" not in known.persistence:
            raise _unavailable("aof", "no server has an append-only file (appendonly yes)")
        if safety.replicas > known.replicas:
            wanted = f"replicas={safety.replicas}"
            raise _unavailable(wanted, f"{known.replicas} replicas are connected")

    async def _read(self) -> serverhealth.ServerDurability:
        loop = asyncio.get_running_loop()
        async with self._reading:
            if self._known is None or loop.time() >= self._until:
                self._known = await self._probe.read()
                self._until = loop.time() + _FRESH_SECONDS
            return self._known


def _unavailable(wanted: str, why: str) -> OperationProblem:
    message = f"{wanted} cannot be given: {why}; leave the header out"
    return OperationProblem("DurabilityUnavailable", message, field="Duepoint-Durability")
