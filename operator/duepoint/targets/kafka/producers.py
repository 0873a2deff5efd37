"""Producers of aiokafka: one for each connection, each socket opened by the guarded dialler.

All Schedules with the same content of their Secret share a producer. If a producer has failed in a
way that it does not recover from, it is closed and a new one is made. Producers run on a
``GuardedThread``, because the library connects to any host that the brokers advertise: the dialler
judges each address before anything is sent to it. The only module that imports aiokafka.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import OrderedDict
from collections.abc import Sequence

import aiokafka
from aiokafka import errors as kafka_errors

from duepoint import shares
from duepoint.net import dialling
from duepoint.schedules.conditions import Reason
from duepoint.targets import outcome
from duepoint.targets.kafka import target as kafkatarget
from duepoint.targets.secretaccess import servers

_MOST_PRODUCERS = 64
_REQUEST_TIMEOUT_MS = 8_000
#: Errors that a retry cannot help: the record or the topic is wrong.
_FINAL = (
    kafka_errors.MessageSizeTooLargeError,
    kafka_errors.RecordListTooLargeError,
    kafka_errors.InvalidTopicError,
)
#: Errors that need another password or right; the Secret is read again.
_LOGIN = (
    kafka_errors.AuthenticationFailedError,
    kafka_errors.TopicAuthorizationFailedError,
    kafka_errors.ClusterAuthorizationFailedError,
    kafka_errors.SaslAuthenticationFailed,
    kafka_errors.UnsupportedSaslMechanismError,
    kafka_errors.IllegalSaslStateError,
)

# We report each failed attempt once; the library would log hosts and tracebacks.
logging.getLogger("aiokafka").setLevel(logging.CRITICAL)


class _CachedProducer:
    """A producer on the guarded loop, started with its first record; our loop dials its brokers.

    Attributes:
        denied: connections that the egress rules or the owner of the Secret refused.
        sends: number of sends in flight.
    """

    def __init__(self, brokers: kafkatarget.Brokers, dialler: servers.ServerDialler) -> None:
        self.denied: list[OSError] = []
        self.sends = 0
        self.connection = brokers.connection
        self._brokers = brokers
        self._dialler = dialler
        self._loop = asyncio.get_running_loop()
        self._producer: aiokafka.AIOKafkaProducer | None = None
        self._starting = asyncio.Lock()

    async def send(
        self, topic: str, key: bytes, value: bytes, headers: Sequence[tuple[str, bytes]]
    ) -> str:
        """Send a record and return where it is stored."""
        dialling.dial_by(self._dial)
        async with self._starting:
            if self._producer is None:
                made = _made(self._brokers)
                try:
                    await made.start()
                except BaseException:
                    await asyncio.shield(_stopped(made))
                    raise
                self._producer = made
            producer = self._producer
        sent = await producer.send_and_wait(topic, value=value, key=key, headers=headers)
        return f"partition {sent.partition} offset {sent.offset} of {topic}"

    async def close(self) -> None:
        made, self._producer = self._producer, None
        if made is not None:
            await _stopped(made)

    async def _dial(self, host: str, port: int, tls: bool) -> socket.socket:  # noqa: FBT001 - dialling.Dial
        dialled = asyncio.run_coroutine_threadsafe(self._judged(host, port, tls=tls), self._loop)
        return await asyncio.wrap_future(dialled)

    async def _judged(self, host: str, port: int, *, tls: bool) -> socket.socket:
        """Dial a broker; the first brokers name others, which would get the same password."""
        try:
            self.connection.require_server(host, port)
            namespace = self.connection.to.namespace
            try:
                return await self._dialler.connect(namespace, host, port, tls=tls)
            except OSError as error:
                if {f"{host}:{port}", f"[{host}]:{port}"}.isdisjoint(self._brokers.servers):
                    raise servers.unnamed(error) from None
                raise
        except (dialling.Blocked, servers.ServerRefused) as refused:
            self.denied.append(refused)
            raise


class Producers:
    """Sends records through cached producers."""

    def __init__(self, dialler: servers.ServerDialler) -> None:
        self._dialler = dialler
        self._cached: OrderedDict[bytes, _CachedProducer] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()
        self._thread = dialling.GuardedThread()
        self._is_closed = False

    async def send(
        self,
        brokers: kafkatarget.Brokers,
        *,
        topic: str,
        key: bytes,
        value: bytes,
        headers: Sequence[tuple[str, bytes]],
        seconds: float,
    ) -> str | outcome.Retry | outcome.Rejected:
        """Send a record within ``seconds``; return where it is stored, or the outcome."""
        cached = self._of(brokers)
        refusals = cached.denied
        refusals.clear()
        cached.sends += 1
        self._keep_bound()
        try:
            async with asyncio.timeout(seconds):
                return await self._thread.call(cached.send(topic, key, value, headers))
        except asyncio.CancelledError:
            self._let_go(cached)  # it may hang for ever, and must not send the record later
            raise
        except TimeoutError:
            self._let_go(cached)
            # If a broker may not be dialled, the library goes on trying the others.
            message = f"no answer from the brokers in {seconds:g} s"
            late = outcome.Retry(reason=Reason.NETWORK, message=message)
            return _refusal(refusals) or late
        except (kafka_errors.KafkaError, OSError, ValueError, AssertionError) as error:
            if not isinstance(error, _FINAL):
                self._let_go(cached)
            return _answer(error, refusals)
        finally:
            cached.sends -= 1
            is_let_go = self._cached.get(cached.connection.digest) is not cached
            if is_let_go and not cached.sends and not self._is_closed:
                self._close(cached)  # evicted while it started, when it could not be closed yet
            self._keep_bound()

    async def close(self) -> None:
        """Close every producer."""
        self._is_closed = True
        for cached in list(self._cached.values()):
            self._let_go(cached)
        await asyncio.gather(*self._closing, return_exceptions=True)
        await self._thread.close()

    def _of(self, brokers: kafkatarget.Brokers) -> _CachedProducer:
        digest = brokers.connection.digest
        cached = self._cached.get(digest)
        if cached is not None and cached.connection.consent != brokers.connection.consent:
            self._let_go(cached)  # it would still use servers that the owner no longer allows
            cached = None
        if cached is None:
            cached = self._cached[digest] = _CachedProducer(brokers, self._dialler)
        self._cached.move_to_end(digest)
        return cached

    def _keep_bound(self) -> None:
        """Evict idle producers above the bound; the worker's places bound the busy ones."""
        while len(self._cached) > _MOST_PRODUCERS:
            gone = shares.first_to_go(
                self._cached,
                owner=lambda cached: cached.connection.to.namespace,
                is_idle=lambda cached: not cached.sends,
            )
            if gone is None:
                return
            self._let_go(self._cached[gone])

    def _let_go(self, cached: _CachedProducer) -> None:
        if self._cached.get(cached.connection.digest) is cached:
            del self._cached[cached.connection.digest]
            self._close(cached)

    def _close(self, cached: _CachedProducer) -> None:
        task = asyncio.create_task(self._thread.call(cached.close()))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def _answer(error: Exception, denied: Sequence[OSError]) -> outcome.Retry | outcome.Rejected:
    if (refused := _refusal(denied)) is not None:
        return refused
    # Only the error's class: its text may contain what a broker sent.
    message = f"the brokers did not accept the record: {type(error).__name__}"
    if isinstance(error, _FINAL):
        return outcome.Rejected(reason=Reason.REJECTED, message=message)
    if isinstance(error, _LOGIN):
        return outcome.Retry(reason=Reason.REJECTED, message=message)
    return outcome.Retry(reason=Reason.NETWORK, message=message)


def _refusal(denied: Sequence[OSError]) -> outcome.Retry | outcome.Rejected | None:
    """Return the outcome if a broker may not be dialled, or not yet; else None."""
    last = denied[-1] if denied else None
    if isinstance(last, servers.ServerRefused) and last.trouble.unsent:
        return outcome.Retry(reason=last.trouble.reason, message=last.trouble.message)
    if not isinstance(last, dialling.Blocked):
        return None
    message = f"a broker is not allowed: {last}"
    return outcome.Rejected(reason=Reason.BLOCKED_ADDRESS, message=message)


async def _stopped(made: aiokafka.AIOKafkaProducer) -> None:
    """Close a producer within seconds, even if a broker hangs."""
    with contextlib.suppress(Exception):
        async with asyncio.timeout(2.0):
            await made.stop()
    with contextlib.suppress(Exception):
        async with asyncio.timeout(2.0):
            await made.client.close()


def _made(brokers: kafkatarget.Brokers) -> aiokafka.AIOKafkaProducer:
    values = brokers.connection.values
    return aiokafka.AIOKafkaProducer(
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
