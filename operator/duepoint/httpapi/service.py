"""The server of the HTTP API: its certificate and the health check of the queue."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from pathlib import Path

from duepoint import errors, services, settings, telemetry, tlsrules
from duepoint.delayqueue import delayqueue
from duepoint.httpapi import application
from duepoint.net import httpserver

#: The parts of its health: whether it takes requests, and whether the queue can be used.
_SERVING, _QUEUE = "serving", "queue"
_RETRY_SECONDS = 1.0
#: Time between health checks while the queue is available.
_CHECK_SECONDS = 5.0


async def serve(
    chosen: settings.ApiSettings,
    handler: application.Application,
    health: services.Health,
    stop: asyncio.Event,
) -> None:
    """Answer requests until ``stop`` is set, and then those that are in flight.

    Raises InvalidSetting if the certificate or the address cannot be used.
    """
    tls = None if chosen.tls_cert_file is None else ServerCertificate(chosen.tls_cert_file)
    server = httpserver.HttpServer(handler, handler.refusal, httpserver.ServerLimits())
    health.expect(_SERVING)
    try:
        context = None if tls is None else tls.context
        await server.start(chosen.listen_address, chosen.api_port, context)
    except OSError as error:
        place = f"{chosen.listen_address}:{chosen.api_port}"
        raise errors.InvalidSetting(
            settings.variable("api_port"),
            f"{place} cannot be used ({error.strerror}); choose another port",
        ) from error
    health.well(_SERVING)
    telemetry.logger.info("serving", port=server.port, tls=tls is not None)
    try:
        async with contextlib.nullcontext() if tls is None else services.beside(tls.watch()):
            await stop.wait()
        # A Service still routes to a Pod for some moments after its SIGTERM.
        health.unwell(_SERVING, "draining")
        server.is_draining = True
        await asyncio.sleep(chosen.grace_seconds / 4)
    finally:
        await server.close(chosen.grace_seconds * 3 / 4)


async def check(queue: delayqueue.DelayQueue, health: services.Health) -> None:
    """Read the queue's layout, and report whether the queue can be used, until cancelled."""
    health.expect(_QUEUE)
    while True:
        try:
            await queue.layouts.read()
        except (errors.TryLater, errors.WorldChanged) as error:
            telemetry.redis_up.set(0)
            if health.unwell(_QUEUE, str(error)[:200]):
                telemetry.logger.warning("queue unavailable", error=str(error)[:300])
            await asyncio.sleep(_RETRY_SECONDS)
        else:
            telemetry.redis_up.set(1)
            if health.well(_QUEUE):
                telemetry.logger.info("queue is there")
            await asyncio.sleep(_CHECK_SECONDS)


CHECK_SECONDS = 10.0


class ServerCertificate:
    """A server's TLS context; the key is in the certificate's file or in tls.key beside it.

    The kubelet replaces the files of a mounted Secret while we serve. The context object stays, so
    new connections get the new certificate and open ones go on. If certificate and key do not
    match, the problem is logged and the former pair stays: a half-replaced certificate must not
    end the service.
    """

    def __init__(self, cert_file: Path) -> None:
        """Raises InvalidSetting if the files hold no matching pair."""
        self._cert_file = cert_file
        self._key_file = tlsrules.key_beside(cert_file) or cert_file
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.options |= ssl.OP_NO_RENEGOTIATION
        try:
            self.context.load_cert_chain(cert_file, self._key_file)
        except (OSError, ssl.SSLError) as error:
            name = settings.variable("tls_cert_file")
            message = f"{cert_file} and {self._key_file} are not a key pair ({error})"
            raise errors.InvalidSetting(name, message) from error

    async def watch(self) -> None:
        """Reload the files until cancelled."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            self.reload()

    def reload(self) -> None:
        """Load the pair again, unless it does not match."""
        try:
            # Try it in a separate context first: a mismatched pair must not be loaded by half.
            for context in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), self.context):
                context.load_cert_chain(self._cert_file, self._key_file)
        except (OSError, ssl.SSLError) as error:
            telemetry.logger.warning("new certificate not taken", error=str(error)[:200])
