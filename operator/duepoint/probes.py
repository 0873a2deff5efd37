"""/healthz, /readyz and /metrics of a process.

``/healthz`` answers while the event loop turns; ``/readyz`` answers 503 with one line per part
that is not well, in the words of ``services.Health``; ``/metrics`` is Prometheus text. A port that
is taken is a wrong setting, said before anything else has started.

Every Pod of the network may ask. So the page of metrics is made once a second at most, by one
request for all that wait, and metric by metric, so that no firing waits for the whole of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import prometheus_client
from aiohttp import web

from duepoint import __version__, errors, services, settings, telemetry

#: How long a page of metrics is served.
PAGE_SECONDS = 1.0


class _Single(prometheus_client.CollectorRegistry):
    """One metric, as a registry of its own."""

    def __init__(self, metric: prometheus_client.Metric) -> None:
        super().__init__(auto_describe=False)
        self._metric = metric

    def collect(self) -> Iterable[prometheus_client.Metric]:
        return [self._metric]


class Page:
    """The page of metrics, made now and then."""

    def __init__(self, registry: prometheus_client.CollectorRegistry) -> None:
        self._registry = registry
        self._making = asyncio.Lock()
        self._fresh_until = float("-inf")
        self._text = b""

    async def text(self) -> bytes:
        """In Prometheus's format."""
        clock = asyncio.get_running_loop()
        async with self._making:
            if clock.time() >= self._fresh_until:
                self._text = await self._made()
                self._fresh_until = clock.time() + PAGE_SECONDS
        return self._text

    async def _made(self) -> bytes:
        for refresh in tuple(telemetry.before_scrape):
            await refresh()
        parts = []
        for metric in self._registry.collect():
            parts.append(prometheus_client.generate_latest(_Single(metric)))
            await asyncio.sleep(0)  # what is due meanwhile goes first
        return b"".join(parts)


class Probes:
    """The HTTP server of a process; serves from ``start`` to ``close``."""

    def __init__(
        self,
        health: services.Health,
        *,
        host: str,
        port: int,
        registry: prometheus_client.CollectorRegistry = telemetry.registry,
    ) -> None:
        self._health = health
        self._host = host
        self._port = port
        self._runner: web.AppRunner | None = None
        self._page = Page(registry)

    async def start(self) -> None:
        """Serve; raises InvalidSetting where the address cannot be used. Port 0 serves nothing."""
        telemetry.build_info.labels(__version__).set(1)
        if self._port == 0:
            return
        application = web.Application()
        application.router.add_get("/healthz", self._healthz)
        application.router.add_get("/readyz", self._readyz)
        application.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(application, access_log=None)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self._port).start()
        except OSError as error:
            raise errors.InvalidSetting(
                settings.variable("http_port"),
                f"{self._host}:{self._port} cannot be used ({error.strerror}); choose another port",
            ) from error

    async def close(self) -> None:
        """Stop serving."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        troubles = self._health.troubles()
        if not troubles:
            return web.Response(text="ok\n")
        lines = "".join(f"{part}: {trouble}\n" for part, trouble in troubles.items())
        return web.Response(status=503, text=lines)

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(
            body=await self._page.text(),
            headers={"Content-Type": prometheus_client.CONTENT_TYPE_LATEST},
        )
