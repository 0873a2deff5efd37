"""The kafka target: one slot, one record in a topic.

The record's key is the Schedule's uid, so all of one Schedule are in one partition, in their order;
its value is the payload, its headers the other fields of a stream's entry. The producer is
idempotent: what its own retries send twice is stored once. A later attempt of the same slot is a
record of its own with the same ``id``. aiokafka is an optional extra (``duepoint[kafka]``): without
it the target says so, and nothing else is different.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
from typing import TYPE_CHECKING, cast

from duepoint import clock as clocks
from duepoint.runs import outcome
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason
from duepoint.targets import target
from duepoint.targets.kafka import brokersettings
from duepoint.targets.secretaccess import references, servers
from duepoint.targets.stream import target as streamtarget

if TYPE_CHECKING:
    from duepoint.targets.kafka import producers as kafkaproducers

MISSING_EXTRA = (
    "spec.kafka: the workers of this installation cannot speak Kafka; have their operator install "
    "duepoint[kafka], or use an image that has it"
)


def is_installed() -> bool:
    """Whether the extra is there."""
    return importlib.util.find_spec("aiokafka") is not None


class KafkaTarget:
    """Produces records."""

    def __init__(
        self, reader: servers.ConnectionReader, diallers: servers.Diallers, clock: clocks.Clock
    ) -> None:
        self._reader = reader
        self._diallers = diallers
        self._clock = clock
        self._opened: kafkaproducers.Producers | None = None

    async def check(self, firing: target.Firing) -> target.Trouble | None:
        """Whether the extra is installed and the Secret holds a connection; sends nothing."""
        try:
            await self._brokers(firing)
        except references.Unread as unread:
            self._reader.forget(firing.namespace)  # the next look is to see whether it was mended
            return unread.trouble
        return None

    async def fire(self, firing: target.Firing) -> outcome.Outcome:
        """Delivered once all in-sync replicas have the record."""
        seconds = target.seconds_left(firing, self._clock)
        if seconds <= 0:
            return target.not_started()
        denied: list[outcome.Outcome] = []
        try:
            async with asyncio.timeout(seconds):
                return await self._produce(firing, denied)
        except TimeoutError:
            if denied:
                return denied[-1]
            return outcome.Retry(
                reason=Reason.TIMEOUT, message=f"no answer from the brokers in {seconds:g} s"
            )

    async def close(self) -> None:
        """Close the connections; what was sent has been answered."""
        if self._opened is not None:
            await self._opened.close()

    async def _produce(
        self, firing: target.Firing, denied: list[outcome.Outcome]
    ) -> outcome.Outcome:
        try:
            brokers = await self._brokers(firing)
        except references.Unread as unread:
            trouble = unread.trouble
            return outcome.Retry(reason=trouble.reason, message=trouble.message, started=False)
        fields = streamtarget.entry(firing, self._clock.now_us())
        value = fields.pop("payload")
        headers = [(name, _bytes(text)) for name, text in fields.items()]
        answer = await self._producers().send(
            brokers,
            self._diallers(firing.namespace),
            topic=cast("actions.KafkaAction", firing.action.target).topic,
            key=firing.schedule_id.encode(),
            value=_bytes(value),
            headers=headers,
            denied=denied,
        )
        if isinstance(answer, str):
            return outcome.Delivered(accepted_us=self._clock.now_us(), message=answer)
        if answer.reason is Reason.REJECTED:
            self._reader.forget(firing.namespace)
        return answer

    async def _brokers(self, firing: target.Firing) -> brokersettings.Brokers:
        if not is_installed():
            raise references.Unread(references.unread(Reason.TARGET_UNAVAILABLE, MISSING_EXTRA))
        found = await self._reader.read(
            brokersettings.PATH,
            firing.namespace,
            cast("actions.KafkaAction", firing.action.target).connection,
            brokersettings.KEYS,
            "bootstrap.servers",
        )
        brokers = brokersettings.brokers(found)
        if not brokers.tls:
            return brokers
        return dataclasses.replace(brokers, connection=await self._reader.secured(found))

    def _producers(self) -> kafkaproducers.Producers:
        if self._opened is None:
            # Only here, because the extra may not be installed.
            from duepoint.targets.kafka import producers  # noqa: PLC0415

            self._opened = producers.Producers()
        return self._opened


def _bytes(value: bytes | str) -> bytes:
    return value if isinstance(value, bytes) else value.encode()
