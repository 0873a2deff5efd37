"""Operations on one member: read, write, change, remove, trigger, next times; and new one-offs.

Reads and writes that arrive together share a round trip (``Grouping``). A write whose condition
names several tags, or any, is read first and then written where that very tag still stands.
"""

from __future__ import annotations

import asyncio
import collections
import uuid
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from duepoint import clock as clocks
from duepoint import errors, faults
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue.members import members, values
from duepoint.delayqueue.wire import nodes
from duepoint.faults import FaultPoint
from duepoint.httpapi import calls, ownsets, views
from duepoint.httpapi.problems import OperationProblem
from duepoint.net.requests import HttpResponse
from duepoint.schedules import definition as definitions
from duepoint.schedules import slots
from duepoint.schedules.sets import members as memberjson
from duepoint.schedules.sets.setrecord import SetState

USUAL_TIMES = 10
MOST_TIMES = 100
_RACES = 8
_Key = tuple[ownsets.OwnSet, nodes.Safety | None]
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Singles:
    """Carries out operations on one member."""

    def __init__(
        self,
        population: members.Members,
        sets: ownsets.OwnSets,
        clock: clocks.Clock,
    ) -> None:
        self._members = population
        self._sets = sets
        self._clock = clock
        self._gets: Grouping[ownsets.OwnSet, str, values.StoredMember | None] = Grouping(
            self._get_together
        )
        self._puts: Grouping[_Key, values.MemberWrite, values.MemberWritten] = Grouping(
            self._put_together
        )
        self._removals: Grouping[_Key, values.MemberRemoval, values.MemberWritten] = Grouping(
            self._remove_together
        )

    # -- read ----------------------------------------------------------------------------------

    async def get(self, call: calls.OperationCall) -> HttpResponse:
        found = await self._found(call)
        etag = ("ETag", f'"{found.tag}"')
        wanted = call.tags("If-None-Match")
        if "*" in wanted or found.tag in wanted:
            return HttpResponse(304, (etag,))
        return views.json(200, views.member(found, call.owned.record.settings), (etag,))

    async def next_times(self, call: calls.OperationCall) -> HttpResponse:
        count = call.whole("count", USUAL_TIMES, MOST_TIMES)
        found = await self._found(call)
        record = call.owned.record
        if found.at_us is not None or found.rule.timing.suspend:
            times = [] if found.due_us is None else [found.due_us]
        else:
            timeline = slots.for_rule(
                found.rule,
                identity=f"{record.namespace}/{record.name}/{found.id}",
                created_us=found.created_us,
            )
            times = timeline.upcoming(self._clock.now_us(), count)
        return views.json(200, {"items": [views.time(each) for each in times]})

    async def _found(self, call: calls.OperationCall) -> values.StoredMember:
        found = await self._stored(call)
        if found is None:
            raise no_member(call.id)
        return found

    async def _stored(self, call: calls.OperationCall) -> values.StoredMember | None:
        return await self._gets.ask(call.owned, call.id) if memberjson.is_id(call.id) else None

    # -- write ---------------------------------------------------------------------------------

    async def put(self, call: calls.OperationCall) -> HttpResponse:
        calls.check_id(call.id)
        call.owned.check_open()
        row = self._row(call, call.body, call.id)
        if_match = call.tags("If-Match")
        if_none = call.tags("If-None-Match")
        if if_match and if_none:
            message = "cannot stand beside If-Match"
            raise OperationProblem("InvalidParameter", message, field="If-None-Match")
        if if_none and if_none != ("*",):
            raise OperationProblem(
                "InvalidParameter", 'write "*" without quotes', field="If-None-Match"
            )
        condition: values.IfMatch | values.IfAbsent | None = None
        if if_none:
            condition = values.IfAbsent()
        elif if_match:
            condition = await self._condition(call, if_match)
        answer = await self._put(call, row, condition)
        status = 201 if answer.outcome is values.Outcome.CREATED else 200
        return self._written(call, status, row, answer)

    def choose_id(self) -> dict[str, Any]:
        """What a repeat of ``create`` has to keep."""
        now_us = self._clock.now_us()
        return {"id": memberjson.new(now_us), "now_us": now_us}

    async def create(self, call: calls.OperationCall) -> HttpResponse:
        """A one-off under an id of ours."""
        call.owned.check_open()
        chosen = call.chosen
        row = self._row(call, call.body, chosen["id"], now_us=chosen["now_us"])
        if row.at_us is None:
            message = "a member with a schedule needs an id of yours: PUT it; write at or delay"
            raise OperationProblem("InvalidField", message, field="schedule")
        answer = await self._put(call, row, None)
        place = f"/v1/namespaces/{call.namespace}/schedulesets/{call.set_name}/schedules/{row.id}"
        return self._written(call, 201, row, answer, (("Location", place),))

    async def patch(self, call: calls.OperationCall) -> HttpResponse:
        call.owned.check_open()
        calls.decoded(call.body, _fields_decoder, 'an object such as {"suspend": true}')
        wanted = call.tags("If-Match")
        for _ in range(_RACES):
            found = await self._found(call)
            if wanted and "*" not in wanted and found.tag not in wanted:
                raise _other_tag()
            settings = call.owned.record.settings
            merged = merge(views.own(found, settings), call.body.strip())
            row = self._row(call, merged, call.id)
            write = write_of(row, values.IfMatch(found.tag))
            answer = await self._puts.ask((call.owned, call.safety()), write)
            if answer.outcome is values.Outcome.PRECONDITION:
                continue  # another change came between
            calls.check_outcome(answer.outcome)
            return self._written(call, 200, row, answer)
        raise errors.TryLater("the member is changed by others all the time")

    async def delete(self, call: calls.OperationCall) -> HttpResponse:
        call.owned.check_open()
        wanted = call.tags("If-Match")
        condition = await self._condition(call, wanted) if wanted else None
        if not memberjson.is_id(call.id):
            raise no_member(call.id)
        removal = values.MemberRemoval(id=call.id, condition=condition)
        answer = await self._removals.ask((call.owned, call.safety()), removal)
        calls.check_outcome(answer.outcome)
        if answer.outcome is values.Outcome.ABSENT:
            raise no_member(call.id)
        return HttpResponse(204)

    def choose_run(self) -> dict[str, Any]:
        """What a repeat of ``trigger`` has to keep."""
        return {"run": str(uuid.uuid4())}

    async def trigger(self, call: calls.OperationCall) -> HttpResponse:
        record = call.owned.record
        call.owned.check_able()
        if record.state is SetState.SUSPENDED:
            message = "the set is suspended; resume it first"
            raise OperationProblem("NotActive", message)
        payload = self._payload(call)
        found = await self._found(call)
        if found.state is definitions.State.SUSPENDED:
            raise OperationProblem("NotActive", "the member is suspended; resume it first")
        run_uid = call.chosen["run"]
        try:
            slot_us = await self._members.triggers.trigger(
                record, call.id, run_uid=run_uid, payload=payload
            )
        except queue_errors.TooManyWaiting:
            message = "too many runs of this member, set or namespace wait for their receiver"
            raise OperationProblem("TooManyRequests", message, retry_after_seconds=10) from None
        if slot_us is None:
            raise no_member(call.id)
        return views.json(202, {"run": run_uid, "slotTime": views.time(slot_us)})

    # -- steps ---------------------------------------------------------------------------------

    def _payload(self, call: calls.OperationCall) -> bytes:
        """Of a trigger; empty = the member's."""
        if not call.body:
            return b""
        fields = calls.decoded(call.body, _fields_decoder, 'an object such as {"payload": 1}')
        for name in fields:
            if name != "payload":
                message = f"{errors.quoted(name)} is no field of a trigger"
                raise OperationProblem("InvalidField", message, field=name[:60])
        payload = bytes(fields.get("payload", b""))
        most = call.owned.record.settings.limits.payload_bytes
        if len(payload) > most:
            message = f"has {len(payload)} bytes; at most {most} are handed on"
            raise OperationProblem("PayloadTooLarge", message, field="payload")
        return b"" if payload == b"null" else payload

    def _row(
        self, call: calls.OperationCall, text: bytes, id_: str, now_us: int | None = None
    ) -> memberjson.ReadMember:
        now_us = self._clock.now_us() if now_us is None else now_us
        row = call.owned.reader.body(text, id_=id_, now_us=now_us)
        if isinstance(row, memberjson.RowError):
            raise calls.refused_row(row)
        return row

    async def _condition(
        self, call: calls.OperationCall, wanted: tuple[str, ...]
    ) -> values.IfMatch:
        """The one tag that has to stand there; of several, or of any, the one that does."""
        if len(wanted) == 1 and wanted != ("*",):
            return values.IfMatch(wanted[0] if memberjson.is_tag(wanted[0]) else "0" * 8)
        found = await self._stored(call)
        if found is None or (wanted != ("*",) and found.tag not in wanted):
            raise _other_tag()
        return values.IfMatch(found.tag)

    async def _put(
        self,
        call: calls.OperationCall,
        row: memberjson.ReadMember,
        condition: values.IfMatch | values.IfAbsent | None,
    ) -> values.MemberWritten:
        owned = call.owned
        if await self._sets.room(owned) < 1 and await self._gets.ask(owned, row.id) is None:
            raise set_full(owned)
        answer = await self._puts.ask((owned, call.safety()), write_of(row, condition))
        calls.check_outcome(answer.outcome)
        if answer.outcome is values.Outcome.CREATED:
            owned.counted += 1
        return answer

    @staticmethod
    def _written(
        call: calls.OperationCall,
        status: int,
        row: memberjson.ReadMember,
        answer: values.MemberWritten,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> HttpResponse:
        shown = views.written(row, answer, call.owned.record.settings)
        return views.json(status, shown, (("ETag", f'"{answer.tag}"'), *headers))

    # -- together ------------------------------------------------------------------------------

    async def _get_together(
        self, owned: ownsets.OwnSet, ids: list[str]
    ) -> list[values.StoredMember | None]:
        return await self._members.lookups.get(owned.record, ids)

    async def _put_together(
        self,
        key: _Key,
        writes: list[values.MemberWrite],
    ) -> list[values.MemberWritten]:
        await faults.reach(FaultPoint.BEFORE_MEMBERS_STORED)
        written = await self._members.put(key[0].record, writes, safety=key[1])
        await faults.reach(FaultPoint.AFTER_MEMBERS_STORED)
        return written

    async def _remove_together(
        self,
        key: _Key,
        removals: list[values.MemberRemoval],
    ) -> list[values.MemberWritten]:
        return await self._members.remove(key[0].record, removals, safety=key[1])


def condition_of(row: memberjson.ReadMember) -> values.IfMatch | values.IfAbsent | None:
    """What a row of a stream says about the member that it is to replace."""
    if row.if_match:
        return values.IfMatch(row.if_match)
    return values.IfAbsent() if row.if_absent else None


def write_of(
    row: memberjson.ReadMember, condition: values.IfMatch | values.IfAbsent | None
) -> values.MemberWrite:
    """What the queue is to store."""
    return values.MemberWrite(
        id=row.id, rule=row.rule, at_us=row.at_us, payload=row.payload, condition=condition
    )


def merge(target: bytes, patch: bytes) -> bytes:
    """RFC 7396 on texts: what no patch names, and each value of one, stays byte by byte.

    A double would change the digits of 0.10000000000000000555 in a payload that is not named.
    Neither text has white space around it; an empty ``target`` is none.
    """
    if not patch.startswith(b"{"):
        return patch
    merged = _fields_decoder.decode(target) if target.startswith(b"{") else {}
    for name, value in _fields_decoder.decode(patch).items():
        text = bytes(value)
        if text == b"null":
            merged.pop(name, None)
        else:
            merged[name] = msgspec.Raw(merge(bytes(merged.get(name, b"")), text))
    return msgspec.json.encode(merged)


def no_member(id_: str) -> OperationProblem:
    return OperationProblem("NoSuchMember", f"the set has no member {errors.quoted(id_)}")


def set_full(owned: ownsets.OwnSet) -> OperationProblem:
    most = owned.record.settings.limits.members
    return OperationProblem("SetFull", f"the set has {most} members, which is its limits.members")


def _other_tag() -> OperationProblem:
    return OperationProblem("PreconditionFailed", "the member has another tag, or there is none")


KeyT = TypeVar("KeyT", bound=Hashable)
ItemT = TypeVar("ItemT")
AnswerT = TypeVar("AnswerT")

#: Items of one batch; more wait for the next one.
MOST_TOGETHER = 400


class Grouping(Generic[KeyT, ItemT, AnswerT]):
    """Sends requests that arrive together to the queue together, by equal keys.

    A script for one member costs the server and us nearly as much as one for fifty. So what is
    asked while a batch is under way is the next batch; when nothing is under way a request goes at
    once, with what else arrived in this turn of the loop. An idle API adds no delay, a busy one
    gets cheaper. Two batches at a time made each half as large, and p99 of creates a third worse.
    """

    def __init__(self, send: Callable[[KeyT, list[ItemT]], Awaitable[Sequence[AnswerT]]]) -> None:
        """``send`` answers in the order of the items; what it raises, every one of them gets."""
        self._send = send
        self._waiting: dict[KeyT, collections.deque[tuple[ItemT, asyncio.Future[AnswerT]]]] = {}
        self._under_way: set[KeyT] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, key: KeyT, item: ItemT) -> AnswerT:
        """The answer to one item."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[AnswerT] = loop.create_future()
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = collections.deque()
        waiting.append((item, answer))
        if len(waiting) == 1 and key not in self._under_way:
            loop.call_soon(self._begin, key)
        return await answer

    def _begin(self, key: KeyT) -> None:
        waiting = self._waiting.get(key)
        if not waiting or key in self._under_way:
            return
        batch = [waiting.popleft() for _ in range(min(len(waiting), MOST_TOGETHER))]
        if not waiting:
            del self._waiting[key]
        self._under_way.add(key)
        task = asyncio.get_running_loop().create_task(self._carry_out(key, batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry_out(
        self, key: KeyT, batch: list[tuple[ItemT, asyncio.Future[AnswerT]]]
    ) -> None:
        try:
            answers = await self._send(key, [item for item, _ in batch])
        except Exception as error:  # noqa: BLE001 - the callers get it
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
        else:
            for (_, future), answer in zip(batch, answers, strict=True):
                if not future.done():
                    future.set_result(answer)
        finally:
            self._under_way.discard(key)
            self._begin(key)
