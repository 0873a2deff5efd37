"""Producers of aiokafka: one for each connection, and every socket of theirs past the egress guard.

A producer is made for what stands in a Secret and shared by its Schedules. One that has failed in a
way that it does not recover from is closed and made anew. The library connects to whatever host
the brokers advertise, so its dialling is replaced (``_guarded``): each address is judged before
anything is sent to it. The only module that imports aiokafka.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import types
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import aiokafka
import aiokafka.client
import aiokafka.conn
from aiokafka import errors as kafka_errors

from duepoint.net import dialling
from duepoint.runs import outcome
from duepoint.schedules.conditions import Reason
from duepoint.targets import connectionsecrets, kafkasettings, servers

_MOST_PRODUCERS = 64
_REQUEST_TIMEOUT_MS = 8_000
#: Trying again would not help: the record or the topic is wrong.
_FINAL = (
    kafka_errors.MessageSizeTooLargeError,
    kafka_errors.RecordListTooLargeError,
    kafka_errors.InvalidTopicError,
)
#: Somebody has to change a password or a right; the Secret is read again.
_LOGIN = (
    kafka_errors.AuthenticationFailedError,
    kafka_errors.TopicAuthorizationFailedError,
    kafka_errors.ClusterAuthorizationFailedError,
    kafka_errors.SaslAuthenticationFailed,
    kafka_errors.UnsupportedSaslMechanismError,
    kafka_errors.IllegalSaslStateError,
)

# Each attempt that fails is told once, by us; the library logs hosts and tracebacks.
logging.getLogger("aiokafka").setLevel(logging.CRITICAL)


class _Held:
    """A producer being started, or started."""

    def __init__(self, brokers: kafkasettings.Brokers, dialler: servers.ServerDialler) -> None:
        self.denied: list[OSError] = []
        self._brokers = brokers
        self._dialler = dialler
        self._producer: aiokafka.AIOKafkaProducer | None = None
        self._starting = asyncio.Lock()

    async def started(self) -> aiokafka.AIOKafkaProducer:
        async with self._starting:
            if self._producer is None:
                made = _made(self._brokers, self._dialler, self.denied)
                try:
                    await made.start()
                except BaseException:
                    await asyncio.shield(_stopped(made))
                    raise
                self._producer = made
        return self._producer

    async def close(self) -> None:
        made, self._producer = self._producer, None
        if made is not None:
            await _stopped(made)


class Producers:
    """Sends records."""

    def __init__(self) -> None:
        self._held: OrderedDict[bytes, _Held] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    async def send(
        self,
        brokers: kafkasettings.Brokers,
        dialler: servers.ServerDialler,
        *,
        topic: str,
        key: bytes,
        value: bytes,
        headers: Sequence[tuple[str, bytes]],
        denied: list[outcome.Outcome],
    ) -> str | outcome.Retry | outcome.Rejected:
        """Where the record is, or what came of it instead; ends when the caller's time does.

        Args:
            denied: told what a broker that may not be dialled means, since the others are asked
                until the time is over.
        """
        held = self._of(brokers, dialler)
        held.denied.clear()
        try:
            producer = await held.started()
            told = await producer.send_and_wait(topic, value=value, key=key, headers=headers)
        except asyncio.CancelledError:
            self._drop(brokers)  # it may hang for ever; what it still holds is not sent later
            if (refused := _refusal(brokers, held.denied)) is not None:
                denied.append(refused)
            raise
        except (kafka_errors.KafkaError, OSError, ValueError, AssertionError) as error:
            if not isinstance(error, _FINAL):
                self._drop(brokers)
            return _answer(brokers, error, held.denied)
        return f"partition {told.partition} offset {told.offset} of {topic}"

    async def close(self) -> None:
        """Close every producer."""
        for digest in list(self._held):
            self._let_go(digest)
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _of(self, brokers: kafkasettings.Brokers, dialler: servers.ServerDialler) -> _Held:
        digest = brokers.connection.digest
        held = self._held.get(digest)
        if held is None:
            held = self._held[digest] = _Held(brokers, dialler)
        self._held.move_to_end(digest)
        while len(self._held) > _MOST_PRODUCERS:
            self._let_go(next(iter(self._held)))
        return held

    def _drop(self, brokers: kafkasettings.Brokers) -> None:
        self._let_go(brokers.connection.digest)

    def _let_go(self, digest: bytes) -> None:
        held = self._held.pop(digest, None)
        if held is not None:
            task = asyncio.create_task(held.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


def _answer(
    brokers: kafkasettings.Brokers, error: Exception, denied: Sequence[OSError]
) -> outcome.Retry | outcome.Rejected:
    if (refused := _refusal(brokers, denied)) is not None:
        return refused
    # The error's class alone: its text may hold what a broker sent.
    message = f"the brokers did not take the record: {type(error).__name__}"
    if isinstance(error, _FINAL):
        return outcome.Rejected(reason=Reason.REJECTED, message=message)
    if isinstance(error, _LOGIN):
        return outcome.Retry(reason=Reason.REJECTED, message=message)
    return outcome.Retry(reason=Reason.NETWORK, message=message)


def _refusal(
    brokers: kafkasettings.Brokers, denied: Sequence[OSError]
) -> outcome.Retry | outcome.Rejected | None:
    """What becomes of a record because a broker may not be dialled, or not yet; else None."""
    last = denied[-1] if denied else None
    if isinstance(last, servers.Refused) and last.trouble.unsent:
        return outcome.Retry(reason=last.trouble.reason, message=last.trouble.message)
    if not isinstance(last, dialling.Blocked):
        return None
    message = brokers.connection.told(f"a broker is not allowed: {last}")
    return outcome.Rejected(reason=Reason.BLOCKED_ADDRESS, message=message)


async def _stopped(made: aiokafka.AIOKafkaProducer) -> None:
    """Closed within a moment; a broker that hangs holds up nobody."""
    with contextlib.suppress(Exception):
        async with asyncio.timeout(2.0):
            await made.stop()
    with contextlib.suppress(Exception):
        async with asyncio.timeout(2.0):
            await made.client.close()


def _made(
    brokers: kafkasettings.Brokers, dialler: servers.ServerDialler, denied: list[OSError]
) -> aiokafka.AIOKafkaProducer:
    values = brokers.connection.values
    made = aiokafka.AIOKafkaProducer(
        bootstrap_servers=list(brokers.servers),
        client_id="duepoint",
        enable_idempotence=True,
        acks="all",
        request_timeout_ms=_REQUEST_TIMEOUT_MS,
        max_request_size=1024 * 1024,
        security_protocol=brokers.protocol,
        ssl_context=brokers.connection.tls if brokers.tls else None,
        sasl_mechanism=brokers.mechanism,
        sasl_plain_username=values.get("username") if brokers.sasl else None,
        sasl_plain_password=values.get("password") if brokers.sasl else None,
    )
    _guard(made.client, dialler, denied, brokers.connection)
    return made


# -- dialling ------------------------------------------------------------------------------------


class _Dialling:
    """The event loop as a connection of the library sees it: what it dials is judged first."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        dialler: servers.ServerDialler,
        denied: list[OSError],
        connection: connectionsecrets.Connection,
    ) -> None:
        self._loop = loop
        self._dialler = dialler
        self._denied = denied
        self._connection = connection

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a loop has
        return getattr(self._loop, name)

    async def create_connection(self, factory: Any, host: str, port: int, *, ssl: Any) -> Any:  # noqa: ANN401
        try:
            made = await self._dialled(host, int(port), tls=ssl is not None)
        except (dialling.Blocked, servers.Refused) as refused:
            self._denied.append(refused)
            raise
        try:
            return await self._loop.create_connection(
                factory, sock=made, ssl=ssl, server_hostname=host if ssl else None
            )
        except BaseException:
            made.close()
            raise

    async def _dialled(self, host: str, port: int, *, tls: bool) -> socket.socket:
        """The first brokers name the others, to which the same password goes."""
        servers.require_server(host, port)
        if (withheld := self._connection.withheld([(host, port)])) is not None:
            raise servers.Refused(withheld)
        return await self._dialler.connect(host, port, tls=tls)


def _guard(
    client: Any,  # noqa: ANN401 - of the library
    dialler: servers.ServerDialler,
    denied: list[OSError],
    connection: connectionsecrets.Connection,
) -> None:
    """Both places in which a client opens connections do it through the dialler."""

    async def create_conn(host: str, port: int, **options: Any) -> Any:  # noqa: ANN401
        made = aiokafka.conn.AIOKafkaConnection(host, port, **options)
        made._loop = _Dialling(asyncio.get_running_loop(), dialler, denied, connection)  # noqa: SLF001
        await made.connect()
        return made

    for name in ("bootstrap", "_get_conn"):
        function = getattr(aiokafka.client.AIOKafkaClient, name)
        if "create_conn" not in function.__code__.co_names:
            raise RuntimeError(f"this aiokafka dials elsewhere than known: {name}")
        names = {**function.__globals__, "create_conn": create_conn}
        ours = types.FunctionType(
            function.__code__, names, name, function.__defaults__, function.__closure__
        )
        ours.__kwdefaults__ = function.__kwdefaults__
        setattr(client, name, types.MethodType(ours, client))
