"""Idempotency keys: carries out a request with an ``Idempotency-Key`` once, and repeats its answer.

The first attempt is recorded with a hash of the request and with its choices (the id of a new
member, the run of a trigger), and later with its answer. A repeat gets that answer. If the first
attempt was lost in between, the repeat is carried out with the same choices: it stores the member
again under the same id, and the event has the same id too. Refusals are not recorded, because the
cause may be corrected. A large answer is recorded without its payload, which is what makes it
large: all records of a namespace share one quota.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from duepoint import faults
from duepoint.delayqueue import apirequests
from duepoint.faults import FaultPoint
from duepoint.httpapi.calls import DECIDING, Call
from duepoint.httpapi.problems import OperationProblem
from duepoint.net.httpserver import HttpResponse

#: After this time an attempt without an answer counts as lost.
_LOST_AFTER_US = 10_000_000
#: Largest answer that is recorded with its payload.
_SMALL_BYTES = 1_024


class _Record(msgspec.Struct, array_like=True):
    """The record of a request; ``status`` 0 = it has no answer yet."""

    asked: bytes
    since_us: int
    begun: dict[str, Any]
    status: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


async def once(call: Call, key: str) -> HttpResponse:
    """Return the answer of the first request with this key; carry it out if there is none."""
    requests, now_us = call.shared.queue.api_requests, call.chosen["now_us"]
    owner = f"{call.owned.owner}/{call.caller.identity.hex()}"
    request = apirequests.RepeatedRequest(call.namespace, owner, key, now_us)
    deciding = (call.request.headers.get(name.lower()) for name in DECIDING)
    asked = call.operation.name, call.id, call.body, *deciding
    digest = hashlib.sha256(msgspec.msgpack.encode(asked)).digest()
    record = _Record(digest, now_us, call.chosen)
    found = await requests.begin(request, msgspec.msgpack.encode(record))
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
        if now_us - earlier.since_us < _LOST_AFTER_US or not await requests.resume(
            request, found, renewed
        ):
            message = "the first request with this key is being carried out"
            raise OperationProblem("IdempotencyInProgress", message, retry_after_seconds=1)
    await faults.reach(FaultPoint.AFTER_KEY_RECORDED)
    call.chosen = record.begun
    try:
        answer = await call.operation.handle(call)
    except OperationProblem as problem:
        if problem.status < 500:
            await requests.finish(request, b"")
        raise
    assert answer is not None  # noqa: S101 - no change is answered by a stream
    kept = msgspec.structs.replace(
        record, status=answer.status, headers=answer.headers, body=_without_payload(answer.body)
    )
    await requests.finish(request, msgspec.msgpack.encode(kept))
    await faults.reach(FaultPoint.AFTER_ANSWER_RECORDED)
    return answer


def _without_payload(body: bytes) -> bytes:
    if len(body) <= _SMALL_BYTES:
        return body
    fields = _fields_decoder.decode(body)
    fields.pop("payload", None)
    return msgspec.json.encode(fields)
