"""An OpenTelemetry collector for tests: OTLP over HTTP, as far as traces need it.

It decodes spans with OpenTelemetry's own protocol classes, keeps them, and answers as told.
"""

from __future__ import annotations

import contextlib
import dataclasses
import http.server
import threading
from collections.abc import Iterator
from typing import Any

from opentelemetry.proto.collector.trace.v1 import trace_service_pb2


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """A span with its resource's attributes; ids in hexadecimal digits, times in nanoseconds."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    start_ns: int
    end_ns: int
    is_error: bool
    message: str
    attributes: dict[str, Any]
    resource: dict[str, Any]


class Collector:
    """Attributes:
    url: its base URL.
    spans: the accepted spans, in order.
    requests: path and headers of every request.
    answer: the status of its answers from now on.
    """

    def __init__(self) -> None:
        self.spans: list[Arrived] = []
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.answer = 200
        self._more = threading.Condition()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def wait_for(self, count: int, seconds: float = 20.0) -> list[Arrived]:
        """Wait for this many spans and return them."""
        with self._more:
            assert self._more.wait_for(lambda: len(self.spans) >= count, seconds), self.spans
            return list(self.spans)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _take(self, path: str, headers: dict[str, str], body: bytes) -> int:
        with self._more:
            self.requests.append((path, headers))
            if self.answer == 200:
                self.spans += _decoded(body)
            self._more.notify_all()
            return self.answer

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        take = self._take

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                self.send_response(take(self.path, headers, body))
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Log nothing: the requests are kept."""

        return Handler


@contextlib.contextmanager
def collecting() -> Iterator[Collector]:
    """Yield a listening collector."""
    collector = Collector()
    collector.start()
    try:
        yield collector
    finally:
        collector.stop()


def _decoded(body: bytes) -> list[Arrived]:
    request = trace_service_pb2.ExportTraceServiceRequest.FromString(body)
    return [
        Arrived(
            name=span.name,
            trace_id=span.trace_id.hex(),
            span_id=span.span_id.hex(),
            parent_id=span.parent_span_id.hex(),
            kind=span.kind,
            start_ns=span.start_time_unix_nano,
            end_ns=span.end_time_unix_nano,
            is_error=span.status.code == 2,
            message=span.status.message,
            attributes=_values(span.attributes),
            resource=_values(of_resource.resource.attributes),
        )
        for of_resource in request.resource_spans
        for scope in of_resource.scope_spans
        for span in scope.spans
    ]


def _values(pairs: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in pairs}
