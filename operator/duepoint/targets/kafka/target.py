"""The kafka target: one slot, one record in a topic.

The record's key is the Schedule's uid, so all records of a Schedule are in one partition, in order.
Its value is the payload; its headers are the other fields of a stream's entry. The producer is
idempotent: a record that its own retries send twice is stored once. A later attempt of the same
slot is another record with the same ``id``. aiokafka is an optional extra (``duepoint[kafka]``):
without it only this target fails, with a message that says so.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from duepoint import clock as clocks
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason
from duepoint.targets import outcome, target
from duepoint.targets.secretaccess import references, servers
from duepoint.targets.stream import target as streamtarget

PATH = "spec.kafka.connectionSecretRef"
KEYS = ("bootstrap.servers", "security.protocol", "sasl.mechanism", "username", "password")

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

_SERVER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([1-9][0-9]{0,4})")
_MOST_SERVERS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Brokers:
    """The brokers to contact first, and how to connect to them."""

    connection: servers.SecretConnection
    servers: tuple[str, ...]
    protocol: str
    mechanism: str

    @property
    def tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def sasl(self) -> bool:
        return self.protocol.startswith("SASL")


def brokers(found: servers.SecretConnection) -> Brokers:
    """Return the brokers that a Secret names; raises Unread with what to write there instead."""
    values = found.values
    listed = tuple(filter(None, (one.strip() for one in values["bootstrap.servers"].split(","))))
    parsed = [parts for one in listed if (parts := _SERVER.fullmatch(one)) is not None]
    hosts = [(parts[1].strip("[]"), int(parts[2])) for parts in parsed if int(parts[2]) <= 65_535]
    if not 1 <= len(listed) == len(hosts) <= _MOST_SERVERS:
        what = "is not a list of brokers; write host:port,host:port"
        raise found.to.unusable("bootstrap.servers", what)
    found.require_consent(hosts)
    # A password is never sent in the clear unless the Secret says so.
    usual = "SASL_SSL" if values.get("password") else "SSL"
    protocol = values.get("security.protocol", "").upper() or usual
    mechanism = values.get("sasl.mechanism", "").upper() or "PLAIN"
    for key, value, known in (
        ("security.protocol", protocol, PROTOCOLS),
        ("sasl.mechanism", mechanism, MECHANISMS),
    ):
        if value not in known:
            raise found.to.unusable(key, f"is not supported; write {' or '.join(known)}")
    if protocol.startswith("SASL"):
        for key in ("username", "password"):
            if not values.get(key):
                raise found.to.unusable(key, f"is missing; {protocol} logs in with it")
    return Brokers(connection=found, servers=listed, protocol=protocol, mechanism=mechanism)


# -- records ---------------------------------------------------------------------------------------

if TYPE_CHECKING:
    from duepoint.targets.kafka import producers as kafkaproducers

MISSING_EXTRA = (
    "spec.kafka: the workers of this installation cannot speak Kafka; have their operator install "
    "duepoint[kafka], or use an image that has it"
)


def is_installed() -> bool:
    """Whether the extra is installed."""
    return importlib.util.find_spec("aiokafka") is not None


class KafkaTarget:
    """Sends one record for each slot."""

    def __init__(
        self, reader: servers.ConnectionReader, dialler: servers.ServerDialler, clock: clocks.Clock
    ) -> None:
        self._reader = reader
        self._dialler = dialler
        self._clock = clock
        self._opened: kafkaproducers.Producers | None = None

    async def check(self, firing: target.Firing) -> target.Trouble | None:
        """Return the trouble with the extra or the Secret's connection; sends nothing."""
        try:
            await self._brokers(firing)
        except references.Unread as unread:
            self._reader.forget(firing.namespace)  # so that the next check sees a correction
            return unread.trouble
        return None

    async def fire(self, firing: target.Firing) -> outcome.Outcome:
        """Send the slot's record; delivered once all in-sync replicas have it."""
        seconds = target.seconds_left(firing, self._clock)
        if seconds <= 0:
            return target.not_started()
        begun = self._clock.monotonic()
        try:
            async with asyncio.timeout(seconds):
                brokers = await self._brokers(firing)
        except references.Unread as unread:
            trouble = unread.trouble
            return outcome.Retry(reason=trouble.reason, message=trouble.message, started=False)
        except TimeoutError:
            message = f"nothing was sent: the API server did not answer in {seconds:g} s"
            return outcome.Retry(reason=Reason.API_UNAVAILABLE, message=message, started=False)
        fields = streamtarget.entry(firing, self._clock.now_us())
        value = fields.pop("payload")
        answer = await self._producers().send(
            brokers,
            topic=cast("actions.KafkaAction", firing.action.target).topic,
            key=firing.schedule_id.encode(),
            value=_bytes(value),
            headers=[(name, _bytes(text)) for name, text in fields.items()],
            seconds=seconds - (self._clock.monotonic() - begun),
        )
        if isinstance(answer, str):
            return outcome.Delivered(accepted_us=self._clock.now_us(), message=answer)
        if answer.reason is Reason.REJECTED:
            self._reader.forget(firing.namespace)
        return answer

    async def close(self) -> None:
        """Close the connections; no send may be in flight."""
        if self._opened is not None:
            await self._opened.close()

    async def _brokers(self, firing: target.Firing) -> Brokers:
        if not is_installed():
            raise references.Unread(references.unread(Reason.TARGET_UNAVAILABLE, MISSING_EXTRA))
        found = await self._reader.read(
            PATH,
            firing.namespace,
            cast("actions.KafkaAction", firing.action.target).connection,
            KEYS,
            "bootstrap.servers",
        )
        named = brokers(found)
        if not named.tls:
            return named
        return dataclasses.replace(named, connection=await self._reader.secured(found))

    def _producers(self) -> kafkaproducers.Producers:
        if self._opened is None:
            # Only here, because the extra may not be installed.
            from duepoint.targets.kafka import producers  # noqa: PLC0415

            self._opened = producers.Producers(self._dialler)
        return self._opened


def _bytes(value: bytes | str) -> bytes:
    return value if isinstance(value, bytes) else value.encode()
