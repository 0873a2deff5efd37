"""The HTTP server of a process for /healthz, /readyz and /metrics.

``/healthz`` answers while the event loop runs; ``/readyz`` answers 503 with one line per part
that is not well, in the words of ``services.Health``; ``/metrics`` is Prometheus text. A port that
is in use is reported as a wrong setting, before anything else has started.

Any Pod on the network may send requests. So connections are few and are closed when idle. The page
of metrics is rendered at most once a second and shared by all requests that wait for it. It is
rendered metric by metric, so that no firing has to wait for the whole page.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import Final

import prometheus_client

from duepoint import __version__, errors, services, settings, telemetry
from duepoint.net import httpserver
from duepoint.net.httpserver import HttpRequest, HttpResponse, ServerLimits

#: How long a page of metrics is served before it is rendered again.
PAGE_SECONDS = 1.0
#: Requests for probes must not use up the 1,024 files that a process may open.
_LIMITS: Final = ServerLimits(connections=64, idle_seconds=20.0)
_GRACE_SECONDS: Final = 1.0
_TEXT: Final = "text/plain; charset=utf-8"


class _Single(prometheus_client.CollectorRegistry):
    """A registry with one metric."""

    def __init__(self, metric: prometheus_client.Metric) -> None:
        super().__init__(auto_describe=False)
        self._metric = metric

    def collect(self) -> Iterable[prometheus_client.Metric]:
        return [self._metric]


class Page:
    """The page of metrics, rendered at most once a second."""

    def __init__(self, registry: prometheus_client.CollectorRegistry) -> None:
        self._registry = registry
        self._making = asyncio.Lock()
        self._fresh_until = float("-inf")
        self._text = b""

    async def text(self) -> bytes:
        """Return the page in Prometheus's format."""
        clock = asyncio.get_running_loop()
        async with self._making:
            if clock.time() >= self._fresh_until:
                self._text = await self._rendered()
                self._fresh_until = clock.time() + PAGE_SECONDS
        return self._text

    async def _rendered(self) -> bytes:
        for refresh in tuple(telemetry.before_scrape):
            await refresh()
        parts = []
        for metric in self._registry.collect():
            parts.append(prometheus_client.generate_latest(_Single(metric)))
            await asyncio.sleep(0)  # let firings run in between
        return b"".join(parts)


@contextlib.asynccontextmanager
async def serving(
    health: services.Health, *, host: str, port: int, registry: prometheus_client.CollectorRegistry
) -> AsyncIterator[None]:
    """Serve probes and metrics within the context, which should enclose all connections.

    Raises InvalidSetting if the address cannot be used. Port 0 serves nothing.
    """
    telemetry.build_info.labels(__version__).set(1)
    if port == 0:
        yield
        return
    page = Page(registry)

    async def answer(request: HttpRequest) -> HttpResponse:
        if request.method not in ("GET", "HEAD"):
            return _text(405, "use GET\n")
        match request.target.partition("?")[0]:
            case "/healthz":
                return _text(200, "ok\n")
            case "/readyz":
                troubles = health.troubles()
                lines = "".join(f"{part}: {trouble}\n" for part, trouble in troubles.items())
                return _text(503, lines) if lines else _text(200, "ok\n")
            case "/metrics":
                kind = ("Content-Type", prometheus_client.CONTENT_TYPE_LATEST)
                return HttpResponse(200, (kind,), await page.text())
        return _text(404, "try /healthz, /readyz or /metrics\n")

    server = httpserver.HttpServer(answer, _refusal, _LIMITS)
    try:
        await server.start(host, port, None)
    except OSError as error:
        raise errors.InvalidSetting(
            settings.variable("http_port"),
            f"{host}:{port} cannot be used ({error.strerror}); choose another port",
        ) from error
    try:
        yield
    finally:
        await server.close(_GRACE_SECONDS)


def _text(status: int, text: str) -> HttpResponse:
    return HttpResponse(status, (("Content-Type", _TEXT),), text.encode())


def _refusal(status: int, message: str) -> HttpResponse:
    return _text(status, f"{message}\n")
